#!/usr/bin/env bash
# Trains zero3_gpt with formats of fewer and fewer bits, and draws held-out loss against bytes. Builds first, and installs
# missing packages (Debian and Ubuntu), or names them where it may not. On two cores about eleven minutes for each seed, and
# two and a half hours for trainings from fewer seeds, and from three seeds on a larger model.
#
#   bench/pareto/run.sh [--seeds "1 2 3 4 5 6 7 8"] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."   which seeds (default: "1 2 3 4 5 6 7 8")
#   --build-dir DIR  where to build (default: build/bench)
#   --runs DIR       where what the runs write goes; what is there, of the same configuration and arguments, is not run again
#                    (default: build/pareto)
#   --results DIR    where pareto.md and .png go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "1 2 3 4 5 6 7 8"
folder build_dir "$root/build/bench"
folder runs "$root/build/pareto"
folder results "$root/bench/results"
parse_options "$@"

require_packages gnuplot-nox python3-numpy
build_programs "$build_dir" pareto
python=python3
"$python" -c 'import numpy' 2>/dev/null || python=/usr/bin/python3  # Debian's, if the first in PATH has no NumPy
"$python" -c 'import numpy' || exit 2
# shellcheck disable=SC2086
"$python" "$root/bench/pareto/study.py" "$build_dir/bench" "$runs" "$results" --seeds $seeds
echo
echo "results: $results/pareto.md"
