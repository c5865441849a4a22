#!/usr/bin/env bash
# Runs the library's MPI transport and collectives on up to 384 simulated ranks (SimGrid's SMPI), holds their bytes against
# the plan, the simulation against a cluster of network namespaces, and the speed-ups of ZeRO++ against the paper's. Builds
# first, and installs what is missing (Debian and Ubuntu), or says exactly what to install where it may not.
#
#   bench/scale/run.sh [--quick] [--build-dir DIR] [--results DIR]
#
#   --quick          up to 64 ranks: a minute in place of a quarter of an hour
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where scale.md, .json and .png go (default: bench/results)
#
# Takes 8 GiB of memory. The cluster needs root; where it cannot be, that comparison is left out with a note. Exit status:
# 0; 1 where bytes are not as planned or the simulation is not within 20 % of the cluster; 2 where something is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
build=$root/build/bench
results=$root/bench/results
quick=()
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=(--quick) ;;
    --build-dir | --results)
        [ $# -ge 2 ] || { echo "$1 needs a directory" >&2; exit 2; }
        mkdir -p "$2"
        if [ "$1" = --results ]; then results=$(cd "$2" && pwd); else build=$(cd "$2" && pwd); fi
        shift
        ;;
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift
done

source "$root/cmake/require_packages.sh"
require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev nlohmann-json3-dev libcli11-dev libsimgrid-dev \
    gnuplot-nox python3 iproute2 util-linux

echo "== building"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_ENABLE_MPI=ON \
    -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON >/dev/null
cmake --build "$build" --target scale_step scale_step_simulated zeropp-plan

mkdir -p "$results"
"$here/experiments.py" "${quick[@]}" "$build" "$results"
status=0
"$here/report.py" "$results" || status=$?
echo
echo "results: $results/scale.md"
exit $status
