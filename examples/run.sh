#!/usr/bin/env bash
# Trains a small GPT on real text, on 2 nodes x 2 ranks: four MPI processes on this machine that count as two nodes.
# Compares ZeRO-3, ZeRO++ and updates by weight differences. Three minutes on two cores, including the build.
#
#   examples/run.sh [--all] [--steps N] [--build-dir DIR] [--results DIR] [options of zero3_gpt, e.g. --text FILE]
#
#   --all             nine runs of 400 steps: also each part of ZeRO++ alone, precision by layer, local steps; 20 minutes
#   --steps N         steps of each run (default: 120, with --all 400)
#   --build-dir DIR   where to build (default: build/examples)
#   --results DIR     folder of the table, the losses and their plot (default: build/results)
#
# Installs missing packages (Debian and Ubuntu), or names them if it may not.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
flag all
value steps ''
folder build_dir "$root/build/examples"
folder results "$root/build/results"
operands_anywhere=yes
parse_options "$@"

names=(zero3 zeropp differences)
if [ "$all" = yes ]; then
    names=(zero3 qwz hpz qgz zeropp differences by_layer local_steps streaming)
    [ -n "$steps" ] || steps=400
fi
steps=${steps:-120}
configs=("${names[@]/#/$root/examples/zero3_gpt/configs/}")

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt_mpi

echo "== training ${#names[@]} times, $steps steps each: ${names[*]}"
launch_ranks 4 "$build_dir/examples/zero3_gpt/zero3_gpt_mpi" "${configs[@]/%/.json}" --ranks-per-node 2 --steps "$steps" \
    --json "$results/zero3_gpt.json" --curve "$results/zero3_gpt.dat" "${operands[@]}"

gnuplot -e "data='$results/zero3_gpt.dat'; image='$results/zero3_gpt.png'" "$root/examples/zero3_gpt/loss.gnuplot"
echo
echo "results: $results/zero3_gpt.json, $results/zero3_gpt.png"
