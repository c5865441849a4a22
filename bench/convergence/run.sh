#!/usr/bin/env bash
# Trains zero3_gpt with each configuration in this folder, from several seeds, on 2 nodes x 2 ranks that are threads, to find
# whether a format changes the final loss. Builds first, and installs missing packages (Debian and Ubuntu), or names them
# where it may not. About ten minutes for each seed on two cores.
#
#   bench/convergence/run.sh [--seeds "1 2 3 4"] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."   which seeds (default: "1 2 3 4")
#   --build-dir DIR  where to build (default: build/bench)
#   --runs DIR       where what the runs write goes; seeds that are finished there are not run again
#                    (default: build/convergence)
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
# Ranks fill the cores, so more BLAS threads would only disturb.
export OPENBLAS_NUM_THREADS=1
for seed in $seeds; do
    if [ -e "$runs/seed$seed.dat" ]; then
        echo "== seed $seed: finished before"
        continue
    fi
    printf '\n== seed %s, after %d s\n' "$seed" "$SECONDS"
    # The curve is written last.
    "$build_dir/examples/zero3_gpt/zero3_gpt" "${configs[@]}" --ranks-per-node 2 --steps 3000 --warmup 100 --layers 2 --heads 4 \
        --width 64 --context 64 --seed "$seed" --json "$runs/seed$seed.json" --curve "$runs/seed$seed.dat"
done
python3 "$here/report.py" "$runs" "$results"
echo
echo "results: $results/convergence.md"
