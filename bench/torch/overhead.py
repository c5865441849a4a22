"""Measures calls from Python beside bare collectives of torch.distributed, on ranks of one machine:

    torchrun --nproc-per-node 2 overhead.py

Prints a table of microseconds: medians over rounds with one call each. In calls without messages, callbacks return at once,
so only Python, ctypes, the library and the codec take time.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from zeropp_torch import communicator as transport

ROUNDS = 300


def median_microseconds(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            dist.barrier()
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(s) * 1e6 for name, s in seconds.items()}


def silenced(call: Callable[[], None]) -> Callable[[], None]:
    """`call` with callbacks that move nothing."""

    def alone() -> None:
        gather, exchange = transport.all_gather_single, dist.all_to_all_single
        transport.all_gather_single = dist.all_to_all_single = lambda *arguments, **keywords: None
        try:
            call()
        finally:
            transport.all_gather_single, dist.all_to_all_single = gather, exchange

    return alone


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    # Calls without messages have nothing to compare.
    ranks = zeropp.Communicator(compared_calls=0)
    if dist.get_rank() == 0:
        print("| collective | bytes | bare | ours, fp32 | more | ours, int8 | more | ours without messages |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for kilobytes in (4, 64, 1024):
        full = torch.zeros(kilobytes * 256)
        part = torch.ones(full.numel() // size)
        collectives = {
            "all-gather": (
                lambda: transport.all_gather_single(full, part),
                lambda wire: zeropp.all_gather(ranks, part, full, wire),
            ),
            "reduce-scatter": (
                lambda: transport.reduce_scatter_single(part, full),
                lambda wire: zeropp.reduce_scatter(ranks, full, part, wire),
            ),
            "all-reduce": (lambda: dist.all_reduce(full), lambda wire: zeropp.all_reduce(ranks, full, wire)),
        }
        for name, (bare, ours) in collectives.items():
            us = median_microseconds(
                {
                    "bare": bare,
                    "fp32": lambda: ours("fp32"),
                    "int8": lambda: ours("int8:256:bf16"),
                    "alone": silenced(lambda: ours("fp32")),
                }
            )
            if dist.get_rank() == 0:
                more = {wire: us[wire] - us["bare"] for wire in ("fp32", "int8")}
                print(
                    f"| {name} | {kilobytes} KB | {us['bare']:.0f} | {us['fp32']:.0f} | {more['fp32']:+.0f} | "
                    f"{us['int8']:.0f} | {more['int8']:+.0f} | {us['alone']:.0f} |"
                )
    # Ends as examples/torch/train.py does: destroy_process_group may wait for ever, as gloo's thread waits for Python.
    dist.barrier()
    time.sleep(0.5)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
