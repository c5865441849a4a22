#!/usr/bin/env bash
# Runs mixed collectives with random shapes on a cluster with passing faults, and checks every result. Builds first, and
# installs missing packages (Debian and Ubuntu), or names them where it may not. Needs root.
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

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value minutes 30
value seed 1
folder build_dir "$root/build/bench"
folder results "$root/bench/results"
parse_options "$@"

require_packages iproute2 util-linux
build_programs "$build_dir" reliability_soak
exec python3 "$root/bench/reliability/soak.py" --program "$build_dir/bench/reliability_soak" --minutes "$minutes" \
    --seed "$seed" --results "$results"
