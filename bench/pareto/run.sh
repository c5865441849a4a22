#!/usr/bin/env bash
# Trains zero3_gpt in fewer and fewer bits, and with local steps, and draws held-out loss against bytes. Builds first, and
# installs missing packages (Debian and Ubuntu), or names them where it may not. On two cores that also did other work, it built
# for two minutes, chose rates for 35 minutes, and trained for 25 minutes from each seed.
#
#   bench/pareto/run.sh [--seeds "2 3 4"] [--large] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."    seeds of the comparison (default: "2 3 4"); rates are chosen with seed 1
#   --large           trains a larger model too: three trainings and four from each seed, of two minutes each
#   --build-dir DIR   where to build (default: build/bench)
#   --runs DIR        configurations and results; a result there with equal configuration and arguments is used again
#                     (default: build/pareto)
#   --results DIR     where page and plot go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "2 3 4"
flag large
folder build_dir "$root/build/bench"
folder runs "$root/build/pareto"
folder results "$root/bench/results"
parse_options "$@"

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt
read -ra seeds <<<"$seeds"
larger=()
if [ "$large" = yes ]; then larger=(--large); fi
python3 "$root/bench/pareto/study.py" "$build_dir/examples/zero3_gpt/zero3_gpt" "$runs" "$results" --seeds "${seeds[@]}" "${larger[@]}"
echo
echo "results: $results"
