#!/usr/bin/env bash
# Runs every fault on every transport, and writes the end of every rank: the table of docs/reliability.md. Builds first, and
# installs missing packages (Debian and Ubuntu), or names them where it may not. Needs root for the cluster.
#
#   bench/reliability/run.sh [--build-dir DIR] [--document FILE] [--rows NAME...]
#
#   --build-dir DIR   where to build (default: build/bench)
#   --document FILE   where the table goes, between its markers (default: docs/reliability.md)
#   --rows NAME...    only these rows, printed and written nowhere; the last option
#
# Exit status: 0 all rows are good, 1 one is not, 2 something is missing, 77 no cluster can be made here.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/bench"
value document "$root/docs/reliability.md"
flag rows
operands_anywhere=yes
parse_options "$@"
if [ "$rows" = no ] && [ ${#operands[@]} -gt 0 ]; then options_wrong "unknown option: ${operands[0]}"; fi

require_packages iproute2 util-linux
build_programs "$build_dir" reliability_faults
faults=("$root/bench/reliability/faults.py" --program "$build_dir/bench/reliability_faults")
if [ "$rows" = yes ]; then
    exec python3 "${faults[@]}" --rows "${operands[@]}"
fi
exec python3 "${faults[@]}" --document "$document"
