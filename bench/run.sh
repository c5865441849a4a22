#!/usr/bin/env bash
# Measures on this machine the codec, the collectives on threads and on clusters of network namespaces with slow links, and
# training steps. Builds first, and installs missing packages (Debian and Ubuntu), or names them where it may not.
#
#   bench/run.sh [--quick] [--build-dir DIR] [--results DIR]
#
#   --quick          fewer sizes, links and steps: a few minutes in place of twenty
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where the results go (default: bench/results), in place of those of an earlier run
#
# Writes a JSON file for each run, README.md with all tables, and plots. The clusters need root; otherwise they are left out
# with a note. Exit status: 0, 1 if a run failed or elements were wrong, 2 if something is missing.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../cmake/script.sh"
flag quick
folder build_dir "$root/build/bench"
folder results "$root/bench/results"
parse_options "$@"
command="bench/run.sh${*:+ $*}"

require_packages gnuplot-nox iproute2 util-linux
build_programs "$build_dir" zeropp_bench zero3_gpt_mpi

# The results of an earlier run stay until all runs have ended.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
programs=$build_dir/bench
gpt=$build_dir/examples/zero3_gpt/zero3_gpt_mpi
configs=()
for name in zero3 qwz hpz qgz zeropp differences by_layer; do
    configs+=("$root/examples/zero3_gpt/configs/$name.json")
done

# Arguments of the runs. Sizes are of the whole tensor. Iterations are few where one takes seconds.
# shellcheck disable=SC2034,SC2054  # small and large are used by name; commas are the programs' own
if [ "$quick" = yes ]; then
    codec=(-b 16M -e 16M -n 5 -c 0)
    small=(-b 4K -e 64K -f 16 -n 50)
    large=(-b 8M -e 8M -n 3)
    cluster=(-b 8M -e 8M -n 3)
    chunked=(-b 8M -e 8M -n 3)
    clusters=(2x2)
    rates=(1gbit)
    sites=(-b 8M -e 8M -n 3)
    training_rates=(50mbit)
    steps=10
else
    codec=(-b 256M -e 256M -n 7 -c 0)
    small=(-b 4K -e 64K -f 4 -n 200)
    large=(-b 1M -e 64M -f 8 -n 10)
    cluster=(-b 1M -e 64M -f 8 -n 5)
    chunked=(-b 64M -e 64M -n 5)
    clusters=(2x2 4x2)
    rates=(200mbit 1gbit)
    sites=(-b 64M -e 64M -n 9)
    training_rates=(50mbit 200mbit)
    steps=40
fi
declare -A program=([all_gather]=quantized_all_gather_perf [secondary]=secondary_partition_gather_perf
    [reduce_scatter]=hierarchical_quantized_reduce_scatter_perf [all_to_all]=quantized_all_to_all_perf)
# shellcheck disable=SC2054
declare -A quantizers=([all_gather]=int8:256,int4:128 [secondary]=bf16,int8:256
    [reduce_scatter]=int8:256,int8:256+int4:128 [all_to_all]=int8:256,int4:128)

notes=()
failed=0
done_so_far=0
total=$((2 + 8 + ${#clusters[@]} * ${#rates[@]} * 6 + 1 + ${#training_rates[@]}))
step() { # TITLE COMMAND...: runs it, and goes on where it fails
    local title=$1 status=0
    shift
    done_so_far=$((done_so_far + 1))
    printf '\n== %d of %d, after %d s: %s\n' "$done_so_far" "$total" "$SECONDS" "$title"
    "$@" || status=$?
    if [ $status -eq 77 ]; then
        notes+=("left out: $title: no cluster can be made here")
    elif [ $status -ne 0 ]; then
        notes+=("FAILED with status $status: $title")
        failed=1
    fi
}

# shellcheck disable=SC2317  # called through step
on_cluster() { # NxR "RATE [OPTION...]" COMMAND...
    local nodes=$1
    local -a links
    read -r -a links <<<"$2"
    shift 2
    if [ "$(id -u)" -ne 0 ]; then
        echo "left out: a network needs root"
        return 77
    fi
    OPENBLAS_NUM_THREADS=1 "$root/bench/cluster/cluster.sh" run --nodes "${nodes%x*}" --per-node "${nodes#*x}" --rate "${links[@]}" \
        -- "$@"
}

PYTHONPATH=$root/bench python3 - "$made/machine.json" "$command" <<'END'
import os, pathlib, platform, re, subprocess, sys
import results_json
first_line = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
with open("/proc/cpuinfo") as file:
    processor = re.search(r"model name\s*: (.*)", file.read())
with open("/proc/meminfo") as file:
    memory = int(re.search(r"MemTotal:\s*(\d+)", file.read()).group(1))
machine = {"command": sys.argv[2], "processor": processor.group(1) if processor else platform.machine(),
           "cores": os.cpu_count(), "memory": f"{memory / 2**20:.1f} GiB", "kernel": platform.release(),
           "compiler": first_line("c++", "--version"), "MPI": first_line("mpirun", "--version"),
           "load at the start": f"{os.getloadavg()[0]:.2f}"}
results_json.write(pathlib.Path(sys.argv[1]), machine)
END

step "codec" "$programs/codec_perf" "${codec[@]}" --threads 2 -d float,bfloat16,half \
    -q int8:256,int4:128,int4:128:signed:bf16:h32,fp8_e4m3:128,mxfp4,exact -J "$made/codec.perf.json"

for what in all_gather reduce_scatter all_to_all secondary; do
    for sizes in small large; do
        declare -n chosen=$sizes
        step "$what on threads, $sizes tensors" "$programs/${program[$what]}" -t threads -r 4 --ranks-per-node 2 \
            "${chosen[@]}" -q "${quantizers[$what]}" -J "$made/threads_2x2.${what}_$sizes.json"
    done
done

for nodes in "${clusters[@]}"; do
    for rate in "${rates[@]}"; do
        for what in all_gather reduce_scatter all_to_all secondary; do
            step "$what on a cluster of $nodes at $rate" on_cluster "$nodes" "$rate" \
                "$programs/${program[$what]}" -t mpi "${cluster[@]}" -q "${quantizers[$what]}" \
                -J "$made/cluster_${nodes}_$rate.$what.json"
        done
        for what in all_gather reduce_scatter; do
            step "$what in chunks on a cluster of $nodes at $rate" on_cluster "$nodes" "$rate" \
                "$programs/${program[$what]}" -t mpi "${chunked[@]}" --chunks 8 -q "${quantizers[$what]}" \
                -J "$made/cluster_${nodes}_$rate.${what}_chunks.json"
        done
    done
done

step "reduce-scatter over three levels, on 2 sites of 2 nodes" on_cluster 4x2 "400mbit --sites 2 --site-rate 50mbit" \
    "$programs/levels_perf" -t mpi --sites 2 "${sites[@]}" --chunks 8 -J "$made/sites_2x2x2_400mbit_50mbit.levels.json"

# Without slow links, communication costs almost nothing: the rest of a step.
step "zero3_gpt on this machine" launch_ranks 4 "$gpt" "${configs[0]}" \
    --ranks-per-node 2 --steps "$steps" --json "$made/local.zero3_gpt.json"
for rate in "${training_rates[@]}"; do
    step "zero3_gpt on a cluster of 2x2 at $rate" on_cluster 2x2 "$rate" "$gpt" "${configs[@]}" \
        --steps "$steps" --json "$made/cluster_2x2_$rate.zero3_gpt.json"
done

echo
echo "== tables and plots"
printf '%s\n' ${notes[@]+"${notes[@]}"}
rm -f "$results"/{codec,local,threads_*,cluster_*,sites_*}.*.json \
    "$results"/{codec,all_gather,reduce_scatter,all_to_all,secondary,zero3_gpt}.png
mv "$made"/* "$results"
python3 "$root/bench/report.py" "$results"
echo "results: $results/README.md (after $SECONDS s)"
exit $failed
