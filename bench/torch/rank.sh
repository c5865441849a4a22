#!/bin/sh
# A rank of examples/torch/train.py, as mpirun has started it on a node of bench/cluster: tells torch.distributed who it is.
#
#   rank.sh PYTHON PROGRAM [ARGUMENT...]
export RANK="$OMPI_COMM_WORLD_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE" LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK"
export LOCAL_WORLD_SIZE="$OMPI_COMM_WORLD_LOCAL_SIZE" MASTER_ADDR=198.18.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0
exec "$@"
