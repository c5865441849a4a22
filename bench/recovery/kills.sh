#!/usr/bin/env bash
# Kills ranks of zero3_gpt in the middle of a step, again and again, and says how soon the others have finished a step: 3
# nodes of 2 ranks, 1,020,320 parameters. Ranks are threads. With Open MPI 5, which survives lost processes, and as root,
# ranks are also processes on a cluster of network namespaces, which SIGKILL ends. Builds first, and installs missing
# packages (Debian and Ubuntu), or names them where it may not.
#
#   bench/recovery/kills.sh [--times N] [--timeout SECONDS] [--rate RATE] [--build-dir DIR]
#
#   --times N          how often each is killed (default: 20)
#   --timeout SECONDS  when a rank that is silent counts as dead (default: 5)
#   --rate RATE        of the links between the cluster's nodes (default: 1gbit)
#   --build-dir DIR    where to build (default: build/bench)
#
# Ends with a table: seconds from the start of the step in which ranks die to the end of the next finished one. Exit
# status: 0 the others went on each time, 1 they did not.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
value times 20
value timeout 5
value rate 1gbit
folder build_dir "$root/build/bench"
parse_options "$@"
[[ $times =~ ^[1-9][0-9]*$ ]] || options_wrong "--times: expected a whole number, given $times"

build_programs "$build_dir" zero3_gpt zero3_gpt_mpi
programs=$build_dir/examples/zero3_gpt
cluster=("$root/bench/cluster/cluster.sh" run --nodes 3 --per-node 2 --rate "$rate" --survive --)
worlds=(threads)
if "${cluster[@]}" true; then
    worlds+=(cluster)
else
    echo "left out: the cluster, which cluster.sh cannot make here"
fi

# Ranks fill the cores, so more BLAS threads would only disturb.
export OPENBLAS_NUM_THREADS=1
train() { # WORLD ARGUMENT...
    local -a command=("$programs/zero3_gpt" --ranks 6)
    [ "$1" = threads ] || command=("${cluster[@]}" "$programs/zero3_gpt_mpi")
    timeout 300 "${command[@]}" "${@:2}" --ranks-per-node 2 --timeout "$timeout" --steps 5 --text "$root/LICENSE"
}

failed=0
table=()
for world in "${worlds[@]}"; do
    while read -r name config kills; do
        seconds=()
        for ((i = 1; i <= times; ++i)); do
            read -r -a options <<<"$kills"
            output=$(train "$world" "$root/examples/zero3_gpt/configs/$config.json" "${options[@]}" 2>&1) || true
            step=$(sed -n 's/.*finished a step \([0-9.]*\) s after the start of the one that failed.*/\1/p' <<<"$output")
            left=$(sed -n 's/.*: \([0-9]*\) of [0-9]* ranks go on from step 3$/\1/p' <<<"$output" | tail -n 1)
            # A rank that is late is lost, too. The table of results is the last output.
            if [ "$left" != $((6 - ${#options[@]} / 2)) ] || ! grep -q "^$config .* [0-9.]*x" <<<"$output" ||
                [ "$(wc -w <<<"$step")" -ne 1 ]; then
                printf '%s\n%s, %s, time %d: the others did not all go on\n' "$output" "$world" "$name" "$i"
                failed=1
                continue
            fi
            seconds+=("$step")
            echo "$world, $name, time $i: $step s"
        done
        table+=("$(printf '%s\n' "${seconds[@]}" | sort -g | awk -v world="$world" -v name="$name" -v times="$times" '
            NF { all[++n] = $1 }
            END { printf "%-8s %-28s %3d of %3d %9.2f %9.2f", world, name, n, times, all[int((n + 1) / 2)], all[n] }')")
    done <<'KILLS'
a_rank hpz --kill 1@3
a_node hpz --kill 2@3 --kill 3@3
two_ranks_of_different_nodes differences --kill 0@3 --kill 3@3
KILLS
done
printf '\n%-8s %-28s %10s %9s %9s\n' ranks killed 'went on' median greatest
printf '%s\n' "${table[@]}"
exit $failed
