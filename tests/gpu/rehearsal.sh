#!/usr/bin/env bash
# tests/gpu.sh without a GPU, from end to end: programs, sanitizer and driver are doubles of a few lines, which pass, fail,
# hang, or find no GPU. Checks how the script ends and each line of its summary, and that docs/concepts/gpu_hour.md has its
# steps and names nothing that is not here. Then bench/convergence/gpu.sh, its settings, page and plot. Some 20 seconds.
#
#   tests/gpu/rehearsal.sh
#
# Exit status: 0 as expected, 1 not.
# shellcheck disable=SC2016  # doubles expand their own arguments
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/build/gpu" "$folder/bin"
unset NCCL_ROOT

# double FILE LINE...: a script
double() {
    local file=$folder/$1
    shift
    printf '%s\n' '#!/bin/bash' "$@" >"$file"
    chmod +x "$file"
}
# Limits of the script are minutes; here, three seconds. DeepSpeed is not here.
double bin/timeout '[[ "$*" != *compare_deepspeed* ]] || exit 77' 'while [[ $1 == --* ]]; do shift; done' \
    'exec /usr/bin/timeout --kill-after=1 3 "${@:2}"'
double bin/nvidia-smi 'echo 580.1'
double bin/ncu 'printf "    %s %s %s\n" gpu__time_duration.sum us 1,055.20 smsp__inst_executed.sum inst 7' \
    'while [[ $1 != */codec_gpu ]]; do shift; done' 'exec "$1" "$0.json"'
programs=(test_gpu_kernels test_gpu_features test_gpu_graph test_gpu_nccl test_gpu_nccl_ranks test_gpu_zero3_gpt
    test_gpu_nccl_failures example_08_cuda_engine)
more=()

# Everything passes; what differs comes after it.
everything_passes() {
    local program
    rm -rf "$folder/build/gpu" "$folder/results"
    mkdir "$folder/build/gpu"
    double bin/compute-sanitizer 'echo "$2 of ${*: -2}"; exec "${@: -2}"'
    for program in "${programs[@]}"; do double "build/gpu/$program" 'exit 0'; done
    # As codec_gpu writes it, of one kernel that has a prediction and one that has none.
    double build/gpu/codec_gpu 'cat >"$1" <<END
{"device": {"name": "NVIDIA H200", "compute_capability": "9.0", "multiprocessors": 132, "l2_bytes": 62914560,
            "memory_bytes": 150000000000, "cuda_driver_version": 13000, "cuda_runtime_version": 13000},
 "repetitions": 9, "complete": true, "notes": {}, "rows": [
  {"quantizer": "int8:256", "kernel": "encode", "element": "bf16", "tensor_bytes": 268435456, "gigabytes_per_second": 3800.0,
   "copy_gigabytes_per_second": 4200.0, "fraction_of_copy": 0.905},
  {"quantizer": "int8:256", "kernel": "reorder_encode", "element": "bf16", "tensor_bytes": 268435456,
   "gigabytes_per_second": 3800.0, "copy_gigabytes_per_second": 4200.0, "fraction_of_copy": 0.905}]}
END'
}

failed=0
# run NAME STATUS PATTERN...: the script ends so, and each pattern is a line of its output.
run() {
    local name=$1 expected=$2 status=0 pattern
    shift 2
    PATH=$folder/bin:$PATH "$root/tests/gpu.sh" --prebuilt --build-dir "$folder/build" --results "$folder/results" \
        "${more[@]}" >"$folder/output" 2>&1 || status=$?
    if [ "$status" -ne "$expected" ]; then
        echo "$name: ended with $status, expected $expected"
        failed=1
    fi
    for pattern in "$@"; do
        grep -qE "$pattern" "$folder/output" || {
            echo "$name: no line with: $pattern"
            failed=1
        }
    done
    if [ $failed -eq 0 ]; then echo "$name: as expected"; else tail -n 40 "$folder/output"; fi
}

everything_passes
run "all passes" 0 '^test_gpu_kernels +passed' '^memcheck +passed' '^racecheck +passed' '^test_gpu_nccl_ranks +passed' \
    '^example_08_cuda_engine +passed' '^codec_gpu +passed' '^test_torch +SKIPPED' '^deepspeed +SKIPPED' '^passed in ' \
    '^\| int8:256 \| encode \| 0.91 \| - \| - \| 0\.[0-9]+ \| ' '^\| int8:256 \| reorder_encode .* \| - \| - \|$'

cp "$folder/results/summary.txt" "$folder/steps"

everything_passes
double build/gpu/test_gpu_nccl_failures 'echo "a rank hangs"; exit 1'
double build/gpu/test_gpu_nccl_ranks '[[ $1 == graph ]] && echo "graphs only"'
double bin/ncu '[[ "$*" == *int4:128:signed* ]] && { echo "ERR_NVGPUCTRPERM"; exit 1; }' "$(tail -n +2 "$folder/bin/ncu")"
more=(--profile --old "$folder/build/gpu/codec_gpu")
run "a profile" 1 '^nvidia_smi +passed' '^slice +passed' '^ncu_int4_sum_8 +passed' '^ncu_rotated_encode +FAILED \(1\)' \
    '^ncu_int4_encode +passed' '^codec_gpu_old +passed' '^\| int4_encode \| 1,055.20 us \| - \| 7 inst \|' '^\| int8:256 .*\| 0.91 \| 1.00 \|$' '^test_gpu_nccl_failures +FAILED \(1\)' \
    '^graphs only' '^nccl_graphs +passed' '^memcheck of .*test_gpu_features \[slice\]' \
    '^memcheck_features +passed' '^FAILED: 2 step'
cat "$folder/results/summary.txt" >>"$folder/steps"
more=()

# The page has the steps in their order. Its files exist, and so do options of its scripts and its programs.
page=$root/docs/concepts/gpu_hour.md
diff <(sed -nE 's/^\| `(\w+)` \|.*/\1/p' "$page") <(awk '{print $1}' "$folder/steps") || {
    echo "the page of the hour with a GPU has other steps than tests/gpu.sh"
    failed=1
}
while read -r file options; do
    case $file in
    build/gpu/gpu/codec_gpu) file=bench/codec_gpu/main.cpp ;;
    build/gpu/*) continue ;;
    esac
    for option in "" $options; do
        [[ -n $option && $option != --* ]] || grep -rqse "$option" "$root/$file" || {
            echo "the page names what is not here: $file $option"
            failed=1
        }
    done
done < <(grep -oE '(tests|bench|build/gpu)/[a-z0-9_/]+[a-z0-9_.]*[a-z0-9_]( [^`#|]*)?' "$page")

everything_passes
for program in "${programs[@]}" codec_gpu; do double "build/gpu/$program" 'echo "skipped: no GPU here"; exit 77'; done
run "no GPU" 1 '^test_gpu_kernels +SKIPPED: no GPU here' '^codec_gpu_quick +SKIPPED' '^FAILED: 11 step'

everything_passes
double build/gpu/test_gpu_kernels 'echo "a kernel differs"; exit 1'
double build/gpu/test_gpu_graph 'sleep 60'
run "failures" 1 '^test_gpu_kernels +FAILED \(1\)' '^test_gpu_graph +FAILED: out of time' '^test_gpu_nccl +passed' \
    '^FAILED: 4 step'

everything_passes
double bin/compute-sanitizer 'echo "Error: Device not supported. Please refer to the documentation"; exit 1'
rm "$folder"/build/gpu/test_gpu_{nccl,features}
run "a refused device, and programs that are not built" 1 '^memcheck +SKIPPED: compute-sanitizer refuses' \
    '^test_gpu_nccl +FAILED: not built' '^test_gpu_features +FAILED: not built' '^FAILED: 2 step'

# A measurement that is cut short leaves its rows.
everything_passes
double build/gpu/codec_gpu_complete "$(tail -n +2 "$folder/build/gpu/codec_gpu")"
double build/gpu/codec_gpu "\"$folder/build/gpu/codec_gpu_complete\" \"\$1\"; sed -i s/true/false/ \"\$1\"; sleep 60"
run "cut short" 1 '^codec_gpu +FAILED: out of time' '^The measurements were cut short' '^\| int8:256 \| encode'

# The training: a double of zero3_gpt whose losses are equal, on a packed text.
double build/gpu/zero3_gpt 'while [[ $1 != --* ]]; do runs+=("$(basename "$1" .json)"); shift; done' \
    'while [ $# -gt 0 ]; do name=${1#--}; declare "${name//-/_}=$2"; shift 2; done' \
    '[[ $(<"$text") == words && $device == cuda ]] || { echo "expected the text"; exit 1; }' \
    '[[ $steps == 20 || ! -e $0.fails || ${runs[0]} != by_layer ]] || exit 1' \
    'printf -v list ", {\"name\": \"%s\", \"held_out_loss\": 2.5, \"inter_node_bytes_per_step\": 8, \"step_seconds_median\": 0.1}" "${runs[@]}"' \
    'echo "{\"parameters\": 25, \"nodes\": 2, \"ranks_per_node\": 2, \"steps\": $steps, \"seed\": 1, \"runs\": [${list:2}]}" >"$json"' \
    'echo "step ${runs[*]}" >"$curve"; for ((i = 1; i <= steps; ++i)); do echo "$i ${runs[*]/*/3}"; done >>"$curve"'
echo words | gzip >"$folder/text.gz"
# training NAME STATUS RUN...: the script ends so, and its page has these runs, of 96 steps each, or fewer on a busy machine.
training() {
    local name=$1 expected=$2 status=0
    shift 2
    rm -rf "$folder/training"
    PATH=$folder/bin:$PATH "$root/bench/convergence/gpu.sh" --text "$folder/text.gz" --minutes 1 --build-dir "$folder/build" \
        --results "$folder/training" >"$folder/output" 2>&1 || status=$?
    if [ "$status" -ne "$expected" ] || ! diff <(printf '%s\n' "$@") <(sed -nE 's/^\| (\w+) \| .* 2\.5000 .*/\1/p' "$folder/training/gpu_training.md") ||
        ! grep -qE 'share one 580.1\), (32|64|96) steps' "$folder/training/gpu_training.md" ||
        { command -v gnuplot >/dev/null && [ ! -s "$folder/training/gpu_training.png" ]; }; then
        echo "$name: ended with $status, expected $expected"
        tail -n 20 "$folder/output"
        failed=1
    else
        echo "$name: as expected"
    fi
}
training "a training" 0 zero3 zeropp four_bits by_layer local_steps
for row in '^| four_bits | int4:128:signed:bf16:h32, of differences | int8:256:bf16:h32 + int4:128:signed:bf16:h32 |' \
    '^| local_steps .* between islands int4:128:signed:bf16:h32 every 32 steps |'; do
    grep -q "$row" "$folder/training/gpu_training.md" || { echo "the training has no row: $row"; failed=1; }
done
grep -L '"lr": 1e-3' "$folder"/training/configs/*.json | grep . && { echo "these configurations have another rate"; failed=1; }
grep -q '"momentum": 0.8' "$folder/training/configs/local_steps.json" || { echo "local_steps has another momentum"; failed=1; }
touch "$folder/build/gpu/zero3_gpt.fails"
training "a training that is cut short" 1 zero3 zeropp four_bits
exit $failed
