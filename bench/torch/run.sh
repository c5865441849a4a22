#!/usr/bin/env bash
# Trains with PyTorch on 2 nodes x 2 ranks, network namespaces with shaped links, and on loopback: a GPT of 10 million
# parameters with FSDP2, HSDP and DDP, and a vision transformer, each with and without zeropp. Measures the time of a call from
# Python. Installs PyTorch and the package as tests/torch/run.sh does. Needs root.
#
#   bench/torch/run.sh [--steps N] [--modes MODES] [--rounds N] [--build-dir DIR] [--results DIR]
#
#   --steps N         of each training (default: 40)
#   --modes MODES     which to measure, of "FSDP2 HSDP DDP"; the results keep the others (default: all)
#   --rounds N        how often each training over slow links runs, in turns; the page has the run of the median (default: 1)
#   --build-dir DIR   where the environment is, which is made once (default: build/torch)
#   --results DIR     where torch.md and the rest go (default: bench/results)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value steps 40
value modes "FSDP2 HSDP DDP"
value rounds 1
folder build_dir "$root/build/torch"
folder results "$root/bench/results"
parse_options "$@"

require_packages iproute2 util-linux openmpi-bin python3 gnuplot-nox
"$root/tests/torch/run.sh" --build-dir "$build_dir" -- -k test_what_cannot_be_done
here=$root/bench/torch
python=$build_dir/venv/bin/python
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export OMP_NUM_THREADS=1
mkdir -p "$results"
read -ra wanted_modes <<<"$modes"
command="bench/torch/run.sh --steps $steps"
[ "$modes" = "FSDP2 HSDP DDP" ] || command+=" --modes \"$modes\""
[ "$rounds" = 1 ] || command+=" --rounds $rounds"
"$python" "$here/report.py" forget "$results" "${wanted_modes[@]}"

# train LINKS TASK MODE PRESET [ARGUMENT...]
train() {
    local links=$1 task=$2 mode=$3 preset=$4 interfaces=() program
    shift 4
    echo "== $links, $task, $mode, $preset"
    program=("$root/examples/torch/train.py" --preset "$preset" --layers 3 --steps "$steps" --json "$scratch/run.json" "$@")
    [ "$mode" = FSDP2 ] || program+=("--${mode,,}")
    if [ "$links" = loopback ]; then
        GLOO_SOCKET_IFNAME=lo "$python" -m torch.distributed.run --standalone --nproc-per-node 4 "${program[@]}"
    else
        "$root/bench/cluster/cluster.sh" run --nodes 2 --per-node 2 --rate "$links" --json "$scratch/links.json" -- \
            "$here/rank.sh" "$python" "${program[@]}"
        interfaces=("$scratch/links.json")
    fi
    "$python" "$here/report.py" keep "$results" "$command" "$links" "$task" "$mode" "$preset" "$scratch/run.json" \
        "${interfaces[@]}"
}

# In turns, so that a machine that becomes slower meanwhile slows all; the page has the run of the median.
for links in 200mbit 1gbit; do
    for _ in $(seq "$rounds"); do
        for mode in "${wanted_modes[@]}"; do
            for preset in none 16bit 8bit 6bit 4bit; do
                train "$links" text "$mode" "$preset" --width 512 --batch 2
            done
        done
    done
done
if [[ $modes = *FSDP2* ]]; then
    for preset in none 8bit 4bit; do
        train 200mbit digits FSDP2 $preset --digits --width 256 --batch 4 --lr 0.001
    done
fi
for _ in 1 2 3 4 5; do
    for mode in "${wanted_modes[@]}"; do
        [ "$mode" != HSDP ] || continue
        for preset in none lossless; do
            train loopback text "$mode" "$preset" --width 512 --batch 2
        done
    done
done
GLOO_SOCKET_IFNAME=lo "$python" -m torch.distributed.run --standalone --nproc-per-node 2 "$here/overhead.py" >"$results/torch_overhead.md"
"$python" "$here/report.py" page "$results"
cat "$results/torch.md"
