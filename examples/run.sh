#!/usr/bin/env bash
# The main job on real text: trains a small GPT with ZeRO-3 on 2 nodes x 2 ranks (four MPI processes on this machine that
# count as two nodes), once with bf16 on the wire and once with each part of ZeRO++, and compares the runs.
#
#   examples/run.sh [--build-dir DIR] [--results DIR] [options of zero3_gpt, e.g. --steps 100 --text FILE]
#
# Installs what is missing (Debian and Ubuntu), or says exactly what to install where it may not.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/examples"
folder results "$root/build/results"
operands_anywhere=yes
parse_options "$@"

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt_mpi

echo "== training seven times: ZeRO-3, qwZ, hpZ, qgZ, all three, differences of the weights that nodes keep, and the same" \
    "with precision by layer"
configs=()
for name in zero3 qwz hpz qgz zeropp differences by_layer; do
    configs+=("$root/examples/zero3_gpt/configs/$name.json")
done
launch_ranks 4 "$build_dir/examples/zero3_gpt/zero3_gpt_mpi" "${configs[@]}" --ranks-per-node 2 \
    --json "$results/zero3_gpt.json" --curve "$results/zero3_gpt.dat" "${operands[@]}"

gnuplot -e "data='$results/zero3_gpt.dat'; image='$results/zero3_gpt.png'" "$root/examples/zero3_gpt/loss.gnuplot"
echo
echo "results: $results/zero3_gpt.json, $results/zero3_gpt.png"
