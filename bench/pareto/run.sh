#!/usr/bin/env bash
# Trains zero3_gpt in fewer and fewer bits, and with local steps, and draws held-out loss against bytes. Builds first, and
# installs missing packages (Debian and Ubuntu), or names them where it may not. From nothing, two cores build for three minutes,
# choose rates for 35, and train for 28 from each seed: two hours, and twelve with all options below.
#
#   bench/pareto/run.sh [--seeds "2 3 4"] [--large | --largest | --fine-tuning | --sizes] [--build-dir DIR] [--runs DIR]
#                       [--results DIR]
#
#   --seeds "N..."    seeds of the comparison (default: "2 3 4"); rates are chosen with seed 1
#   --large           trains a larger model too: six trainings and four from each seed, of two minutes each
#   --largest         trains a model of 4 million parameters alone, on dictionaries that it installs: nine trainings and
#                     nine from each seed, of 13 to 20 minutes each, and two of twice as many steps, so nine hours for two seeds. The
#                     settings wanted most come first, and it can be stopped at any time
#   --fine-tuning     fine-tunes the larger model alone: a training, three that choose a rate, and seven from each seed, of a minute
#                     each
#   --sizes           trains nothing: compares the sizes of models by the pages in the folder of results, in loss_by_size.md and
#                     its plot, which a call that trains makes at its end too
#   --build-dir DIR   where to build (default: build/bench)
#   --runs DIR        configurations and results (default: build/pareto). A result there, or in the study's JSON file in the folder of
#                     results, which gets each finished training, is used again if configuration, arguments and text are equal
#   --results DIR     where page and plot go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "2 3 4"
flag large
flag largest
flag fine_tuning
flag sizes
folder build_dir "$root/build/bench"
folder runs "$root/build/pareto"
folder results "$root/bench/results"
parse_options "$@"
[[ $large$largest$fine_tuning$sizes != *yes*yes* ]] ||
    options_wrong "expected one of --large, --largest, --fine-tuning and --sizes, given several"

require_packages gnuplot-nox python3
if [ "$sizes" = no ]; then
    build_programs "$build_dir" zero3_gpt
    study=study more=()
    if [ "$large" = yes ]; then more=(--large); fi
    if [ "$largest" = yes ]; then study=largest runs=$runs/largest; require_packages dict-gcide dict-wn; fi
    if [ "$fine_tuning" = yes ]; then study=fine_tuning runs=$runs/fine_tuning; require_packages dict-wn; fi
    read -ra seeds <<<"$seeds"
    python3 "$root/bench/pareto/$study.py" "$build_dir/examples/zero3_gpt/zero3_gpt" "$runs" "$results" --seeds "${seeds[@]}" "${more[@]}"
fi
python3 "$root/bench/pareto/sizes.py" "$results"
echo
echo "results: $results"
