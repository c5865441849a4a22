"""Measures syncs of bf16 weights between two processes of this machine, through files in memory: exact differences beside whole
weights. Prints bench/results/torch_rollout.md:

    python rollout.py [--gb 1] [--rounds 5] [--threads 2]
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import statistics
import tempfile
import time

import torch
import zeropp_torch as zeropp

TENSORS = 8
RANDOM, CLUSTERED, ALL, OTHER = "1 %, anywhere", "1 %, in runs of 8192", "all", "all, to any bits"


def times() -> torch.Tensor:
    """Seconds by the clock, and of this process on all processors."""
    return torch.tensor([time.perf_counter(), time.process_time()], dtype=torch.float64)


def memory(tensor: torch.Tensor) -> memoryview:
    return memoryview((ctypes.c_uint8 * (2 * tensor.numel())).from_address(tensor.data_ptr()))


def change(weights: dict[str, torch.Tensor], how: str, draws: torch.Generator) -> None:
    """Moves weights by one or two of bfloat16's values, or replaces all."""
    for tensor in weights.values():
        size = tensor.numel()
        if how == OTHER:
            tensor.view(torch.int16).random_(-(1 << 15), 1 << 15, generator=draws)
            continue
        if how == ALL:
            places: slice | torch.Tensor = slice(None)
            count = size
        else:
            places = torch.randint(size, (size // 100,), generator=draws)
            if how == CLUSTERED:
                runs = torch.randint(size // 8192, (size // 100 // 8192,), generator=draws)
                places = (runs[:, None] * 8192 + torch.arange(8192)).flatten()
            count = len(places)
        steps = torch.randint(4, (count,), generator=draws, dtype=torch.int16)
        tensor.view(torch.int16)[places] += steps - 2 + (steps >= 2).short()


def subscribe(folder: str, elements: int, threads: int, calls: multiprocessing.connection.Connection) -> None:
    torch.set_num_threads(threads)
    weights = {f"layers.{i}": torch.zeros(elements // TENSORS, dtype=torch.bfloat16) for i in range(TENSORS)}
    subscriber = zeropp.Subscriber(folder)
    while (call := calls.recv()) is not None:
        begin = times()
        if call == "read":
            with open(f"{folder}/bare", "rb", buffering=0) as file:
                for tensor in weights.values():
                    file.readinto(memory(tensor))
        else:
            if call == "begin":
                subscriber = zeropp.Subscriber(folder)
            subscriber.update(weights)
        calls.send((times() - begin, zeropp.weights_digest(weights) if call != "read" else None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=1, help="GB of weights")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    elements = int(args.gb * 5e8) // TENSORS * TENSORS
    draws = torch.Generator().manual_seed(0)
    weights = {f"layers.{i}": torch.empty(elements // TENSORS, dtype=torch.bfloat16) for i in range(TENSORS)}
    load = os.getloadavg()[0]
    rows: dict[str, list[list[float]]] = {}  # [bytes, publisher's times, subscriber's times]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        here, there = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=subscribe, args=(folder, elements, args.threads, there), daemon=True)
        process.start()

        def sync(name: str, publisher: zeropp.Publisher | None, call: str) -> None:
            begin = times()
            if publisher is None:
                with open(f"{folder}/new", "wb", buffering=0) as file:
                    sent = sum(file.write(memory(tensor)) for tensor in weights.values())
                os.replace(f"{folder}/new", f"{folder}/bare")
            else:
                sent = publisher.publish().bytes
            published = times() - begin
            here.send(call)
            updated, digest = here.recv()
            if publisher is not None and digest != zeropp.weights_digest(weights):
                raise SystemExit(f"{name}: other bits")
            rows.setdefault(name, []).append([sent, *published.tolist(), *updated.tolist()])

        for _ in range(args.rounds):
            for tensor in weights.values():
                tensor.copy_(0.02 * torch.randn(tensor.shape, generator=draws))
            sync("whole, plain files", None, "read")
            pathlib.Path(folder, "bare").unlink()
            # A new run begins with a whole version.
            publisher = zeropp.Publisher(weights, folder, whole_every=1000)
            sync("whole, with hashes", publisher, "begin")
            for how in (RANDOM, CLUSTERED, ALL, OTHER):
                change(weights, how, draws)
                sync(f"differences, changed: {how}", publisher, "update")
        here.send(None)
        process.join()
    cpu = next(line for line in open("/proc/cpuinfo") if line.startswith("model name")).split(":")[1].strip()
    command = f"python bench/torch/rollout.py --gb {args.gb:g} --rounds {args.rounds} --threads {args.threads}"
    print(f"""# Weights for rollouts: a sync between two processes

Made by `{command}` on {os.cpu_count()} cores ({cpu}); load {load:.1f} before the run.
{elements} weights in bf16 go from a `Publisher` to a `Subscriber` through files in `/dev/shm`. Between syncs, some weights
move by one or two of bf16's values. Times are medians of {args.rounds} rounds; the two processes take turns, with
{args.threads} threads each. Plain files are written and read by one system call for each of {TENSORS} tensors, and nothing is
checked. Processor time is of both processes together, and depends less on the machine's other work.

| sync | MB | of plain | publish, s | update, s | both, s | of plain | of whole | processor, s | of plain | of whole |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|""")

    def medians(of_name: list[list[float]]) -> tuple[float, ...]:
        """Bytes; seconds of publisher, of subscriber, of both, and on processors."""
        return tuple(map(statistics.median, zip(*((b, p, u, p + u, q + v) for b, p, q, u, v in of_name))))

    found = {name: medians(of_name) for name, of_name in rows.items()}
    plain, whole = list(found.values())[:2]
    for name, (sent, publish, update, both, processor) in found.items():
        print(
            f"| {name} | {sent / 1e6:.1f} | {sent / (2 * elements):.4f} | {publish:.3f} | {update:.3f} | {both:.3f} | "
            f"{both / plain[3]:.2f} | {both / whole[3]:.2f} | {processor:.3f} | {processor / plain[4]:.2f} | "
            f"{processor / whole[4]:.2f} |"
        )


if __name__ == "__main__":
    main()
