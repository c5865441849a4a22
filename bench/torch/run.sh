#!/usr/bin/env bash
# Trains a GPT of 10 million parameters with PyTorch on 2 nodes x 2 ranks, network namespaces with shaped links, with FSDP2
# (bf16 parameters, fp32 reduction) and DDP (fp32): as they are, and with zeropp. Installs PyTorch and the package as
# tests/torch/run.sh does. Needs root.
#
#   bench/torch/run.sh [--steps N] [--build-dir DIR] [--results DIR]
#
#   --steps N         of each training (default: 10)
#   --build-dir DIR   where the environment is, which is made once (default: build/torch)
#   --results DIR     where torch.md goes (default: bench/results)
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value steps 10
folder build_dir "$root/build/torch"
folder results "$root/bench/results"
parse_options "$@"

require_packages iproute2 util-linux openmpi-bin python3
"$root/tests/torch/run.sh" --build-dir "$build_dir" -- -k test_what_cannot_be_done
page=$results/torch.md
{
    echo "# PyTorch with and without zeropp"
    echo
    echo "Made by \`bench/torch/run.sh\` on $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)), which all"
    echo "ranks share: a byte-level GPT of 9.8 million parameters, 2 windows of 64 bytes on each of 2 nodes x 2 ranks, gloo."
    echo "Steps are medians of $steps; bytes are those of each node's interface over the whole run, held-out loss included."
    echo
    echo "| links | | formats | ms a step | speed-up | MB across nodes, sent by node 0 | fewer | held-out loss |"
    echo "|---|---|---|---:|---:|---:|---:|---:|"
} >"$page"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for rate in 200mbit 1gbit; do
    for mode in FSDP2 DDP; do
        for preset in none 16bit 8bit 6bit 4bit; do
            arguments=(--preset $preset --layers 3 --width 512 --batch 2 --steps "$steps" --json "$scratch/run.json")
            [ $mode = FSDP2 ] || arguments+=(--ddp)
            echo "== $rate, $mode, $preset"
            OMP_NUM_THREADS=1 "$root/bench/cluster/cluster.sh" run --nodes 2 --per-node 2 --rate $rate --json "$scratch/links.json" -- \
                "$root/bench/torch/rank.sh" "$build_dir/venv/bin/python" "$root/examples/torch/train.py" "${arguments[@]}"
            "$build_dir/venv/bin/python" "$root/bench/torch/row.py" "$scratch" $rate $mode $preset >>"$page"
        done
    done
done
cat "$page"
