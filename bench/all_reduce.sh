#!/usr/bin/env bash
# Measures the all-reduce beside the native one and the bare exchange, the library's choice of chunks and algorithm beside
# fixed choices, and lists of tensors beside one tensor and beside a call for each: between threads, under mpirun, and across
# slow links between network namespaces (needs root). Builds first, and installs missing packages (Debian and Ubuntu), or
# names them where it may not.
#
#   bench/all_reduce.sh [--build-dir DIR] [--results DIR]
#
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where all_reduce.md goes (default: bench/results)
#
# Exit status: 0, 1 if a run failed, 2 if something is missing. Without a cluster, its sections say so.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
folder build_dir "$root/build/bench"
folder results "$root/bench/results"
parse_options "$@"

require_packages iproute2 util-linux
build_programs "$build_dir" quantized_all_reduce_perf chunks_perf tensor_list_perf

programs=$build_dir/bench
page=$build_dir/all_reduce.md
failed=0
section() { # TITLE COMMAND...: a section with what the command prints
    printf '\n== %s\n' "$1"
    printf '\n## %s\n\n```\n' "$1" >>"$page"
    shift
    local status=0
    "$@" 2>&1 | tee -a "$page" || status=${PIPESTATUS[0]}
    case $status in
    0) ;;
    77) echo "left out: no cluster can be made here" | tee -a "$page" ;;
    *)
        echo "FAILED with status $status" | tee -a "$page"
        failed=1
        ;;
    esac
    printf '```\n' >>"$page"
}
# shellcheck disable=SC2317  # called through section
on_cluster() { # NODES PER_NODE RATE COMMAND...
    local nodes=$1 per_node=$2 rate=$3
    shift 3
    [ "$(id -u)" -eq 0 ] || return 77
    "$root/bench/cluster/cluster.sh" run --nodes "$nodes" --per-node "$per_node" --rate "$rate" -- "$@"
}

{
    echo "# All-reduce, lists and chunks"
    echo
    echo "Made by \`bench/all_reduce.sh\` on $(nproc) cores ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1))."
    echo "Times are medians, all of one table from one run in turns. Whatever has more ranks than cores shares them."
} >"$page"

# One chunk, on the calling thread, because nothing overlaps within a node.
safe=(-q bf16)
wire=(-q "int8:256,int8:256+int4:128" --chunks auto)
for size in 256K 1M 16M 64M; do
    section "16 bits on the wire, $size, one node of 4 ranks under mpirun" \
        launch_ranks 4 "$programs/quantized_all_reduce_perf" -t mpi -b $size -e $size -n 21 --ranks-per-node 4 "${safe[@]}"
done
section "16 bits on the wire, 2x2 at 200 Mbit/s" \
    on_cluster 2 2 200mbit "$programs/quantized_all_reduce_perf" -t mpi -b 64M -e 64M -n 3 "${safe[@]}" --chunks auto
for nodes in 2 4; do
    section "all-reduce of 64 MB, ${nodes}x2 at 200 Mbit/s" \
        on_cluster $nodes 2 200mbit "$programs/quantized_all_reduce_perf" -t mpi -b 64M -e 64M -n 3 "${wire[@]}"
done

section "chunks on threads, 2x2" "$programs/chunks_perf" -b 64K -e 256M -f 4 -n 9 -w 2 --ranks-per-node 2
for rate in 200mbit 1gbit; do
    section "chunks on 2x2 at $rate" on_cluster 2 2 $rate "$programs/chunks_perf" -t mpi -b 64K -e 16M -f 4 -n 5
    section "chunks on 2x2 at $rate, large" \
        on_cluster 2 2 $rate "$programs/chunks_perf" -t mpi -b 64M -e 256M -f 4 -n 3
done

section "a list of 400 tensors on threads, 2x2" \
    "$programs/tensor_list_perf" -b 25600K -e 25600K -n 21 -w 2 --ranks-per-node 2
section "a list of 400 tensors on 2x2 at 1 Gbit/s" \
    on_cluster 2 2 1gbit "$programs/tensor_list_perf" -t mpi -b 25600K -e 25600K -n 9
# The page of an earlier run stays until here.
mv "$page" "$results/all_reduce.md"
echo
echo "results: $results/all_reduce.md"
exit $failed
