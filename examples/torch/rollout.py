"""Fine-tunes a small Hugging Face model on four ranks, while two rollouts write text with its newest weights:

    pip install transformers && python rollout.py

The ranks shard the model by FSDP2, with fp32 masters, and publish a version after each step of AdamW at 3e-6. The rollouts are
other processes, without a process group, and bring their bf16 weights up to date between two texts. All are processes of this
machine, and share a directory in memory. At the end, the trainer's and the rollouts' weights are compared by their hashes.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.util
import multiprocessing
import os
import queue
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from torch.distributed.device_mesh import init_device_mesh

from tasks import Text

RANKS, ROLLOUTS = 4, 2
PROMPT = b"The licence "


def make_model() -> torch.nn.Module:
    """A byte-level Llama of 3 million parameters, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=2, pad_token_id=0, **sizes))


def train(rank: int, folder: str, args: argparse.Namespace, reports: multiprocessing.Queue) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS, timeout=datetime.timedelta(minutes=5)
    )
    torch.manual_seed(0)
    model = make_model()
    mesh = init_device_mesh("cpu", (RANKS,))
    for layer in model.model.layers:
        zeropp.fully_shard(layer, mesh=mesh)
    zeropp.fully_shard(model, mesh=mesh)
    task, draws = Text(args.text), torch.Generator().manual_seed(rank)

    def step(optimizer: torch.optim.Optimizer) -> None:
        inputs, targets = task.batch(4, draws)
        task.loss(model(inputs).logits, targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(args.pretraining):
        step(optimizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    publisher = zeropp.Publisher(model, f"{folder}/weights")
    for _ in range(1 + args.steps):
        published = publisher.publish()
        sent = torch.tensor([published.bytes, published.whole_bytes, 1e3 * published.seconds])
        dist.all_reduce(sent)
        # Gathers all weights, for the comparison alone.
        whole = {name: p.full_tensor().detach().to(torch.bfloat16) for name, p in model.named_parameters()}
        if rank == 0:
            reports.put(("trainer", published.version, zeropp.weights_digest(whole)))
            print(
                f"version {published.version}: {sent[0] / 1e3:.1f} KB of {sent[1] / 1e3:.1f} ({sent[1] / sent[0]:.1f}x), "
                f"{sent[2] / RANKS:.1f} ms on each rank",
                flush=True,
            )
        step(optimizer)
    # Ends as train.py does: gloo's threads are not waited for.
    reports.close()
    reports.join_thread()
    dist.barrier()
    time.sleep(0.5)
    os._exit(0)


def roll_out(number: int, folder: str, args: argparse.Namespace, reports: multiprocessing.Queue) -> None:
    torch.set_num_threads(1)
    model = make_model().to(torch.bfloat16).eval()
    subscriber = zeropp.Subscriber(f"{folder}/weights")
    prompt = torch.tensor([list(PROMPT)])
    while (subscriber.version or 0) < 1 + args.steps:
        version = subscriber.update(model, (subscriber.version or 0) + 1, timeout=300)
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=16, do_sample=False)
        reports.put((f"rollout {number}", version, zeropp.weights_digest(model)))
        print(f"rollout {number}, version {version}, {subscriber.digest[:8]}: {bytes(text[0].tolist())!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--pretraining", type=int, default=20, help="steps at 1e-3 before the first version")
    parser.add_argument("--lr", type=float, default=3e-6)
    parser.add_argument("--text", help="a file to train on (default: the system's licence texts)")
    args = parser.parse_args()
    if importlib.util.find_spec("transformers") is None:
        parser.error("needs transformers: pip install transformers")
    # Processes begin with these modules imported.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.fsdp", "zeropp_torch", "transformers.models.llama.modeling_llama"])
    reports = context.Queue()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        runs = [(train, rank) for rank in range(RANKS)] + [(roll_out, number) for number in range(ROLLOUTS)]
        processes = [context.Process(target=run, args=(number, folder, args, reports)) for run, number in runs]
        for process in processes:
            process.start()
        held: dict[str, dict[int, str]] = {}
        running = True
        while running:
            running = any(process.is_alive() for process in processes) and not any(process.exitcode for process in processes)
            with contextlib.suppress(queue.Empty):
                while True:
                    name, version, digest = reports.get(timeout=0.5)
                    held.setdefault(name, {})[version] = digest
        failed = any(process.exitcode for process in processes)
        for process in processes:
            process.kill()
            process.join()
    if failed:
        sys.exit("a process has failed, and so all have ended")
    trainer = held.pop("trainer")
    for name, digests in sorted(held.items()):
        wrong = [version for version, digest in digests.items() if digest != trainer[version]]
        print(f"{name} has had the trainer's bits in {len(digests) - len(wrong)} of {len(digests)} versions that it used")
        if wrong:
            sys.exit(f"{name} had other bits in versions {wrong}")


if __name__ == "__main__":
    main()
