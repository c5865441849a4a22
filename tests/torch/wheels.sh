#!/usr/bin/env bash
# The wheels that examples/torch/wheel.sh makes, for x86-64 and 64-bit Arm: made from the source distribution, installed,
# loaded without PyTorch. Arm's library runs in qemu:
#
#   tests/torch/wheels.sh [--cuda] [--build-dir DIR]
#
#   --cuda            instead, the one for x86-64 with libraries for CUDA 12 and 13: some ten minutes of processor time
#   --build-dir DIR   where the environment and the wheels are (default: build/wheel)
#
# Exit status: 0 passed, 1 failed, 2 something to run this is missing, 77 the tools cannot be had here.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
flag cuda
folder build_dir "$root/build/wheel"
parse_options "$@"

require_packages python3 python3-venv qemu-user libc6-arm64-cross
failed() {
    echo "wheels: $1" >&2
    exit 1
}
wheels=$build_dir/dist
rm -rf "$wheels"
processors=(x86_64 aarch64)
options=()
if [ "$cuda" = yes ]; then
    processors=(x86_64)
    options=(--cuda)
fi
for processor in "${processors[@]}"; do
    "$root/examples/torch/wheel.sh" --processor "$processor" "${options[@]}" --build-dir "$build_dir" --out "$wheels" || exit
    wheel=$(find "$wheels" -name "zeropp_torch-*-py3-none-manylinux*_$processor.whl")
    glibc=$(sed -n "s/.*manylinux_2_\([0-9]*\)_$processor.whl/\1/p" <<<"$wheel")
    [ "${glibc:-99}" -le 28 ] || failed "expected py3-none-manylinux_2_28_$processor or older, given $(ls "$wheels")"
    into=$build_dir/installed-$processor
    rm -rf "$into"
    if [ "$processor" = "$(uname -m)" ]; then
        "$build_dir/venv/bin/pip" install --quiet --no-deps --target "$into" "$wheel"
    else
        "$build_dir/venv/bin/python" -m zipfile -e "$wheel" "$into"
    fi
    library=$into/zeropp_torch/libzeropp_c.so
    others=$(nm -D --defined-only "$into"/zeropp_torch/*.so | awk 'NF == 3 && $3 !~ /^zeropp_/ { print $3 }')
    [ -z "$others" ] || failed "expected exported names zeropp_*, given also ${others//$'\n'/, }"
    if [ "$cuda" = yes ]; then
        "$build_dir/venv/bin/python" "$root/tests/torch/wheel_cuda.py" "$into"/zeropp_torch/libzeropp_c_cuda{12,13}.so ||
            failed "a library for CUDA tensors"
    fi

    "$build_dir/venv/bin/python" -m ziglang cc -target "$processor-linux-gnu.2.28" -O2 "$root/tests/torch/wheel.c" \
        -o "$build_dir/smoke-$processor" -lm -ldl
    if [ "$processor" = x86_64 ]; then
        uses_avx2=no
        ! grep -qw avx2 /proc/cpuinfo || uses_avx2=yes
        "$build_dir/smoke-$processor" "$library" $uses_avx2 || failed "the library for $processor"
    else
        qemu-aarch64 -L /usr/aarch64-linux-gnu "$build_dir/smoke-$processor" "$library" no || failed "the library for Arm"
    fi
done
echo "passed"
