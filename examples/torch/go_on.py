"""A training that goes on when a rank dies: HSDP on three nodes of two ranks, each node a replica of the model.

    python go_on.py

Rank 2 is killed in the middle of the fifth step. The ranks of whole nodes form a new process group and build the model again
on it. They take their shards of weights and optimizer from the old one, since a shard depends on a rank's place in its node
alone. Nothing comes from a disk. Ranks are processes of this machine, which this script starts: torchrun would end them all.
A second failure ends the training.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
import zeropp_torch as zeropp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from tasks import Text

NODES, PER_NODE = 3, 2
TIMEOUT = datetime.timedelta(seconds=10)  # without word from a rank, until it counts as dead


def whole_nodes(store: dist.Store, rank: int) -> list[int]:
    """The living ranks of nodes without a dead one. All that call this get the same list, the first that is proposed. A rank
    that comes later is not in it."""
    store.set(f"living/{rank}", "")
    # A rank that waits for this one notices when the group's time is over.
    end = time.monotonic() + 1.5 * TIMEOUT.total_seconds()
    while time.monotonic() < end and not store.check(["whole"]):
        time.sleep(0.1)
    living = [r for r in range(NODES * PER_NODE) if store.check([f"living/{r}"])]
    nodes = [range(first, first + PER_NODE) for first in range(0, NODES * PER_NODE, PER_NODE)]
    whole = [r for node in nodes if all(r in living for r in node) for r in node]
    return json.loads(store.compare_set("whole", "", json.dumps(whole)))


def build(task: Text) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model on the ranks of the default group: a replica on each node, and 4 bits between them."""
    torch.manual_seed(0)
    model = task.model(layers=2, width=64)
    nodes = dist.get_world_size() // PER_NODE
    mesh = init_device_mesh("cpu", (nodes, PER_NODE), mesh_dim_names=("replicate", "shard"))
    for group in mesh.get_all_groups():  # whose own is half an hour
        group.set_timeout(TIMEOUT)
    for layer in model.layers:
        zeropp.fully_shard(layer, mesh=mesh)
    zeropp.fully_shard(model, mesh=mesh)
    zeropp.apply(model, ranks_per_node=PER_NODE, preset="4bit", replicas="4bit")
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def move(source: tuple[nn.Module, torch.optim.Optimizer], target: tuple[nn.Module, torch.optim.Optimizer]) -> None:
    """Copies this rank's shards of weights and of the optimizer's state to a model on another mesh of nodes as large."""
    for old, new in zip(source[0].parameters(), target[0].parameters()):
        with torch.no_grad():
            new.to_local().copy_(old.to_local())
        target[1].state[new] = {
            name: DTensor.from_local(
                value.to_local(), new.device_mesh, new.placements, run_check=False, shape=new.shape, stride=new.stride()
            ) if isinstance(value, DTensor) else value
            for name, value in source[1].state[old].items()
        }


def train(rank: int, port: int, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.TCPStore("localhost", port, timeout=TIMEOUT)  # of the process that started the ranks
    task = Text(None)
    draws = torch.Generator().manual_seed(rank)
    ranks = list(range(NODES * PER_NODE))
    # Ranks may start far apart.
    dist.init_process_group("gloo", store=dist.PrefixStore("first", store), rank=rank, world_size=len(ranks))
    dist.group.WORLD.set_timeout(TIMEOUT)
    model, optimizer = build(task)
    finished = 0
    began = time.monotonic()
    while finished != args.steps:
        try:
            inputs, targets = task.batch(8, draws)
            loss = task.loss(model(inputs), targets)
            if rank in args.lost and finished == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            # A rank that has the mean loss knows that all ranks have their gradients.
            mean = loss.detach() / len(ranks)
            dist.all_reduce(mean)
        except RuntimeError as error:  # of torch, and of zeropp
            print(f"rank {rank}: {error!r:.120}", flush=True)
            ranks = whole_nodes(store, rank)
            if not ranks:
                print(f"rank {rank}: no whole node is left to go on after step {finished}", flush=True)
                os._exit(1)
            if rank not in ranks:
                print(f"rank {rank}: a rank of this node is dead, or late", flush=True)
                os._exit(0)
            dist.destroy_process_group()
            dist.init_process_group(
                "gloo", store=dist.PrefixStore("second", store), rank=ranks.index(rank), world_size=len(ranks), timeout=TIMEOUT
            )
            for module in model.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()  # whichever was gathered meanwhile
            newest = torch.tensor(finished)
            dist.all_reduce(newest, dist.ReduceOp.MAX)
            if finished != newest:
                # Another rank has the mean loss, so the gradients here are whole.
                optimizer.step()
                finished += 1
            old = model, optimizer
            model, optimizer = build(task)
            move(old, (model, optimizer))
            continue
        optimizer.step()
        optimizer.zero_grad()
        finished += 1
        if rank == ranks[0]:
            seconds = time.monotonic() - began
            print(f"step {finished}: loss {float(mean):.4f}, {len(ranks)} ranks, {seconds:.1f} s", flush=True)
        began = time.monotonic()
    # No rank may close its connections while another uses them.
    store.set(f"finished/{rank}", "")
    store.wait([f"finished/{r}" for r in ranks])
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument(
        "--lost", type=int, nargs="*", default=[2], choices=range(NODES * PER_NODE),
        help="ranks that die in the fifth step (default: 2)",
    )
    args = parser.parse_args()
    if args.lost and args.steps < 5:
        parser.error("--lost needs five steps")
    if len(set(args.lost)) == NODES * PER_NODE:
        parser.error("--lost must leave a rank")
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    # Ranks begin with torch imported.
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.fsdp", "zeropp_torch"])
    processes = [context.Process(target=train, args=(rank, store.port, args)) for rank in range(NODES * PER_NODE)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    wrong = [r for r, process in enumerate(processes) if process.exitcode != (-signal.SIGKILL if r in args.lost else 0)]
    sys.exit(f"the training has not ended: ranks {wrong} have given up" if wrong else 0)


if __name__ == "__main__":
    main()
