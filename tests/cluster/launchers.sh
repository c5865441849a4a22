#!/usr/bin/env bash
# Runs the commands of docs/clusters/mpirun.md and docs/clusters/slurm.md on a cluster of network namespaces, and holds them
# to what the pages say they print. Installs what is missing; needs root:
#
#   tests/cluster/launchers.sh [--build-dir DIR]
#
#   --build-dir DIR   where to build (default: build/launchers)
#
# Slurm's daemons, and munge, are the run's own, and end with it.
# Exit status: 0 passed, 1 a page is wrong, 2 something to run this is missing, 77 this machine permits no namespaces.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../../cmake/script.sh"
folder build_dir "$root/build/launchers"
parse_options "$@"

require_packages iproute2 util-linux slurmctld slurmd slurm-client munge
build_programs "$build_dir" example_03_all_gather_mpi zero3_gpt_mpi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/state"
ln -s "$build_dir" "$scratch/build"
ln -s "$root/examples" "$scratch/examples"
head -c 1024 /dev/urandom >"$scratch/key"
chmod 400 "$scratch/key"
cd "$scratch"

cluster=("$root/bench/cluster/cluster.sh" run --nodes 2 --per-node 1 --rate 1gbit)
# What a cluster's administrator sets once: how to reach nodes, and by which interface. Ranks share two cores here.
export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_mpi_yield_when_idle=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OPENBLAS_NUM_THREADS=1

echo "== docs/clusters/mpirun.md"
cat >beside.sh <<END
sleep 1
export OMPI_MCA_plm_rsh_agent=/dev/shm/enter_node OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_orte_tmpdir_base=/dev/shm \
    OMPI_MCA_oob_tcp_if_include=control
python3 '$root/tests/cluster/page.py' '$root/docs/clusters/mpirun.md'
echo \$? >'$scratch/mpirun.status'
touch /dev/shm/finished
END
"${cluster[@]}" --beside "bash '$scratch/beside.sh'" -- sh -c 'until [ -e /dev/shm/finished ]; do sleep 0.2; done'

echo "== docs/clusters/slurm.md"
"${cluster[@]}" -- "$root/tests/cluster/slurm_node.sh" "$scratch" \
    python3 "$root/tests/cluster/page.py" "$root/docs/clusters/slurm.md"

[ "$(cat mpirun.status)$(cat status)" = 00 ] || exit 1
