#!/usr/bin/env bash
# Measures what checksums of messages cost, on 2 nodes x 2 ranks of this machine, as threads and under mpirun. Builds first,
# and installs what is missing (Debian and Ubuntu), or says exactly what to install where it may not.
#
#   bench/checksums.sh [--build-dir DIR] [--results DIR]
#
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where checksums.md goes (default: bench/results)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
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
require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libxxhash-dev

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_ENABLE_MPI=ON \
    -DZEROPP_ENABLE_CHECKSUMMED=ON -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON \
    -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON >/dev/null
cmake --build "$build" --target checksummed_perf >/dev/null

run=("$build/bench/checksummed_perf" -b 64M -e 64M -n 7 --ranks-per-node 2)
mpi=(mpirun --allow-run-as-root --oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none -n 4)
mkdir -p "$results"
{
    echo "# What checksums cost"
    echo
    echo "Made by \`bench/checksums.sh\` on $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1))."
    echo "Nothing is slower than memory here, which makes checksums as dear as they can be: each byte is read once more"
    echo "where it is sent, and once where it arrives. Over a link of 1 Gbit/s the same bytes take many times as long."
    echo "Where other work shares the machine (load $(cut -d ' ' -f 1 /proc/loadavg) at the start), processor time says more than time."
    for launcher in "" "${mpi[*]}"; do
        printf '\n```\n'
        # shellcheck disable=SC2086  # words without spaces
        OMPI_MCA_plm_rsh_agent=sh $launcher "${run[@]}"
        printf '```\n'
    done
} >"$results/checksums.md"
cat "$results/checksums.md"
