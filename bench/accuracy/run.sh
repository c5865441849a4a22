#!/usr/bin/env bash
# Measures the accuracy of formats: on generated numbers, on weights and gradients of a training, in sums over ranks, and with
# error feedback. Builds first, and installs missing packages (Debian and Ubuntu), or names them where it may not. The training
# depends on the machine's licence texts, and by rounding on its OpenBLAS; other results depend on no machine.
#
#   bench/accuracy/run.sh [--build-dir DIR] [--results DIR]
#
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where accuracy.md, .json and .png go (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/bench"
folder results "$root/bench/results"
parse_options "$@"

require_packages gnuplot-nox
build_programs "$build_dir" accuracy entropy zero3_gpt

echo "== training, for weights and gradients"
dumps=$(mktemp -d)
trap 'rm -rf "$dumps"' EXIT
# Weights in fp32, and those of the step before. Ranks fill the cores, so more BLAS threads would only disturb.
for step in 199 200; do
    mkdir "$dumps/$step"
    OPENBLAS_NUM_THREADS=1 "$build_dir/examples/zero3_gpt/zero3_gpt" "$root/bench/convergence/fp32.json" --ranks-per-node 2 \
        --steps 200 --dump "$dumps/$step" --dump-step "$step"
done

echo "== measuring"
"$build_dir/bench/accuracy" --gradients "$dumps"/200/*.gradients.fp32 --weights "$dumps"/200/*.weights.fp32 \
    --json "$results/accuracy.json"
"$build_dir/bench/entropy" --gradients "$dumps"/200/*.gradients.fp32 --weights "$dumps"/200/*.weights.fp32 \
    --before "$dumps"/199/*.weights.fp32 --json "$results/entropy.json"
python3 "$root/bench/accuracy/report.py" "$results"
echo
echo "results: $results/accuracy.md"
