#!/usr/bin/env bash
# Installs JAX, pytest and examples/jax into an environment of their own. Tests zeropp_jax against JAX's own collectives, on
# four MPI processes of this machine:
#
#   tests/jax/run.sh [--jax VERSION] [--c-library DIR] [--build-dir DIR] [-- PYTEST-ARGUMENTS...]
#
#   --jax VERSION     which JAX; 130 MB (default: 0.10.2)
#   --c-library DIR   a build of zeropp with ZEROPP_BUILD_C (default: makes one)
#   --build-dir DIR   where the environment is, which is made once (default: build/jax)
#
# Exit status: pytest's; 2 something is missing, 77 no JAX can be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value jax 0.10.2
value c_library ''
folder build_dir "$root/build/jax"
operands_anywhere=yes
parse_options "$@"

require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev python3 python3-venv
use_ccache
python=$build_dir/venv/bin/python
if ! "$python" -c "import jax, pytest, scikit_build_core; assert jax.__version__ == '$jax'" 2>/dev/null; then
    rm -rf "$build_dir/venv"
    python3 -m venv "$build_dir/venv"
    "$python" -m pip install --quiet "jax==$jax" pytest 'scikit-build-core>=1.0' || {
        echo "JAX $jax cannot be installed here"
        exit 77
    }
fi
if [ -z "$c_library" ]; then
    c_library=$build_dir/zeropp
    cmake -G Ninja -S "$root" -B "$c_library" -D CMAKE_BUILD_TYPE=Release -D ZEROPP_BUILD_C=ON -D ZEROPP_BUILD_TESTS=OFF \
        -D ZEROPP_BUILD_EXAMPLES=OFF -D ZEROPP_BUILD_BENCH=OFF >/dev/null
    cmake --build "$c_library"
fi
rm -rf "$build_dir/installed"
cmake --install "$c_library" --prefix "$build_dir/installed" >/dev/null
"$python" -m pip install --quiet --no-deps --no-build-isolation --force-reinstall \
    -C cmake.define.CMAKE_PREFIX_PATH="$build_dir/installed" "$root/examples/jax"

export PYTHONDONTWRITEBYTECODE=1
cd "$build_dir"
launch_ranks 4 "$python" -m pytest -q --color=no -p no:cacheprovider "$root/tests/jax" "${operands[@]}"
# MPI does not end well after a failure, so the text tells.
printed=$(launch_ranks 2 timeout 60 "$python" "$root/tests/jax/missing_rank.py" 2>&1) || true
if ! grep -q '^passed$' <<<"$printed"; then
    printf 'a missing rank: expected an error on the other one, given\n%s\n' "$printed" >&2
    exit 1
fi
launch_ranks 2 timeout 120 "$python" "$root/tests/jax/ends_early.py" || {
    echo 'an early end: expected no error, given the lines above' >&2
    exit 1
}
