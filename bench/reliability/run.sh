#!/usr/bin/env bash
# Meets every fault on every transport, and writes what became of every rank: the table of docs/reliability.md. Builds first,
# and installs what is missing (Debian and Ubuntu), or says exactly what to install where it may not. Needs root for the
# cluster.
#
#   bench/reliability/run.sh [--build-dir DIR] [--results DIR] [--document FILE] [--rows NAME...]
#
#   --build-dir DIR   where to build (default: build/bench)
#   --results DIR     where reliability.json goes (default: bench/results)
#   --document FILE   where the table goes, between its markers (default: docs/reliability.md)
#   --rows NAME...    only these rows, printed and written nowhere; the last option
#
# Exit status: 0 all rows are good, 1 one is not, 2 something is missing, 77 no cluster can be made here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$(dirname "$here")")
build=$root/build/bench
results=$root/bench/results
document=$root/docs/reliability.md
rows=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    --rows)
        rows=("$@")
        break
        ;;
    --build-dir | --results | --document) [ $# -ge 2 ] || { echo "$1 needs a value" >&2; exit 2; } ;;&
    --build-dir) build=$2 ;;
    --results) results=$2 ;;
    --document) document=$2 ;;
    *) echo "unknown option: $1 (see --help)" >&2; exit 2 ;;
    esac
    shift 2
done

source "$here/build.sh"
build_program "$root" "$build" reliability_faults
if [ ${#rows[@]} -gt 0 ]; then
    exec python3 "$here/faults.py" --program "$build/bench/reliability_faults" "${rows[@]}"
fi
mkdir -p "$results"
exec python3 "$here/faults.py" --program "$build/bench/reliability_faults" --results "$results" --document "$document"
