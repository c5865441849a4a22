#!/usr/bin/env bash
# The one command for a machine with a GPU: builds what runs on one, runs it, measures, and writes the results.
#
#   tests/gpu.sh [--include DIR] [--build-dir DIR] [--results DIR] [--arch ARCHITECTURES] [--prebuilt | --build-only]
#                [--profile] [--old FILE]
#
#   --include DIR     a folder with catch2/catch.hpp (2.13), CLI/CLI.hpp and nlohmann/json.hpp, for machines that have
#                     no packages of them (on Debian 12 all three are in /usr/include)
#   --build-dir DIR   where to build (default: build/gpu)
#   --results DIR     where report.md, the measurements and the logs go (default: build/gpu-results; with --profile, build/gpu-profile)
#   --arch LIST       for which GPUs, as CMake writes them: 90, or 80;90 (default: those of this machine)
#   --build-only      build, on a machine without a GPU, and stop
#   --prebuilt        build nothing: run what --build-only has left in DIR/gpu, which needs neither CMake nor nvcc
#   --old FILE        a codec_gpu that was built before a change of kernels: measured beside the new one
#   --profile         in place of the other steps, once they have passed on such a GPU: clocks, counters of six kernels by
#                     ncu, all kernels at one size, and graphs and failures under NCCL, which the other steps leave out
#
# Needs nvcc, CMake 3.25 or newer and a C++20 compiler, and for zero3_gpt OpenBLAS and packages of CLI11 and
# nlohmann_json. NCCL is found where NCCL_ROOT says, in Python's packages, or
# beside the CUDA toolkit. Ends within 8 minutes. Exit status: 0 all passed, 1 something failed, or was skipped for want
# of a GPU or of NCCL, 2 it could not begin.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
value include ''
folder build_dir "$root/build/gpu"
folder results "$root/build/gpu-results"
value arch native
flag prebuilt
flag build_only
flag profile
value old ''
parse_options "$@"
if [ "$prebuilt" = yes ] && [ "$build_only" = yes ]; then options_wrong "--prebuilt and --build-only leave nothing to do"; fi
if [ "$profile" = yes ] && [ "$results" = "$root/build/gpu-results" ]; then
    results=$root/build/gpu-profile
    mkdir -p "$results"
fi
[ -z "$include" ] || include=$(cd "$include" && pwd)

deadline=$((SECONDS + 470))
summary=()
failed=0

heading() { printf '\n==== %s (%d s) ====\n' "$*" "$SECONDS"; }

# within SECONDS COMMAND...: bounded by its own limit and by what is left of the whole.
within() {
    local limit=$1 left=$((deadline - SECONDS))
    shift
    [ "$left" -lt "$limit" ] && limit=$left
    [ "$limit" -gt 0 ] || { echo "no time is left for: $*" >&2; return 124; }
    timeout --kill-after=5 "$limit" "$@"
}

# verdict NAME STATUS: notes how a step ended. 77 is what a program ends with that found no GPU.
verdict() {
    local text
    case $2 in
    0) text=passed ;;
    77) text="SKIPPED: no GPU here" ;;
    124 | 137) text="FAILED: out of time" ;;
    *) text="FAILED ($2)" ;;
    esac
    [ "$2" -eq 0 ] || failed=$((failed + 1))
    summary+=("$(printf '%-34s %s' "$1" "$text")")
    echo "-- $1: $text"
}

# step NAME SECONDS COMMAND...: runs it, shows and keeps its output, and notes how it ended.
step() {
    local name=$1 limit=$2 status=0
    shift 2
    within "$limit" "$@" </dev/null 2>&1 | tee "$results/${name//[ \/]/_}.log" || status=${PIPESTATUS[0]}
    verdict "$name" "$status"
    return "$status"
}

# NCCL of Python's packages, where nothing else says where NCCL is.
if [ -z "${NCCL_ROOT:-}" ] && command -v python3 >/dev/null; then
    where='import importlib.util as u; print(u.find_spec("nvidia.nccl").submodule_search_locations[0])'
    NCCL_ROOT=$(timeout 20 python3 -c "$where" 2>/dev/null || true)
fi
if [ -n "${NCCL_ROOT:-}" ]; then
    export NCCL_ROOT
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$NCCL_ROOT/lib
fi

# And cuBLAS, for programs that were built elsewhere.
if [ "$prebuilt" = yes ] && command -v python3 >/dev/null; then
    where='import glob, importlib.util as u
for root in u.find_spec("nvidia").submodule_search_locations:
    for library in glob.glob(root + "/*/lib/libcublas.so.*"): print(library.rpartition("/")[0])'
    for folder in $(timeout 20 python3 -c "$where" 2>/dev/null || true); do
        export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    done
fi

if [ "$prebuilt" = no ]; then
    heading "building in $build_dir"
    configure=(-S "$root" -B "$build_dir" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CUDA_ARCHITECTURES=$arch" -DZEROPP_WERROR=ON
        -DZEROPP_BUILD_GPU=ON -DZEROPP_ENABLE_CUDA=ON -DZEROPP_ENABLE_MPI=OFF -DZEROPP_INSTALL=OFF
        # --prebuilt may run where there is no OpenBLAS.
        -DBLA_STATIC=ON)
    command -v ninja >/dev/null && configure+=(-G Ninja)
    command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
    [ -z "$include" ] || configure+=("-DZEROPP_CATCH2_INCLUDE=$include" "-DCMAKE_INCLUDE_PATH=$include")
    step configure 60 cmake "${configure[@]}" || exit 1
    build_limit=240
    [ "$build_only" = no ] || deadline=$((SECONDS + 3600)) build_limit=3600
    step build $build_limit cmake --build "$build_dir" --target zeropp_gpu -j "$(nproc)" || exit 1
fi
if [ "$build_only" = yes ]; then
    exit 0
fi

# What decides most comes first, so that a run cut short still says whether kernels are right, and how fast.

# run_test PROGRAM [SECONDS [NAME ARGUMENT...]]: a step, which fails without the program, as without NCCL when it was built.
run_test() {
    local program=$1 limit=${2:-120} name=${3:-$1}
    shift $(($# < 3 ? $# : 3))
    if [ -x "$build_dir/gpu/$program" ]; then
        step "$name" "$limit" "$build_dir/gpu/$program" "$@" || true
    else
        failed=$((failed + 1))
        summary+=("$(printf '%-34s %s' "$name" "FAILED: not built")")
    fi
}

# sanitize TOOL NAME PROGRAM: the few launches of the program that are for this.
sanitize() {
    local tool=$1 name=$2 program=$3 status=0
    if ! command -v compute-sanitizer >/dev/null; then
        summary+=("$(printf '%-34s %s' "$name" "SKIPPED: compute-sanitizer is not here")")
        return 0
    fi
    step "$name" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 "$build_dir/gpu/$program" "[slice]" || status=$?
    if [ "$status" -ne 0 ] && grep -qi "device not supported" "$results/$name.log"; then
        failed=$((failed - 1))
        summary[-1]=$(printf '%-34s %s' "$name" "SKIPPED: compute-sanitizer refuses this device")
    fi
}

# measure NAME SECONDS ARGUMENT...: codec_gpu, with what is known so far noted beside it.
measure() {
    local name=$1 limit=$2 notes=() line test text
    shift 2
    for line in "${summary[@]}"; do
        read -r test text <<<"$line"
        notes+=(--note "$test=$text")
    done
    if command -v nvidia-smi >/dev/null; then
        line=$(timeout 20 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
        notes+=(--note "driver=$line")
    fi
    step "$name" "$limit" "${program:-$build_dir/gpu/codec_gpu}" "$results/$name.json" "$@" "${notes[@]}" || true
}

# Kernels before a change beside those of now, few sizes.
measure_quick() {
    measure codec_gpu_quick 90 --quick
    [ -z "$old" ] || program=$old measure codec_gpu_old 90 --quick
}

# One page: how every step ended, and for each kernel what was predicted and what was measured.
report() {
    printf '%s\n' "${summary[@]}" >"$results/summary.txt"
    command -v python3 >/dev/null || { echo "no report: python3 is not here"; return 0; }
    python3 "$root/bench/codec_gpu/report.py" "$results" || failed=$((failed + 1))
}

finish() {
    heading "summary"
    cat "$results/summary.txt"
    echo "results: $results$1"
    [ $failed -eq 0 ] || { echo "FAILED: $failed step(s)"; exit 1; }
    echo "passed in $SECONDS s"
    exit 0
}

# counters NAME PATTERN QUANTIZER KERNEL: what ncu counts in one launch whose name matches the pattern.
counters() {
    step "ncu_$1" 45 ncu --clock-control none --set full --page raw --kernel-name-base demangled --kernel-name "regex:$2" \
        --launch-skip 2 --launch-count 1 "$build_dir/gpu/codec_gpu" --quantizer "$3" --kernel "$4" --element bf16 \
        --size-mb 256 --repetitions 1 || true
    if grep -qs "No kernels were profiled" "$results/ncu_$1.log"; then
        failed=$((failed + 1))
        summary+=("$(printf '%-34s %s' "ncu_$1" "FAILED: no kernel has this name")")
    fi
}

if [ "$profile" = yes ]; then
    heading "clocks, and counters of kernels"
    step nvidia_smi 20 nvidia-smi -q -d CLOCK,POWER || true
    run_test test_gpu_kernels 60 slice "[slice]"
    if command -v ncu >/dev/null; then
        for contributors in 2 4 8; do
            counters int4_sum_$contributors 'encode_kernel.*sum_source' int4:128 reduce_encode_$contributors
        done
        counters int8_sum_2 'encode_kernel.*sum_source' int8:256 reduce_encode_2
        counters rotated_encode encode_kernel int4:128:signed:bf16:h32 encode
        counters int4_encode encode_kernel int4:128 encode
    else
        summary+=("$(printf '%-34s %s' ncu "SKIPPED: ncu is not here")")
    fi
    heading "all kernels, and means of 3 and 6"
    measure_quick
    measure divisors 60 --quantizer int8:256 --quantizer int4:128 --kernel reduce_encode_3 --kernel reduce_encode_6 \
        --kernel reduce_decode_3 --kernel reduce_decode_6 --element bf16 --size-mb 256
    heading "graphs and failures under NCCL"
    run_test test_gpu_nccl_ranks 60 nccl_graphs graph
    run_test test_gpu_nccl_failures 150
    sanitize memcheck memcheck_features test_gpu_features
    report
    finish ", all of them in report.md"
fi

heading "the kernels: the host's bits, memory, speed"
run_test test_gpu_kernels
measure_quick
report
sanitize memcheck memcheck test_gpu_kernels
sanitize racecheck racecheck test_gpu_kernels

heading "what is built on them"
for test in test_gpu_features test_gpu_graph test_gpu_nccl; do run_test $test; done
run_test test_gpu_nccl_ranks 200
for test in "$build_dir"/gpu/example_*; do run_test "$(basename "$test")"; done
run_test test_gpu_zero3_gpt

heading "PyTorch's CUDA tensors"
ready='import pytest, torch, zeropp_torch; assert torch.cuda.is_available(); zeropp_torch._library.library("cuda")'
if command -v python3 >/dev/null && within 60 python3 -c "$ready" 2>/dev/null; then
    step test_torch 120 python3 -m pytest -q -p no:cacheprovider "$root/tests/torch/test_cuda.py" || true
else
    summary+=("$(printf '%-34s %s' test_torch "SKIPPED: zeropp_torch with its library for CUDA tensors is not here")")
fi

heading "beside DeepSpeed's quantizer ops"
status=0
if command -v python3 >/dev/null; then
    within 120 python3 "$root/bench/compare_deepspeed.py" "$results/deepspeed.json" --size-mb 256 </dev/null 2>&1 |
        tee "$results/deepspeed.log" || status=${PIPESTATUS[0]}
else
    status=77
fi
# Only where somebody has installed them.
if [ "$status" -eq 77 ]; then
    summary+=("$(printf '%-34s %s' deepspeed "SKIPPED: not here")")
else
    verdict deepspeed "$status"
fi

heading "all sizes and elements"
measure codec_gpu 150
report

finish ", all of them in report.md"
