#!/usr/bin/env bash
# Trains zero3_gpt with each configuration in this folder, from several seeds, on 2 nodes x 2 ranks that are threads, to find
# whether a format changes the final loss. Builds first, and installs missing packages (Debian and Ubuntu), or names them
# where it may not. About ten minutes for each seed on two cores.
#
#   bench/convergence/run.sh [--seeds "1 2 3 4"] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."   which seeds (default: "1 2 3 4")
#   --build-dir DIR  where to build (default: build/bench)
#   --runs DIR       where what the runs write goes; a seed that is finished there, with equal configurations, is not run
#                    again (default: build/convergence)
#   --results DIR    where convergence.md and .png go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "1 2 3 4"
folder build_dir "$root/build/bench"
folder runs "$root/build/convergence"
folder results "$root/bench/results"
parse_options "$@"
here=$root/bench/convergence

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt

configs=()
for name in bf16 int8 int4 int4_feedback int8_int4_hadamard weight_differences fp8 fp32; do
    configs+=("$here/$name.json")
done
for seed in $seeds; do
    train_once "$runs/seed$seed" "${configs[@]}" --ranks-per-node 2 --steps 3000 --warmup 100 --layers 2 --heads 4 --width 64 \
        --context 64 --seed "$seed"
done
read -ra seeds <<<"$seeds"
python3 "$here/report.py" "$runs" "$results" --seeds "${seeds[@]}"
echo
echo "results: $results/convergence.md"
