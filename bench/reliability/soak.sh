#!/usr/bin/env bash
# Minutes of mixed collectives with random shapes on a cluster with passing faults, every result checked. Builds first, and
# installs what is missing (Debian and Ubuntu), or says exactly what to install where it may not. Needs root.
#
#   bench/reliability/soak.sh [--minutes M] [--seed N] [--build-dir DIR] [--results DIR]
#
#   --minutes M      how long (default: 30)
#   --seed N         of the calls and of the faults (default: 1)
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where soak.md and soak.json go (default: bench/results)
#
# Exit status: 0 nothing wrong and nothing grew, 1 otherwise, 2 something is missing, 77 no cluster can be made here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
build=$root/build/bench
results=$root/bench/results
minutes=30
seed=1
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --minutes | --seed | --build-dir | --results) [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; } ;;&
    --minutes) minutes=$2 ;;
    --seed) seed=$2 ;;
    --build-dir) build=$2 ;;
    --results) results=$2 ;;
    *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift 2
done

source "$here/build.sh"
build_program "$root" "$build" reliability_soak
mkdir -p "$results"
exec python3 "$here/soak.py" --program "$build/bench/reliability_soak" --minutes "$minutes" --seed "$seed" --results "$results"
