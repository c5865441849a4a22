#!/usr/bin/env bash
# Makes a cluster of N nodes with R ranks each on this one machine. Links between nodes are really slow.
#
#   bench/cluster/cluster.sh run --nodes N --per-node R --rate RATE [--sites S --site-rate RATE] [--delay TIME]
#       [--json FILE] [--beside COMMAND] [--survive] -- PROGRAM [ARGUMENT...]
#
#   --nodes N       1 to 200 nodes, named node0, node1, ...
#   --per-node R    ranks on each node; ranks 0 to R-1 are on node0, the next R on node1, and so on
#   --rate RATE     what each node's link carries in each direction at once, e.g. 200mbit or 1gbit
#   --sites S       the nodes stand in S sites of as many each, the first ones in site0 (default: 1)
#   --site-rate RATE  what the link of each site to all other sites carries in each direction at once: its nodes share it
#   --delay TIME    how long each packet is on its way besides, e.g. 0.1ms (default: none; needs netem in the kernel)
#   --json FILE     write the table below to FILE as well
#   --beside CMD    a command line for bash that runs beside PROGRAM and is killed when that ends. It may interfere: it sees
#                   the switches and their ports (node0, ...), nodes by `ip -n node0`, and the ranks' processes
#   --survive       the death of a rank ends no other: mpirun --with-ft ulfm, of Open MPI 5
#
# Runs PROGRAM under mpirun on all nodes, without input. Then prints the bytes and packets that each node's interface, and
# each site's link, sent and received meanwhile, as whole Ethernet frames. MPI sees real nodes: ranks share memory only within a node. mpirun's
# traffic uses a second network, neither shaped nor counted; MPI's control messages between ranks are counted. Environment
# and working directory are passed on; OMPI_MCA_... variables reach mpirun. /dev/shm is private to the run.
#
# Needs root, iproute2, util-linux and Open MPI 4 or 5. Nothing is left behind, however it ends. README.md has details.
# Exit status: the program's; 2 for wrong arguments or something missing; 77 if this machine does not permit namespaces or
# its kernel lacks a part of the network; 128 + the signal that ended it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"

give_up() { # status message
    echo "cluster.sh: $2" >&2
    exit "$1"
}

case ${1:-} in
run) shift ;;
-h | --help) ;;
*) options_wrong "the first argument must be run, not: ${1:-nothing}" ;;
esac
value nodes ''
value per_node ''
value rate ''
value sites 1
value site_rate ''
value delay 0us
value json /dev/null
value beside ''
flag survive
parse_options "$@"
set -- "${operands[@]}"
[ $# -ge 1 ] || options_wrong "after the options, -- and the program to run must follow"

[[ $nodes =~ ^([1-9][0-9]?|1[0-9][0-9]|200)$ ]] || options_wrong "--nodes must be 1 to 200, not: ${nodes:-nothing}"
[[ $per_node =~ ^[1-9][0-9]{0,2}$ ]] || options_wrong "--per-node must be 1 to 999, not: ${per_node:-nothing}"
if ! [[ $sites =~ ^[1-9][0-9]{0,2}$ ]] || [ $((nodes % sites)) -ne 0 ]; then
    options_wrong "--sites must divide the $nodes nodes, not: $sites"
fi
# Sets `bits_per_second` to that of a rate, which an option gave.
read_rate() { # OPTION RATE
    [[ $2 =~ ^([1-9][0-9]{0,5})(kbit|mbit|gbit)$ ]] ||
        options_wrong "$1 must be a whole number of kbit, mbit or gbit, e.g. 200mbit, not: ${2:-nothing}"
    local -A zeros=([kbit]=000 [mbit]=000000 [gbit]=000000000)
    bits_per_second=${BASH_REMATCH[1]}${zeros[${BASH_REMATCH[2]}]}
}
[ "$sites" -ne 1 ] || [ -z "$site_rate" ] || options_wrong "--site-rate needs several --sites"
read_rate --site-rate "${site_rate:-$([ "$sites" -ne 1 ] || echo "$rate")}"
site_bits_per_second=$bits_per_second
read_rate --rate "$rate"
[[ $delay =~ ^([0-9]{1,6})(\.([0-9]{1,6}))?(us|ms|s)$ ]] || options_wrong "--delay must be a time such as 0.1ms, not: $delay"
# Moves the decimal point by the places between the unit and microseconds.
fraction=${BASH_REMATCH[3]}000000
case ${BASH_REMATCH[4]} in
us) places=0 ;;
ms) places=3 ;;
s) places=6 ;;
esac
[[ ${fraction:places} != *[!0]* ]] || options_wrong "--delay must be whole microseconds, not: $delay"
delay_us=$((10#${BASH_REMATCH[1]}${fraction:0:places}))
command -v -- "$1" >/dev/null || options_wrong "no such program: $1"

[ "$(id -u)" -eq 0 ] || give_up 2 "needs root to make a network: run it with sudo"
for need in ip:iproute2 tc:iproute2 unshare:util-linux setpriv:util-linux mpirun:openmpi-bin; do
    command -v "${need%:*}" >/dev/null ||
        give_up 2 "${need%:*} is missing; on Debian and Ubuntu: apt-get install ${need#*:}"
done
version=$(mpirun --version 2>/dev/null | head -n 1)
[[ $version == *"(Open MPI) "[45].* ]] || give_up 2 "needs Open MPI 4 or 5; mpirun here is: ${version:-silent}"
if [ "$survive" = yes ] && [[ $version == *"(Open MPI) 4."* ]]; then
    give_up 2 "--survive needs Open MPI 5; mpirun here is: $version"
fi

# The whole cluster is in separate namespaces. When its first process ends, the kernel ends the others, and removes networks,
# mounts and names with the last one, also after kill -9.
isolated=(unshare --net --mount --pid --ipc --uts)
problem=$("${isolated[@]}" --fork true 2>&1) || give_up 77 "namespaces are not permitted here: $problem"

# Opened here, because a mount of the run may hide the file.
{ exec 3>"$json"; } 2>/dev/null || give_up 2 "cannot write $json"

exec "${isolated[@]}" bash "$root/bench/cluster/inside.sh" "$nodes" "$per_node" "$bits_per_second" "$sites" \
    "$site_bits_per_second" "$delay_us" "$beside" "$survive" "$@"
