#!/bin/sh
# Runs a rank of examples/torch/train.py that mpirun starts on a node of bench/cluster: sets torch.distributed's variables.
#
#   rank.sh PYTHON PROGRAM [ARGUMENT...]
export RANK="$OMPI_COMM_WORLD_RANK" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE" LOCAL_RANK="$OMPI_COMM_WORLD_LOCAL_RANK"
export LOCAL_WORLD_SIZE="$OMPI_COMM_WORLD_LOCAL_SIZE" MASTER_ADDR=198.18.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0
exec "$@"
