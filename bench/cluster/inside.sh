#!/usr/bin/env bash
# The part of cluster.sh inside the cluster's namespaces. Makes the network, runs the program, prints the bytes and packets
# of the interfaces, and writes them as JSON to file descriptor 3.
#
#   inside.sh NODES RANKS_PER_NODE BITS_PER_SECOND SITES SITE_BITS_PER_SECOND DELAY_US BESIDE SURVIVE PROGRAM [ARGUMENT...]
set -euo pipefail

# The process that made the namespaces. Its child is process 1 there, and ends after all others.
if [ $$ -ne 1 ]; then
    setpriv --pdeathsig KILL bash "${BASH_SOURCE[0]}" "$@" </dev/null &
    for signal in INT QUIT TERM HUP; do
        # shellcheck disable=SC2064  # the signal of this round
        trap "exec 2>/dev/null; kill -KILL $!; wait $! || true; trap - $signal; kill -$signal $$" $signal
    done
    status=0
    wait $! || status=$?
    exit $status
fi

mount -t proc proc /proc
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
nodes=$1 per_node=$2 bits_per_second=$3 sites=$4 site_bits_per_second=$5 delay_us=$6 beside=$7 survive=$8
shift 8
slowest=$((bits_per_second < site_bits_per_second ? bits_per_second : site_bits_per_second))

# bytes_in MICROSECONDS BITS_PER_SECOND: bytes that a link carries in that time.
bytes_in() { echo $(($2 * $1 / 8000000)); }

at_least() { echo $(($1 > $2 ? $1 : $2)); }

# Jumbo frames, as in clusters, because two cores cannot carry frames of 1500 bytes at 1 Gbit/s for all nodes.
mtu=9000
frame=$((mtu + 14))
# Frames move in batches (TSO), to save processor time for the ranks. A batch takes at most a quarter of a millisecond on the
# slowest link, so that small messages wait no longer for large ones. It is at least one frame, and at most 64 KB.
batch=$(at_least 1 $(($(bytes_in 250 $slowest) / frame)))
batch=$((batch < 7 ? batch : 7))
# Bytes that an idle link sends at once. Two batches tolerate a late timer, but messages that fit arrive too early.
burst=$((2 * batch * frame))
# No packet is dropped, as on clusters' fabrics, because queues hold all packets on their way. A connection's window, half its
# receive buffer, is the link's bytes in 8 ms and four delays. The 8 ms are for ranks that share cores and come late.
queue=1000000000
receive_buffer=$(at_least 131072 $((2 * $(bytes_in $((8000 + 4 * delay_us)) "$bits_per_second"))))

# needed WHAT COMMAND...: runs COMMAND, which needs a part of the kernel that not every machine has.
needed() {
    local what=$1
    shift
    "$@" || { echo "cluster.sh: this machine has no $what" >&2; exit 77; }
}

shape() { # BITS_PER_SECOND, and tc's arguments that say which interface
    local rate=$1
    shift
    needed "token bucket filter (sch_tbf)" \
        tc "$@" root handle 1: tbf rate "${rate}bit" burst "$burst" limit $queue
}

needed "right to make networks" ip link set lo up
# Names, shared memory and Open MPI's files are private to the run, and vanish with it.
mkdir -p /var/run/netns
mount -t tmpfs tmpfs /var/run/netns
mount -t tmpfs tmpfs /dev/shm
ln -s "$here/enter_node.sh" /dev/shm/enter_node  # Open MPI takes no path with a space

# IPv6 would send more packets.
no_ipv6='[ ! -e /proc/sys/net/ipv6 ] || echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6'
sh -c "$no_ipv6"

# Two switches: mpirun's traffic uses the second, so that the first carries only messages between ranks.
needed bridge ip link add data type bridge
needed bridge ip link add control type bridge
ip link set data up
ip link set control up
# The switch of each site, and its link to the first one. A single site has the first one.
for ((s = 0; sites != 1 && s != sites; ++s)); do
    ip link add site$s type bridge
    ip link add site$s.up mtu $mtu gso_max_segs "$batch" type veth peer name site$s.down mtu $mtu gso_max_segs "$batch"
    shape "$site_bits_per_second" qdisc add dev site$s.up
    shape "$site_bits_per_second" qdisc add dev site$s.down
    ip link set site$s.up master site$s up
    ip link set site$s.down master data up
    ip link set site$s up
done
ip addr add 198.19.0.254/24 dev control

for ((i = 0; i != nodes; ++i)); do
    node=node$i
    switch=$([ "$sites" -eq 1 ] && echo data || echo site$((i / (nodes / sites))))
    ip netns add $node
    # Reno is the only congestion control that every namespace may use. Without drops it does little.
    ip netns exec $node sh -e -c "$no_ipv6
        echo reno >/proc/sys/net/ipv4/tcp_congestion_control
        echo 4096 65536 $receive_buffer >/proc/sys/net/ipv4/tcp_rmem"
    needed veth ip link add $node mtu $mtu gso_max_segs "$batch" type veth \
        peer name eth0 netns $node mtu $mtu gso_max_segs "$batch"
    ip link add control$i type veth peer name control netns $node
    ip -n $node addr add 198.18.0.$((i + 1))/24 dev eth0
    ip -n $node addr add 198.19.0.$((i + 1))/24 dev control
    shape "$bits_per_second" -n $node qdisc add dev eth0
    shape "$bits_per_second" qdisc add dev $node
    if [ "$delay_us" -ne 0 ]; then
        needed "delay in its kernel (sch_netem)" \
            tc qdisc add dev $node parent 1:1 netem delay "${delay_us}us" limit 1000000
    fi
    ip link set $node master "$switch" up
    ip link set control$i master control up
    for interface in lo eth0 control; do ip -n $node link set $interface up; done
    echo "$node slots=$per_node" >>/dev/shm/hosts
done

# crossed TC_ARGUMENT...: bytes and packets that an interface has sent, and packets dropped. The shaper counts the frames of
# a batch; the interface would count one.
crossed() {
    tc "$@" | sed -n '/^ Sent /{s/^ Sent \([0-9]*\) bytes \([0-9]*\) pkt (dropped \([0-9]*\),.*/\1 \2 \3/p;q}'
}

counters() { # a line for each node, then for each of several sites: bytes, packets and drops sent, and the same received
    local i
    for ((i = 0; i != nodes; ++i)); do
        echo "$(crossed -n node$i -s qdisc show dev eth0) $(crossed -s qdisc show dev node$i)"
    done
    for ((i = 0; sites != 1 && i != sites; ++i)); do
        echo "$(crossed -s qdisc show dev site$i.up) $(crossed -s qdisc show dev site$i.down)"
    done
}

# Nodes share the cores, which Open MPI does not know. Bound ranks would share a core with their counterparts of all nodes,
# and waiting ranks must yield.
# shellcheck disable=SC2054  # commas of Open MPI
launch=(mpirun --allow-run-as-root --hostfile /dev/shm/hosts -np $((nodes * per_node)) --map-by slot --bind-to none
    --mca btl_tcp_if_include eth0 --mca pml ob1 --mca mpi_yield_when_idle 1)
# Options for reaching nodes and for shared memory, by version.
# shellcheck disable=SC2054
case $(mpirun --version) in
*"(Open MPI) 4."*)
    launch+=(--mca plm_rsh_agent /dev/shm/enter_node --mca plm_rsh_no_tree_spawn 1 --mca orte_tmpdir_base /dev/shm
        --mca oob_tcp_if_include control --mca btl tcp,vader,self --mca btl_vader_single_copy_mechanism none)
    ;;
*)
    launch+=(--prtemca plm_ssh_agent /dev/shm/enter_node --prtemca plm_ssh_no_tree_spawn 1
        --prtemca prte_tmpdir_base /dev/shm --prtemca prte_if_include control --mca btl tcp,sm,self
        --mca btl_sm_single_copy_mechanism none)
    [ "$survive" = no ] || launch+=(--with-ft ulfm)
    ;;
esac
# Open MPI writes a large message to a socket as one piece. Control messages that start the other direction then wait behind
# it, so a full-duplex link may be used one way at a time. Fragments avoid that.
export OMPI_MCA_btl_tcp_flags=${OMPI_MCA_btl_tcp_flags-send}

mapfile -t before < <(counters)
started=${EPOCHREALTIME/[.,]/}
status=0
if [ -n "$beside" ]; then
    bash -c "$beside" 3>&- &
    beside=$!
fi
"${launch[@]}" "$@" || status=$?
if [ -n "$beside" ]; then
    { kill -KILL "$beside" && wait "$beside"; } 2>/dev/null || true
fi
microseconds=$((${EPOCHREALTIME/[.,]/} - started))
mapfile -t after < <(counters)

seconds=$(printf '%d.%03d' $((microseconds / 1000000)) $((microseconds / 1000 % 1000)))
of_sites=$([ "$sites" -eq 1 ] || echo ", $sites sites with links of $site_bits_per_second bit/s")
printf '\n%d nodes x %d ranks, links of %s bit/s%s%s, %s s. What crossed the interface of each node:\n' \
    "$nodes" "$per_node" "$bits_per_second" "$([ "$delay_us" -eq 0 ] || echo " and $delay_us us")" "$of_sites" "$seconds"
printf '%-8s %15s %10s %15s %10s %9s\n' node 'bytes sent' packets 'bytes received' packets dropped
interfaces=()
for i in "${!after[@]}"; do
    name=$([ "$i" -lt "$nodes" ] && echo "node$i" || echo "site$((i - nodes))")
    read -r -a first <<<"${before[i]}"
    read -r -a last <<<"${after[i]}"
    for k in "${!last[@]}"; do last[k]=$((last[k] - first[k])); done
    row=("${last[0]}" "${last[1]}" "${last[3]}" "${last[4]}" $((last[2] + last[5])))
    printf '%-8s %15d %10d %15d %10d %9d\n' "$name" "${row[@]}"
    # shellcheck disable=SC2059  # a format of five numbers
    interfaces+=("$(printf "{\"node\": \"$name\", \"sent_bytes\": %d, \"sent_packets\": %d, \"received_bytes\": %d, \
\"received_packets\": %d, \"dropped_packets\": %d}" "${row[@]}")")
done
IFS=,
cat >&3 <<EOF
{"nodes": $nodes, "ranks_per_node": $per_node, "bits_per_second": $bits_per_second, "sites": $sites,
 "site_bits_per_second": $site_bits_per_second, "delay_us": $delay_us, "mtu": $mtu, "seconds": $seconds,
 "exit_status": $status, "interfaces": [${interfaces[*]}]}
EOF
exit "$status"
