#!/usr/bin/env bash
# Trains zero3_gpt with formats of fewer and fewer bits, and with local steps, and draws held-out loss against bytes. Builds
# first, and installs missing packages (Debian and Ubuntu), or names them where it may not. Formats take on two cores about
# eleven minutes for each seed, and two and a half hours for trainings from fewer seeds, and from three seeds on a larger
# model. Local steps take about twelve minutes for the choice of rates, as long for each seed, and five for the reasons of
# their loss: an estimate from trainings of 30 to 50 seconds beside other work. So the defaults take about five hours.
#
#   bench/pareto/run.sh [--study "formats local_steps"] [--seeds "1 2 3 4 5 6 7 8"] [--local-seeds "2 3 4 5"]
#                       [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --study "NAME..."       formats (pareto.md), local_steps (local_steps.md), or both (default)
#   --seeds "N..."          seeds of formats (default: "1 2 3 4 5 6 7 8")
#   --local-seeds "N..."    seeds of local_steps (default: "2 3 4 5"); rates are chosen with seed 1
#   --build-dir DIR         where to build (default: build/bench)
#   --runs DIR              where what the runs write goes; what is there, of the same configuration and arguments, is not run
#                           again (default: build/pareto)
#   --results DIR           where pages and plots go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value study "formats local_steps"
value seeds "1 2 3 4 5 6 7 8"
value local_seeds "2 3 4 5"
folder build_dir "$root/build/bench"
folder runs "$root/build/pareto"
folder results "$root/bench/results"
parse_options "$@"

require_packages gnuplot-nox python3-numpy
build_programs "$build_dir" pareto
python=python3
"$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3  # Debian's, if the first in PATH has no NumPy
"$python" -c 'import numpy' || exit 2
read -ra seeds <<<"$seeds"
read -ra local_seeds <<<"$local_seeds"
for name in $study; do
    case $name in
    formats) "$python" "$root/bench/pareto/study.py" "$build_dir/bench" "$runs" "$results" --seeds "${seeds[@]}" ;;
    local_steps)
        "$python" "$root/bench/pareto/local_steps.py" "$build_dir/bench" "$runs/local_steps" "$results" --seeds \
            "${local_seeds[@]}"
        ;;
    *) options_wrong "--study: expected formats or local_steps, given $name" ;;
    esac
done
echo
echo "results: $results"
