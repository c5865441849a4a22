#!/usr/bin/env bash
# Measures the cost of checksums of messages, on 2 nodes x 2 ranks of this machine, as threads and under mpirun. Builds first,
# and installs missing packages (Debian and Ubuntu), or names them where it may not.
#
#   bench/checksums.sh [--build-dir DIR] [--results DIR]
#
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where checksums.md goes (default: bench/results)
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/bench"
folder results "$root/bench/results"
parse_options "$@"

build_programs "$build_dir" checksummed_perf

run=("$build_dir/bench/checksummed_perf" -b 64M -e 64M -n 7 --ranks-per-node 2)
{
    echo "# What checksums cost"
    echo
    echo "Made by \`bench/checksums.sh\` on $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1))."
    echo "Nothing is slower than memory here, which makes checksums as dear as they can be: each byte is read once more"
    echo "where it is sent, and once where it arrives. Over a link of 1 Gbit/s the same bytes take many times as long."
    echo "Where other work shares the machine (load $(cut -d ' ' -f 1 /proc/loadavg) at the start), processor time says more than time."
    printf '\n```\n'
    "${run[@]}"
    # shellcheck disable=SC2016  # quotes of Markdown
    printf '```\n\n```\n'
    launch_ranks 4 "${run[@]}"
    printf '```\n'
} >"$build_dir/checksums.md"
# The page of an earlier run stays until here.
mv "$build_dir/checksums.md" "$results/checksums.md"
cat "$results/checksums.md"
