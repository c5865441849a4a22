#!/usr/bin/env python3
"""Trains a small GPT with AdamW and with Muon, its gradients reduced by torch and in 4 bits, with several seeds:

    torchrun --nproc-per-node 4 bench/torch/muon.py [--steps N] [--seeds N] [--results DIR]

Writes DIR/muon.json, a record a line, and DIR/muon.md, from the held-out loss after the last step (default: bench/results).
"""

from __future__ import annotations

import argparse
import math
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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "examples" / "torch")]
import results_json  # noqa: E402
import tasks  # noqa: E402

INT8, INT4 = "int8:256:bf16", "int4:128:signed:bf16"
#: Reductions in the tables' order: formats of both hops, and error feedback.
REDUCTIONS = {
    "fp32": (None, False), "8 + 4 bits": ((INT8, INT4), False), "4 + 4 bits": ((INT4, INT4), False),
    "4 + 4 bits, error feedback": ((INT4, INT4), True),
}
OPTIMIZERS = ["AdamW", "Muon"]


def optimizers(model: nn.Module, name: str) -> list[torch.optim.Optimizer]:
    """Muon is for matrices between embeddings and head; AdamW has the rest."""
    matrices = [p for n, p in model.named_parameters() if name == "Muon" and n.startswith("layers") and p.ndim == 2]
    others = [p for p in model.parameters() if not any(p is m for m in matrices)]
    made: list[torch.optim.Optimizer] = [torch.optim.AdamW(others, lr=3e-3)]
    return made + ([torch.optim.Muon(matrices, lr=0.02)] if matrices else [])


def trained(task: tasks.Text, optimizer: str, reduction: str, seed: int, steps: int) -> float:
    """The held-out loss, the mean of all ranks."""
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = task.model(2, 64)
    mesh = init_device_mesh("cpu", (size,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    gradients, feedback = REDUCTIONS[reduction]
    if gradients is not None:
        zeropp.apply(model, ranks_per_node=2, weights=None, gradients=gradients, error_feedback=feedback)
    steppers = optimizers(model, optimizer)
    draws = torch.Generator().manual_seed(1000 * seed + rank)
    for _ in range(steps):
        inputs, targets = task.batch(4, draws)
        task.loss(model(inputs), targets).backward()
        for stepper in steppers:
            stepper.step()
            stepper.zero_grad()
    with torch.no_grad():
        inputs, targets = task.held_out(rank, size)
        loss = task.loss(model(inputs), targets)
    dist.all_reduce(loss)
    return loss.item() / size


def table(records: list[dict]) -> str:
    lines = ["| optimizer | gradients, intra-node + inter-node | held-out loss | more than in fp32 |", "|---|---|---:|---:|"]
    for optimizer in OPTIMIZERS:
        of = {
            name: [r["loss"] for r in records if (r["optimizer"], r["gradients"]) == (optimizer, name)] for name in REDUCTIONS
        }
        for name, losses in of.items():
            more = [loss - plain for loss, plain in zip(losses, of["fp32"])]

            def spread(values: list[float], form: str) -> str:
                error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
                return f"{statistics.mean(values):{form}} ± {error:.4f}"

            lines.append(f"| {optimizer} | {name} | {spread(losses, '.4f')} | {'' if name == 'fp32' else spread(more, '+.4f')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    task = tasks.Text(None)
    records = []
    for seed in range(options.seeds):
        for optimizer in OPTIMIZERS:
            for name in REDUCTIONS:
                loss = trained(task, optimizer, name, seed, options.steps)
                record = {"optimizer": optimizer, "gradients": name, "seed": seed, "steps": options.steps}
                records.append({**record, "loss": round(loss, 6)})
                if dist.get_rank() == 0:
                    print(records[-1], flush=True)
    if dist.get_rank() == 0:
        results_json.write(options.results / "muon.json", records)
        (options.results / "muon.md").write_text(table(records))
    dist.barrier()
    # As train.py ends: gloo's threads are not waited for.
    sys.stdout.flush()
    time.sleep(0.5)
    os._exit(0)


if __name__ == "__main__":
    main()
