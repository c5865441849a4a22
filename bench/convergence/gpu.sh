#!/usr/bin/env bash
# Fifteen minutes on one GPU: trains a GPT of 25 million parameters with zero3_gpt, on 2 nodes x 2 ranks that share the GPU, in
# bf16, with ZeRO++ in 8 and 4 bits, with 4 bits for differences and gradients, by layer, and with local steps in 4 bits every 32
# steps. All have equal steps, as many as the minutes allow. Run after run is written, so that a lease cut short still has the
# first ones, which are wanted most.
#
#   bench/convergence/gpu.sh --text FILE [--minutes N] [--build-dir DIR] [--results DIR] [--device host] [--layers N]
#                            [--width N]
#
#   --text FILE      to train on, of at least 50 MB; may be packed by gzip, as the 23 MB of Debian's packages dict-gcide and dict-wn:
#                    cat /usr/share/dictd/{gcide,wn}.dict.dz >build/text.gz
#   --minutes N      within which all runs together should end (default: 9)
#   --build-dir DIR  where `tests/gpu.sh --build-only` has built (default: build/gpu)
#   --results DIR    where gpu_training.md and the rest go (default: build/gpu-training). Without gnuplot there is no plot;
#                    elsewhere, `bench/convergence/report.py DIR DIR --gpu zero3 zeropp four_bits by_layer local_steps` makes it
#   --device host, --layers N, --width N    of zero3_gpt, for a rehearsal without a GPU (default: cuda, 8 and 512)
#
# Matrix products are in TF32.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value text ''
value minutes 9
folder build_dir "$root/build/gpu"
folder results "$root/build/gpu-training"
value device cuda
value layers 8
value width 512
parse_options "$@"
[ -n "$text" ] || options_wrong "--text is needed"
here=$root/bench/convergence
export NVIDIA_TF32_OVERRIDE=1 OPENBLAS_NUM_THREADS=1

# train NAME STEPS CONFIG...: all runs, of one seed. As in bench/pareto, a tenth of the steps warms up, and rates end at zero.
train() {
    local name=$1 steps=$2
    shift 2
    "$build_dir/gpu/zero3_gpt" "$@" --device "$device" --ranks-per-node 2 --text "$text" --steps "$steps" \
        --warmup $((steps / 10)) --final-rate 0 --held-out-windows 2048 \
        --layers "$layers" --heads 8 --width "$width" --context 256 --json "$results/$name.json" --curve "$results/$name.dat"
}

mkdir -p "$results/configs"
shared=processor
if [ "$device" != host ]; then
    # After a failure, nvidia-smi may print words that are no name.
    shared=$(timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader) || shared=GPU
fi
echo "${shared%%$'\n'*}" >"$results/device"
packed=$text text=$(mktemp)
trap 'rm "$text"' EXIT
zcat -f "$packed" >"$text"
configs=()
for name in zero3 zeropp four_bits by_layer local_steps; do
    configs+=("$results/configs/$name.json")
    sed 's/"lr": 3e-3/"lr": 1e-3/; s/int2:64/int4:128/; s/"every": 8/"every": 32/; s/"momentum": 0.6/"momentum": 0.8/' \
        "$root/examples/zero3_gpt/configs/${name/four_bits/differences}.json" >"${configs[-1]}"
done
SECONDS=0
train pace 20 "${configs[@]}"
# Beginnings and ends of the runs take as long again. The last step is an exchange of the local steps.
steps=$(python3 -c 'import json, sys
step = sum(run["step_seconds_median"] for run in json.load(open(sys.argv[1]))["runs"])
print(max(1, int((60 * float(sys.argv[2]) - 2 * int(sys.argv[3])) / step / 32)) * 32)' "$results/pace.json" "$minutes" "$SECONDS")
runs=()
for config in "${configs[@]}"; do
    runs+=("$(basename "$config" .json)")
    train "${runs[-1]}" "$steps" "$config"
    python3 "$here/report.py" "$results" "$results" --gpu "${runs[@]}"
done
