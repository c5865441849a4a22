"""Trains a byte-level GPT with FSDP2, or DDP, and zeropp's collectives:

    torchrun --nproc-per-node 4 train.py --ranks-per-node 2

Prints what is quantized, the loss, and what has crossed nodes. Run it with --preset none to compare.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import pathlib
import statistics
import time

import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, context: int):
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Embedding(context, width)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def read_text(path: str | None) -> torch.Tensor:
    """The bytes of a file, or of the system's licences: every machine has some text."""
    if path is None:
        files = sorted(f for f in pathlib.Path("/usr/share/common-licenses").iterdir() if not f.is_symlink())
    else:
        files = [pathlib.Path(path)]
    return torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8).long()


def loss_of(model: nn.Module, text: torch.Tensor, begins: torch.Tensor, context: int) -> torch.Tensor:
    windows = torch.stack([text[b : b + context + 1] for b in begins])
    return nn.functional.cross_entropy(model(windows[:, :-1]).flatten(0, 1).float(), windows[:, 1:].flatten())


def mean_of_ranks(loss: torch.Tensor) -> float:
    total = loss.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks-per-node", type=int, help="ranks that share a node (default: LOCAL_WORLD_SIZE)")
    parser.add_argument("--preset", default="4bit", choices=[*zeropp.PRESETS, "none"])
    parser.add_argument("--ddp", action="store_true", help="DDP in place of FSDP2")
    parser.add_argument("--no-secondary", action="store_true", help="gather weights from all ranks on the way back, too")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8, help="windows on each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--json", help="write times and losses to this file")
    parser.add_argument("--text", help="a file to train on (default: the system's licence texts)")
    return parser.parse_args()


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(minutes=5))
    rank, size = dist.get_rank(), dist.get_world_size()
    per_node = args.ranks_per_node or int(os.environ.get("LOCAL_WORLD_SIZE", size))

    torch.manual_seed(0)
    model: nn.Module = GPT(args.layers, args.width, heads=4, context=args.context)
    secondary = per_node if 1 < per_node < size and not args.no_secondary else None
    if args.ddp:
        model = DistributedDataParallel(model)
        if args.preset != "none":
            gradients = zeropp.PRESETS[args.preset]["gradients"]
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=per_node, gradients=gradients))
    else:
        mesh = init_device_mesh("cpu", (size,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for layer in model.layers:
            zeropp.fully_shard(layer, mesh=mesh, mp_policy=policy, secondary=secondary)
        zeropp.fully_shard(model, mesh=mesh, mp_policy=policy)
        if args.preset != "none":
            report = zeropp.apply(model, ranks_per_node=per_node, preset=args.preset)
            if rank == 0:
                print(report)

    text = read_text(args.text)
    held_out = len(text) * 19 // 20
    draws = torch.Generator().manual_seed(rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    seconds = []
    for step in range(1, args.steps + 1):
        start = time.monotonic()
        begins = torch.randint(held_out - args.context - 1, (args.batch,), generator=draws)
        loss = loss_of(model, text, begins, args.context)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.monotonic() - start)
        if step % max(1, args.steps // 10) == 0:
            mean = mean_of_ranks(loss)
            if rank == 0:
                print(f"step {step}: loss {mean:.4f}, {statistics.median(seconds) * 1000:.0f} ms a step")
    if rank == 0 and args.preset != "none" and not args.ddp:
        print(f"rank 0 has sent {zeropp.stats(model).across / args.steps / 1e6:.3f} MB across nodes in a step")
    with torch.no_grad():
        begins = torch.arange(held_out + rank * args.context, len(text) - args.context - 1, size * args.context)
        # As many windows on each rank: a forward pass is collective.
        begins = begins[: (len(text) - held_out) // (size * args.context) - 1]
        last = mean_of_ranks(loss_of(model, text, begins, args.context))
    if rank == 0:
        print(f"held-out loss {last:.4f}")
        if args.json:
            result = {"ms": statistics.median(seconds) * 1000, "held_out_loss": last, "steps": args.steps}
            pathlib.Path(args.json).write_text(json.dumps(result))
    # No rank closes its connections while another still uses them.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
