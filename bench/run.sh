#!/usr/bin/env bash
# Measures everything on this machine: the codec, the collectives on threads and across clusters of network namespaces with
# slow links, and what they do for a training step. Builds first, and installs what is missing (Debian and Ubuntu), or
# says exactly what to install where it may not.
#
#   bench/run.sh [--quick] [--build-dir DIR] [--results DIR]
#
#   --quick          fewer sizes, links and steps: a few minutes in place of twenty
#   --build-dir DIR  where to build (default: build/bench)
#   --results DIR    where the results go (default: bench/results), in place of those of an earlier run
#
# Writes a JSON file for each run, README.md with all tables, and plots. The clusters need root; where they cannot be, they
# are left out with a note. Exit status: 0, 1 where a run failed or elements were wrong, 2 where something is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
build=$root/build/bench
results=$here/results
quick=no
command="bench/run.sh${*:+ $*}"
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=yes ;;
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
require_packages cmake ninja-build g++ openmpi-bin libopenmpi-dev libopenblas-dev nlohmann-json3-dev libcli11-dev \
    gnuplot-nox python3 iproute2 util-linux

echo "== building"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DZEROPP_BUILD_TESTS=OFF -DZEROPP_ENABLE_MPI=ON \
    -DCMAKE_REQUIRE_FIND_PACKAGE_nlohmann_json=ON -DCMAKE_REQUIRE_FIND_PACKAGE_CLI11=ON >/dev/null
cmake --build "$build" --target zeropp_bench zero3_gpt_mpi

mkdir -p "$results"
rm -f "$results"/{codec,local,threads_*,cluster_*}.*.json \
    "$results"/{codec,all_gather,reduce_scatter,secondary,zero3_gpt}.{dat,png}
programs=$build/bench
gpt=$build/examples/zero3_gpt/zero3_gpt_mpi
configs=()
for name in zero3 qwz hpz qgz zeropp; do configs+=("$root/examples/zero3_gpt/configs/$name.json"); done
# Ranks fill the cores; more BLAS threads would only get in each other's way.
export OPENBLAS_NUM_THREADS=1

# What is measured. Sizes are of the whole tensor; fewer iterations where one takes seconds.
# shellcheck disable=SC2034,SC2054  # small and large are used by name; commas are the programs' own
if [ $quick = yes ]; then
    codec=(-b 64K -e 16M -f 256 -n 5 -d float,bfloat16)
    small=(-b 4K -e 64K -f 16 -n 50)
    large=(-b 8M -e 8M -n 3)
    cluster=(-b 8M -e 8M -n 3)
    chunked=(-b 8M -e 8M -n 3)
    clusters=(2x2)
    rates=(1gbit)
    training_rates=(50mbit)
    steps=10
else
    codec=(-b 64K -e 64M -f 32 -n 10 -d float,bfloat16,half)
    small=(-b 4K -e 64K -f 4 -n 200)
    large=(-b 1M -e 64M -f 8 -n 10)
    cluster=(-b 1M -e 64M -f 8 -n 5)
    chunked=(-b 64M -e 64M -n 5)
    clusters=(2x2 4x2)
    rates=(200mbit 1gbit)
    training_rates=(50mbit 200mbit)
    steps=40
fi
declare -A program=([all_gather]=quantized_all_gather_perf [secondary]=secondary_partition_gather_perf
    [reduce_scatter]=hierarchical_quantized_reduce_scatter_perf)
# shellcheck disable=SC2054
declare -A quantizers=([all_gather]=int8:256,int4:128 [secondary]=bf16,int8:256
    [reduce_scatter]=int8:256,int8:256+int4:128)

notes=()
failed=0
done_so_far=0
total=$((2 + 6 + ${#clusters[@]} * ${#rates[@]} * 5 + ${#training_rates[@]}))
step() { # TITLE COMMAND...: runs it, and goes on where it fails
    local title=$1 status=0
    shift
    done_so_far=$((done_so_far + 1))
    printf '\n== %d of %d, after %d s: %s\n' "$done_so_far" "$total" "$SECONDS" "$title"
    "$@" || status=$?
    if [ $status -eq 77 ]; then
        notes+=("left out: $title: namespaces are not permitted here")
    elif [ $status -ne 0 ]; then
        notes+=("FAILED with status $status: $title")
        failed=1
    fi
}

# shellcheck disable=SC2317  # called through step
on_cluster() { # NxR RATE NAME COMMAND...
    local nodes=$1 rate=$2 name=$3
    shift 3
    if [ "$(id -u)" -ne 0 ]; then
        echo "left out: a network needs root"
        return 77
    fi
    "$here/cluster/cluster.sh" run --nodes "${nodes%x*}" --per-node "${nodes#*x}" --rate "$rate" \
        --json "$results/cluster_${nodes}_$rate.$name.interface.json" -- "$@"
}

python3 - "$results/machine.json" "$command" <<'END'
import json, os, platform, re, subprocess, sys
first_line = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.splitlines()[0]
with open("/proc/cpuinfo") as file:
    processor = re.search(r"model name\s*: (.*)", file.read())
with open("/proc/meminfo") as file:
    memory = int(re.search(r"MemTotal:\s*(\d+)", file.read()).group(1))
machine = {"command": sys.argv[2], "processor": processor.group(1) if processor else platform.machine(),
           "cores": os.cpu_count(), "memory": f"{memory / 2**20:.1f} GiB", "kernel": platform.release(),
           "compiler": first_line("c++", "--version"), "MPI": first_line("mpirun", "--version"),
           "load at the start": f"{os.getloadavg()[0]:.2f}"}
with open(sys.argv[1], "w") as file:
    json.dump(machine, file, indent=1)
END

step "codec" "$programs/codec_perf" "${codec[@]}" -q int8:256,int4:128 -J "$results/codec.perf.json"

for what in all_gather reduce_scatter secondary; do
    for sizes in small large; do
        declare -n chosen=$sizes
        step "$what on threads, $sizes tensors" "$programs/${program[$what]}" -t threads -r 4 --ranks-per-node 2 \
            "${chosen[@]}" -q "${quantizers[$what]}" -J "$results/threads_2x2.${what}_$sizes.json"
    done
done

for nodes in "${clusters[@]}"; do
    for rate in "${rates[@]}"; do
        for what in all_gather reduce_scatter secondary; do
            step "$what on a cluster of $nodes at $rate" on_cluster "$nodes" "$rate" "$what" \
                "$programs/${program[$what]}" -t mpi "${cluster[@]}" -q "${quantizers[$what]}" \
                -J "$results/cluster_${nodes}_$rate.$what.json"
        done
        for what in all_gather reduce_scatter; do
            step "$what in chunks on a cluster of $nodes at $rate" on_cluster "$nodes" "$rate" "${what}_chunks" \
                "$programs/${program[$what]}" -t mpi "${chunked[@]}" --chunks 8 -q "${quantizers[$what]}" \
                -J "$results/cluster_${nodes}_$rate.${what}_chunks.json"
        done
    done
done

# The same ranks without slow links: what is left of a step when communication costs next to nothing.
launch=(mpirun -np 4 --oversubscribe --bind-to none --mca btl_vader_single_copy_mechanism none)
if [ "$(id -u)" -eq 0 ]; then launch+=(--allow-run-as-root); fi
step "zero3_gpt on this machine" env OMPI_MCA_plm_rsh_agent=sh "${launch[@]}" "$gpt" "${configs[0]}" \
    --ranks-per-node 2 --steps "$steps" --json "$results/local.zero3_gpt.json"
for rate in "${training_rates[@]}"; do
    step "zero3_gpt on a cluster of 2x2 at $rate" on_cluster 2x2 "$rate" zero3_gpt "$gpt" "${configs[@]}" \
        --steps "$steps" --json "$results/cluster_2x2_$rate.zero3_gpt.json"
done

echo
echo "== tables and plots"
python3 "$here/report.py" "$results"
printf '%s\n' ${notes[@]+"${notes[@]}"}
echo "results: $results/README.md (after $SECONDS s)"
exit $failed
