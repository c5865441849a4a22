#!/bin/sh
# mpirun's launch agent, in place of ssh: runs a command on a node of the cluster.
#
#   enter_node.sh NODE COMMAND...
node=$1
shift
exec ip netns exec "$node" unshare --uts sh -c "hostname '$node' && $*"
