#!/usr/bin/env bash
# A node of bench/cluster as a node of Slurm, until the controller's node, node0, has run a command there:
#
#   slurm_node.sh FOLDER COMMAND...
#
# FOLDER is one that the nodes share; what Slurm says is in its *.log. The command's exit status is in FOLDER/status.
set -euo pipefail
folder=$1
shift
node=$(hostname)
export SLURM_CONF=$folder/slurm.conf

if [ "$node" = node0 ]; then
    # Of its own, with a key of its own: the machine's, if it has one, is left alone.
    munged --force --key-file="$folder/key" --socket="$folder/munge" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/seed"
    cat >"$SLURM_CONF" <<END
ClusterName=namespaces
SlurmctldHost=node0(198.19.0.1)
AuthInfo=socket=$folder/munge
SlurmUser=root
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.%n.log
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool.%n
TmpFS=/var/tmp
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
NodeName=node0 NodeAddr=198.19.0.1 CPUs=2
NodeName=node1 NodeAddr=198.19.0.2 CPUs=2
PartitionName=all Nodes=ALL Default=YES
END
    slurmctld
    touch "$folder/ready"
fi
until [ -e "$folder/ready" ]; do sleep 0.2; done
# Each node has a /var/tmp, where PMIx keeps its sockets, and the control groups of the machine, which the namespace hides.
mkdir -p "$folder/tmp.$node" "$folder/spool.$node"
nsenter --target 1 --mount unshare --mount sh -c "mount --bind '$folder/tmp.$node' /var/tmp && exec slurmd -N $node"

if [ "$node" = node0 ]; then
    status=0
    until [ "$(sinfo --noheader --format=%T 2>/dev/null)" = idle ] || [ $SECONDS -gt 60 ]; do sleep 0.2; done
    if [ $SECONDS -le 60 ]; then
        "$@" || status=$?
    else
        echo "slurm_node.sh: the nodes are not idle after a minute:" >&2
        cat "$folder"/*.log >&2
        status=2
    fi
    echo $status >"$folder/status"
    scontrol shutdown
fi
until [ -e "$folder/status" ]; do sleep 0.2; done
