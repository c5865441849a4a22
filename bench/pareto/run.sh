#!/usr/bin/env bash
# Trains zero3_gpt in fewer and fewer bits, and with local steps, and draws held-out loss against bytes. Builds first, and
# installs missing packages (Debian and Ubuntu), or names them where it may not. On two cores the choice of rates takes about
# twenty minutes, each seed twenty-five, and a larger model twenty.
#
#   bench/pareto/run.sh [--seeds "2 3 4"] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."    seeds of the comparison (default: "2 3 4"); rates are chosen with seed 1
#   --build-dir DIR   where to build (default: build/bench)
#   --runs DIR        where what the runs write goes; what is there, of the same configuration and arguments, is not run again
#                     (default: build/pareto)
#   --results DIR     where page and plot go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "2 3 4"
folder build_dir "$root/build/bench"
folder runs "$root/build/pareto"
folder results "$root/bench/results"
parse_options "$@"

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt
read -ra seeds <<<"$seeds"
python3 "$root/bench/pareto/study.py" "$build_dir/examples/zero3_gpt/zero3_gpt" "$runs" "$results" --seeds "${seeds[@]}"
echo
echo "results: $results"
