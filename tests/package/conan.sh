#!/usr/bin/env bash
# The Conan recipe, cmake/packaging/conan: Conan makes a package of this checkout, and a project that knows nothing of it is
# built and run with that. Installs what is missing, Conan from PyPI into an environment of its own:
#
#   tests/package/conan.sh [--build-dir DIR]
#
#   --build-dir DIR   where the environment and Conan's own files are (default: build/conan)
#
# Exit status: 0 passed, 1 failed, 2 something to run this is missing, 77 no Conan can be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/conan"
parse_options "$@"

require_packages cmake g++ make openmpi-bin libopenmpi-dev python3 python3-venv
conan=$build_dir/venv/bin/conan
if ! "$conan" --version 2>/dev/null | grep -q 'version 2'; then
    rm -rf "$build_dir/venv"
    python3 -m venv "$build_dir/venv"
    "$build_dir/venv/bin/pip" install --quiet 'conan>=2,<3' || {
        echo "Conan cannot be installed here"
        exit 77
    }
fi

export CONAN_HOME=$build_dir/home CONSUMER_BUILD_DIR=$build_dir/consumer
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=sh
rm -rf "$CONAN_HOME" "$CONSUMER_BUILD_DIR"
"$conan" profile detect
# No remote: the recipe needs nothing that is not here.
"$conan" create "$root/cmake/packaging/conan" --no-remote --settings compiler.cppstd=20 \
    --test-folder "$root/tests/package/consumer_conan" || exit 1
