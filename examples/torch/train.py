"""Trains a byte-level GPT, or a vision transformer, with FSDP2, HSDP, DDP or DeepSpeed and zeropp's collectives:

    torchrun --nproc-per-node 4 train.py --ranks-per-node 2

Prints what is quantized, the loss, and what has crossed nodes. Run it with --preset none to compare; --exact --preset none
has the same losses to the bit.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

from tasks import Digits, Text


def mean_of_ranks(loss: torch.Tensor) -> float:
    total = loss.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-per-node", type=int, help="ranks that share a node (default: LOCAL_WORLD_SIZE)")
    parser.add_argument("--nodes-per-site", type=int, help="nodes that share a site (default: all)")
    parser.add_argument("--preset", default="4bit", choices=[*zeropp.PRESETS, "none"])
    parser.add_argument("--exact", action="store_true", help="exact differences of weights; only gradients have the preset's formats")
    parser.add_argument("--ddp", action="store_true", help="DDP in place of FSDP2")
    parser.add_argument("--hsdp", action="store_true", help="shards within a node, replicas on all nodes")
    parser.add_argument("--deepspeed", action="store_true", help="DeepSpeed's ZeRO-3, with hpZ")
    parser.add_argument("--no-secondary", action="store_true", help="gather weights from all ranks in the backward pass, too")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--batch", type=int, default=8, help="windows of 64 bytes, or images, on each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--json", help="write times and losses to this file")
    parser.add_argument("--digits", action="store_true", help="a vision transformer on scikit-learn's digits")
    parser.add_argument("--text", help="a file to train on (default: the system's licence texts)")
    args = parser.parse_args()
    if args.ddp + args.hsdp + args.deepspeed > 1:
        parser.error("expected one of --ddp, --hsdp and --deepspeed, given several")
    if args.exact and (args.ddp or args.deepspeed):
        parser.error("--exact: expected FSDP2 or --hsdp, given --ddp or --deepspeed")
    return args


def held_out_loss(model: nn.Module, task: Text | Digits) -> float:
    inputs, targets = task.held_out(dist.get_rank(), dist.get_world_size())
    with torch.no_grad():
        loss = mean_of_ranks(task.loss(model(inputs), targets))
    # FSDP frees hpZ's weights after backward, and none follows.
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return loss


def shard(model: nn.Module, per_node: int, args: argparse.Namespace) -> nn.Module:
    """Wraps the model in one FSDP2 unit for each layer, or in DDP, with the preset's formats; with HSDP, for replicas too."""
    size = dist.get_world_size()
    places = {"ranks_per_node": per_node, "nodes_per_site": args.nodes_per_site}
    if args.ddp:
        model = DistributedDataParallel(model)
        if args.preset != "none":
            gradients = zeropp.PRESETS[args.preset]["gradients"]
            model.register_comm_hook(None, zeropp.ddp_hook(**places, gradients=gradients))
        return model
    if args.hsdp:
        mesh = init_device_mesh("cpu", (size // per_node, per_node), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (size,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    # With exact differences, all nodes keep the weights without hpZ.
    secondary = per_node if 1 < per_node < size and not (args.no_secondary or args.hsdp or args.exact) else None
    for layer in model.layers:
        zeropp.fully_shard(layer, mesh=mesh, mp_policy=policy, secondary=secondary)
    zeropp.fully_shard(model, mesh=mesh, mp_policy=policy)
    preset = None if args.preset == "none" else args.preset
    if args.exact or preset:
        chosen = {"differences": "exact", "gradients": preset} if args.exact else {"preset": preset}
        report = zeropp.apply(model, **places, **chosen, replicas=preset if args.hsdp else None)
        if dist.get_rank() == 0:
            print(report)
    return model


def deepspeed_engine(model: nn.Module, per_node: int, args: argparse.Namespace) -> nn.Module:
    """DeepSpeed's engine, with the preset's formats."""
    import deepspeed
    import zeropp_torch.deepspeed  # before deepspeed.initialize  # noqa: F401

    quantized = args.preset != "none"
    zero = {
        "stage": 3, "stage3_param_persistence_threshold": 0,
        "zero_hpz_partition_size": 1 if args.no_secondary else per_node,
        "zero_quantized_weights": quantized, "zero_quantized_gradients": quantized,
    }
    config = {
        "train_micro_batch_size_per_gpu": args.batch, "bf16": {"enabled": True}, "zero_allow_untested_optimizer": True,
        "zero_optimization": zero,
    }
    if quantized:
        config["zeropp"] = {"preset": args.preset, "ranks_per_node": per_node, "nodes_per_site": args.nodes_per_site}
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=config)[0]


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    rank, size = dist.get_rank(), dist.get_world_size()
    per_node = args.ranks_per_node or int(os.environ.get("LOCAL_WORLD_SIZE", size))

    torch.manual_seed(0)
    task = Digits() if args.digits else Text(args.text)
    model = (deepspeed_engine if args.deepspeed else shard)(task.model(args.layers, args.width), per_node, args)
    draws = torch.Generator().manual_seed(rank)
    optimizer = None if args.deepspeed else torch.optim.AdamW(model.parameters(), lr=args.lr)
    evaluated = max(1, args.steps // 10)
    seconds: list[float] = []
    curve = []  # (seconds of training, held-out loss)
    counted = (args.exact or args.preset != "none") and not args.ddp
    stats = zeropp.deepspeed.stats if args.deepspeed else zeropp.stats
    sent = 0
    for step in range(1, args.steps + 1):
        before = stats(model).between_nodes if counted else 0
        start = time.monotonic()
        inputs, targets = task.batch(args.batch, draws)
        loss = task.loss(model(inputs), targets)
        if optimizer is None:
            model.backward(loss)
            model.step()
        else:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        seconds.append(time.monotonic() - start)
        sent += stats(model).between_nodes - before if counted else 0
        if step % evaluated == 0:
            mean = mean_of_ranks(loss)
            curve.append((sum(seconds), held_out_loss(model, task)))
            # A step after an evaluation need not send the weights again.
            milliseconds = 1000 * statistics.median(s for i, s in enumerate(seconds) if i % evaluated != 0 or evaluated == 1)
            if rank == 0:
                print(f"step {step}: loss {mean:.4f}, held out {curve[-1][1]:.4f}, {milliseconds:.0f} ms a step")
    if rank == 0 and counted:
        in_evaluation = (stats(model).between_nodes - sent) / len(curve)
        print(f"rank 0 has sent {sent / args.steps / 1e6:.3f} MB across nodes in a step, {in_evaluation / 1e6:.3f} MB in an evaluation")
    if rank == 0 and args.exact and (per_node if args.hsdp else size) > 1:
        print(zeropp.changes(model))
    if rank == 0 and args.json:
        result = {"ms": milliseconds, "curve": curve}
        pathlib.Path(args.json).write_text(json.dumps(result))
    # No rank may close its connections while another uses them. The process ends without destroy_process_group, which may wait for
    # ever: gloo's thread waits for Python.
    dist.barrier()
    time.sleep(0.5)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
