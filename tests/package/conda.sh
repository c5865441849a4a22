#!/usr/bin/env bash
# The recipe for conda-forge, cmake/packaging/conda: rattler-build, from PyPI, makes both packages of this checkout, without a
# channel (conda.py). A project that knows nothing of the checkout is built with the headers; the Python package's library
# is loaded. Conda's own environments, and their tests of the packages, need conda-forge and are left out:
#
#   tests/package/conda.sh [--build-dir DIR]
#
#   --build-dir DIR   where the environment and the packages are (default: build/conda)
#
# Exit status: 0 passed, 1 failed, 2 something to run this is missing, 77 no rattler-build can be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/conda"
parse_options "$@"

require_packages cmake g++ ninja-build python3 python3-venv zstd
python=$build_dir/venv/bin/python
if ! "$python" -c "import rattler_build, scikit_build_core" 2>/dev/null; then
    rm -rf "$build_dir/venv"
    python3 -m venv "$build_dir/venv"
    "$build_dir/venv/bin/pip" install --quiet py-rattler-build==0.73.0 'scikit-build-core>=1.0' || {
        echo "rattler-build cannot be installed here"
        exit 77
    }
fi
failed() {
    echo "conda: $1" >&2
    exit 1
}

rm -rf "$build_dir"/{channel,zeropp,zeropp-torch,consumer}
mkdir "$build_dir/channel"
"$python" "$root/tests/package/conda.py" "$build_dir/channel" || failed "the packages are not made"
for name in zeropp zeropp-torch; do
    mkdir "$build_dir/$name"
    package=$(find "$build_dir/channel" -maxdepth 2 -name "$name-[0-9]*.conda")
    "$python" -m zipfile -e "$package" "$build_dir/$name"
    tar -C "$build_dir/$name" --zstd -xf "$build_dir/$name"/pkg-*.tar.zst
done

cmake -S "$root/tests/package/consumer_installed" -B "$build_dir/consumer" -DCMAKE_PREFIX_PATH="$build_dir/zeropp"
cmake --build "$build_dir/consumer"
"$build_dir/consumer/consumer" || failed "the consumer of the headers"

library=$(find "$build_dir/zeropp-torch" -name libzeropp_c.so)
"$python" -c "import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).zeropp_c_version() < 1000)" "$library" ||
    failed "the library of zeropp-torch"
echo "passed"
