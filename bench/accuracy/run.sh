#!/usr/bin/env bash
# Measures how accurate the formats are: on generated numbers and on the weights and gradients of a training, in sums over
# ranks, and with error feedback. Builds first, and installs what is missing (Debian and Ubuntu), or says exactly what to
# install where it may not. The results are of numbers alone: they do not depend on the machine.
#
#   bench/accuracy/run.sh [--build-dir DIR] [--results DIR]
#
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where accuracy.md, .json and .png go (default: bench/results)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
build=$root/build/bench
results=$root/bench/results
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --build-dir | --results) [ $# -ge 2 ] || { echo "$1 needs a directory" >&2; exit 2; } ;;&
    --build-dir) build=$2 ;;
    --results) results=$2 ;;
    *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift 2
done

source "$root/cmake/require_packages.sh"
require_packages cmake ninja-build g++ libopenblas-dev nlohmann-json3-dev libcli11-dev gnuplot-nox python3

echo "== building"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF \
    -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON >/dev/null
cmake --build "$build" --target accuracy zero3_gpt
mkdir -p "$results"

echo "== training, for weights and gradients"
dumps=$(mktemp -d)
trap 'rm -rf "$dumps"' EXIT
# Weights as they are: in fp32. Ranks fill the cores; more BLAS threads would only get in each other's way.
OPENBLAS_NUM_THREADS=1 "$build/examples/zero3_gpt/zero3_gpt" "$root/bench/convergence/fp32.json" --ranks-per-node 2 --steps 200 \
    --dump "$dumps" --dump-step 200

echo "== measuring"
"$build/bench/accuracy" --gradients "$dumps"/*.gradients.fp32 --weights "$dumps"/*.weights.fp32 \
    --json "$results/accuracy.json"
python3 "$here/report.py" "$results"
echo
echo "results: $results/accuracy.md"
