#!/usr/bin/env bash
# The exit status of cluster.sh, and that every process of a cluster ends with it. Status 77: no cluster can be made here.
#
#   life.sh CLUSTER_SH SCRATCH_FOLDER
set -euo pipefail
cluster=$1 scratch=$2
mkdir -p "$scratch"
fifo=$scratch/alive
small=(run --nodes 2 --per-node 1 --rate 1gbit)

expect() { # status, of the command that follows
    local expected=$1 status=0
    shift
    "$@" || status=$?
    [ "$status" -eq "$expected" ] || { echo "expected status $expected, not $status, of: $*"; exit 1; }
}

expect 2 "$cluster"
expect 2 "$cluster" run --nodes 0 --per-node 1 --rate 1gbit -- true
expect 2 "$cluster" run --nodes 2 --per-node x --rate 1gbit -- true
expect 2 "$cluster" run --nodes 2 --per-node 1 --rate 1gb -- true
expect 2 "$cluster" run --nodes 2 --per-node 1 --rate 1gbit --delay 1 -- true
expect 2 "$cluster" "${small[@]}" --sites 3 --site-rate 1gbit -- true
expect 2 "$cluster" "${small[@]}" --sites 2 -- true
expect 2 "$cluster" "${small[@]}" --site-rate 1mbit -- true
expect 2 "$cluster" "${small[@]}" --delay 0.5us -- true
expect 2 "$cluster" run --nodes 2 --per-node 1 --rate 1gbit true
expect 2 "$cluster" "${small[@]}" -- no-such-program
expect 2 "$cluster" "${small[@]}" --no-such-option -- true
expect 2 "$cluster" "${small[@]}" --beside --survive -- true
expect 0 "$cluster" --help

if [ "$(id -u)" -ne 0 ]; then
    expect 2 "$cluster" "${small[@]}" -- true
    exit 77
fi
status=0
"$cluster" "${small[@]}" -- true || status=$?
[ $status -ne 77 ] || exit 77
expect 0 [ $status -eq 0 ]
expect 5 "$cluster" "${small[@]}" -- sh -c 'exit 5'
if [[ $(mpirun --version) == *"(Open MPI) 4."* ]]; then expect 2 "$cluster" "${small[@]}" --survive -- true; fi
# What runs beside sees the nodes, and ends with the program.
rm -f "$scratch/beside"
expect 5 "$cluster" "${small[@]}" --beside "ip -n node1 link show eth0 >'$scratch/beside'; sleep 600" -- \
    sh -c "until [ -s '$scratch/beside' ]; do sleep 0.05; done; exit 5"

# Both ranks hold the pipe open while they live: reading it to its end waits for the last of them.
# shellcheck disable=SC2016  # $1 is for the inner shell
program=(sh -c 'exec >"$1"; echo started; exec sleep 600' sh "$fifo")
for signal in TERM HUP KILL; do
    rm -f "$fifo"
    mkfifo "$fifo"
    "$cluster" "${small[@]}" -- "${program[@]}" &
    exec 4<>"$fifo"
    read -r <&4
    read -r <&4
    exec 5<"$fifo" 4<&-
    kill -"$signal" $!
    expect $((128 + $(kill -l $signal))) wait $!
    timeout 30 cat <&5 || { echo "after SIG$signal processes of the cluster are left"; exit 1; }
    exec 5<&-
done
