#!/usr/bin/env bash
# Trains zero3_gpt on 3 nodes x 2 ranks that are threads, without a failure, and with a rank that dies in the middle of
# the training. Its moments of AdamW are lost, or come from mirrors. Finds whether the failure changes the final loss. Builds
# first, and installs missing packages (Debian and Ubuntu), or names them where it may not. Five to ten minutes for each seed
# on two cores.
#
#   bench/recovery/run.sh [--seeds "1 2 3"] [--steps N] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."   which seeds (default: "1 2 3")
#   --steps N        steps; the rank dies after half of them (default: 3000)
#   --build-dir DIR  where to build (default: build/bench)
#   --runs DIR       where the runs write, in a folder for each number of steps; those that are finished there, with an equal
#                    configuration, are not run again (default: build/recovery)
#   --results DIR    where recovery.md and .png go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "1 2 3"
value steps 3000
folder build_dir "$root/build/bench"
folder runs "$root/build/recovery"
folder results "$root/bench/results"
parse_options "$@"
here=$root/bench/recovery
runs=$runs/$steps
mkdir -p "$runs"

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt

train() { # RUN CONFIG ARGUMENT...
    train_once "$runs/$1.$seed" "$here/$2.json" "${@:3}" --ranks 6 --ranks-per-node 2 --steps "$steps" --warmup 100 --layers 2 \
        --heads 4 --width 64 --context 64 --seed "$seed"
}
# Six ranks on two cores are late at times, which is no death.
dies=(--timeout 10 --kill "1@$((steps / 2))")
for seed in $seeds; do
    train whole hpz
    train lost hpz "${dies[@]}"
    train bf16 mirrors_bf16 "${dies[@]}"
    train fp32 mirrors_fp32 "${dies[@]}"
done
read -ra seeds <<<"$seeds"
python3 "$here/report.py" "$runs" "$results" "${seeds[@]}"
echo
echo "results: $results/recovery.md"
