#!/usr/bin/env bash
# The main job on real text: trains a small GPT with ZeRO-3 on 2 nodes x 2 ranks (four MPI processes on this machine that
# count as two nodes), once with bf16 on the wire and once with each part of ZeRO++, and compares the runs.
#
#   examples/run.sh [--build-dir DIR] [--results DIR] [options of zero3_gpt, e.g. --steps 100 --text FILE]
#
# Installs what is missing (Debian and Ubuntu), or says exactly what to install where it may not.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
build=$root/build/examples
results=$root/build/results
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --build-dir) build=$2; shift 2 ;;
        --results) results=$2; shift 2 ;;
        -h | --help) sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *) options+=("$1"); shift ;;
    esac
done

source "$root/cmake/require_packages.sh"
require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev libopenblas-dev nlohmann-json3-dev libcli11-dev \
    gnuplot-nox

echo "== building"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_BUILD_BENCH=OFF
cmake --build "$build" --target zero3_gpt_mpi

echo "== training five times: ZeRO-3, qwZ, hpZ, qgZ, and all three"
mkdir -p "$results"
launch=(mpirun -np 4 --oversubscribe --bind-to none)
if [ "$(id -u)" -eq 0 ]; then launch+=(--allow-run-as-root); fi
# Containers often forbid the copy between processes that Open MPI tries first; shared memory serves as well.
launch+=(--mca btl_vader_single_copy_mechanism none)
# Open MPI looks for a remote shell even where all ranks are here, and a bare machine has no ssh.
export OMPI_MCA_plm_rsh_agent=sh
# Four ranks fill the cores; more BLAS threads would only get in each other's way.
export OPENBLAS_NUM_THREADS=1
configs=()
for name in zero3 qwz hpz qgz zeropp; do configs+=("$here/zero3_gpt/configs/$name.json"); done
"${launch[@]}" "$build/examples/zero3_gpt/zero3_gpt_mpi" "${configs[@]}" --ranks-per-node 2 \
    --json "$results/zero3_gpt.json" --curve "$results/zero3_gpt.dat" "${options[@]}"

gnuplot -e "data='$results/zero3_gpt.dat'; image='$results/zero3_gpt.png'" "$here/zero3_gpt/loss.gnuplot"
echo
echo "results: $results/zero3_gpt.json, $results/zero3_gpt.png"
