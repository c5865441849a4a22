#!/usr/bin/env bash
# Trains zero3_gpt in fewer and fewer bits, and with local steps, and draws held-out loss against bytes. Builds first, and
# installs missing packages (Debian and Ubuntu), or names them where it may not. On two cores that also did other work, it built
# for two minutes, chose rates for 35 minutes, and trained for 25 minutes from each seed.
#
#   bench/pareto/run.sh [--seeds "2 3 4"] [--large | --largest | --fine-tuning] [--build-dir DIR] [--runs DIR] [--results DIR]
#
#   --seeds "N..."    seeds of the comparison (default: "2 3 4"); rates are chosen with seed 1
#   --large           trains a larger model too: three trainings and four from each seed, of two minutes each
#   --largest         trains a model of 4 million parameters alone, on dictionaries that it installs: three trainings and nine
#                     from each seed, which should take less than 20 minutes each (computed, not measured), so seven hours for
#                     two seeds. The settings wanted most come first. It takes up results of pareto_largest.json, to which
#                     it adds each finished training, so that it can be stopped at any time
#   --fine-tuning     fine-tunes the larger model alone: a training, three that choose a rate, and seven from each seed, of a minute
#                     each. It takes up results of fine_tuning.json, and adds each finished training
#   --build-dir DIR   where to build (default: build/bench)
#   --runs DIR        configurations and results; a result there with equal configuration and arguments is used again
#                     (default: build/pareto)
#   --results DIR     where page and plot go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value seeds "2 3 4"
flag large
flag largest
flag fine_tuning
folder build_dir "$root/build/bench"
folder runs "$root/build/pareto"
folder results "$root/bench/results"
parse_options "$@"
[[ $large$largest$fine_tuning != *yes*yes* ]] || options_wrong "expected one of --large, --largest and --fine-tuning, given several"

require_packages gnuplot-nox
build_programs "$build_dir" zero3_gpt
program=$build_dir/examples/zero3_gpt/zero3_gpt
read -ra seeds <<<"$seeds"
study=study
if [ "$largest" = yes ]; then study=largest packages=(dict-gcide dict-wn); fi
if [ "$fine_tuning" = yes ]; then study=fine_tuning packages=(dict-wn); fi
if [ "$study" != study ]; then
    require_packages "${packages[@]}"
    python3 "$root/bench/pareto/$study.py" "$program" "$runs/$study" "$results" --seeds "${seeds[@]}"
    exit
fi
larger=()
if [ "$large" = yes ]; then larger=(--large); fi
python3 "$root/bench/pareto/study.py" "$program" "$runs" "$results" --seeds "${seeds[@]}" "${larger[@]}"
echo
echo "results: $results"
