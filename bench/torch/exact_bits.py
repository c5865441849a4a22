"""Bits that exact differences of bf16 weights take, in each step of whole trainings of a GPT of 5.7 million parameters:

    exact_bits.py [--steps N] [--seeds N] [--build-dir DIR] [--results DIR]

One process trains, with fp32 masters, and publishes every step's weights as exact differences from the last step's. A training that
has ended stays in RESULTS/exact_bits.json, and the next run of this command goes on from there. Writes exact_bits.md beside it.
Needs zeropp_torch and zstandard.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import statistics
import sys
import tempfile
import time

import torch
import zeropp_torch as zeropp
import zstandard

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "examples" / "torch"), str(ROOT / "bench")]
from results_json import write  # noqa: E402
from tasks import Text  # noqa: E402

LAYERS, WIDTH, BATCH = 7, 256, 8
# Optimizer, peak rate, and whether the training begins with weights that AdamW has trained at 1e-3, as fine-tuning does.
SETTINGS = [
    ("AdamW", 1e-3, False),
    ("AdamW", 1e-4, False),
    ("AdamW", 3e-6, True),
    ("Muon", 1e-4, False),
    ("AdamW", 1e-5, True),
    ("Muon", 1e-3, False),
    ("Muon", 3e-6, True),
]
KINDS = ("matrices", "embeddings", "norms and biases")


def kind_of(name: str, weight: torch.Tensor) -> str:
    if weight.dim() < 2:
        return "norms and biases"
    return "embeddings" if name.startswith(("embed", "position", "head")) else "matrices"


def optimizers(name: str, model: torch.nn.Module, rate: float) -> list[torch.optim.Optimizer]:
    """AdamW; or Muon for matrices, with updates as large as AdamW's, and AdamW for the rest."""
    settings = {"lr": rate, "weight_decay": 0.1}
    adamw = {"betas": (0.9, 0.95), **settings}
    if name == "AdamW":
        return [torch.optim.AdamW(model.parameters(), **adamw)]
    matrices = [p for n, p in model.named_parameters() if kind_of(n, p) == "matrices"]
    rest = [p for n, p in model.named_parameters() if kind_of(n, p) != "matrices"]
    return [torch.optim.Muon(matrices, adjust_lr_fn="match_rms_adamw", **settings), torch.optim.AdamW(rest, **adamw)]


def zstd_bytes(new: torch.Tensor, old: torch.Tensor) -> int:
    """Bytes of zstd on new XOR old, with upper and lower bytes apart."""
    differences = (new.view(torch.int16) ^ old.view(torch.int16)).view(torch.uint8).view(-1, 2)
    return len(zstandard.ZstdCompressor(level=3).compress(differences.t().contiguous().numpy().tobytes()))


def train(setting: tuple[str, float, bool], seed: int, steps: int, folder: pathlib.Path) -> dict:
    """Bits a weight and changed weights, over the training and by kind; also the range of single steps, and zstd's bits."""
    name, rate, fine_tuned = setting
    torch.manual_seed(seed)
    task = Text(None)
    model = task.model(LAYERS, WIDTH)
    trained = folder / f"trained_{seed}_{steps}.pt"
    if fine_tuned:
        if not trained.exists():
            train(SETTINGS[0], seed, steps, folder)
        model.load_state_dict(torch.load(trained))
    draws = torch.Generator().manual_seed(seed + 100 * fine_tuned)
    chosen = optimizers(name, model, rate)
    warm = max(1, steps // 10)

    def scale(step: int) -> float:
        if step < warm:
            return (step + 1) / warm
        return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))

    schedules = [torch.optim.lr_scheduler.LambdaLR(o, scale) for o in chosen]
    weights = {n: p.detach() for n, p in model.named_parameters()}
    by_kind = {kind: {n: p for n, p in weights.items() if kind_of(n, p) == kind} for kind in KINDS}
    sizes = {kind: sum(p.numel() for p in of_kind.values()) for kind, of_kind in by_kind.items()}
    total = sum(sizes.values())
    bits = dict.fromkeys(KINDS, 0.0)
    changed, zstd, of_step = 0.0, [], []
    begin = time.monotonic()
    published = tempfile.TemporaryDirectory(dir="/dev/shm")
    publishers = {kind: zeropp.Publisher(of_kind, f"{published.name}/{kind}") for kind, of_kind in by_kind.items()}
    for publisher in publishers.values():
        publisher.publish()
    for step in range(steps):
        kept = {n: p.to(torch.bfloat16) for n, p in weights.items()}
        inputs, targets = task.batch(BATCH, draws)
        loss = task.loss(model(inputs), targets)
        loss.backward()
        for o in chosen:
            o.step()
            o.zero_grad()
        for schedule in schedules:
            schedule.step()
        of_step.append(0.0)
        for kind, publisher in publishers.items():
            taken = 8 * publisher.publish().bytes
            bits[kind] += taken
            of_step[-1] += taken / total
        packed = 0
        for n, weight in weights.items():
            new = weight.to(torch.bfloat16)
            changed += int((new.view(torch.int16) != kept[n].view(torch.int16)).sum())
            if step % (steps // 10) == steps // 20:
                packed += zstd_bytes(new, kept[n])
        if packed:
            zstd.append(8 * packed / total)
    published.cleanup()
    if setting == SETTINGS[0]:
        torch.save(model.state_dict(), trained)
    return {
        "bits": sum(bits.values()) / steps / total,
        "by kind": {kind: bits[kind] / steps / sizes[kind] for kind in KINDS},
        "steps": [min(of_step), max(of_step)],
        "changed": changed / steps / total,
        "zstd": statistics.mean(zstd),
        "loss": float(loss.detach()),
        "parameters": total,
        "seconds": time.monotonic() - begin,
    }


def mean_and_error(values: list[float]) -> str:
    mean = statistics.mean(values)
    if len(values) == 1:
        return f"{mean:.3g}"
    return f"{mean:.3g} ± {statistics.stdev(values) / math.sqrt(len(values)):.1g}"


def page(results: dict, steps: int) -> str:
    runs = [run for of_setting in results.values() for run in of_setting.values()]
    lines = [
        "# Bits of exact differences, over whole trainings",
        "",
        f"`bench/torch/exact_bits.py --steps {steps}`. A byte-level GPT of {runs[0]['parameters'] / 1e6:.1f} million parameters, {steps} steps",
        f"of {BATCH} windows of {Text.CONTEXT} bytes, warm-up over a tenth of them, then a cosine to a tenth of the peak rate; decay .1, fp32 masters.",
        "Fine-tuning begins with weights that AdamW has trained at 1e-3. A `Publisher` writes each step's bf16 weights as differences from",
        "the last step's, and all bytes of its files count. Whole weights take 16 bits in bf16, 8.06 in int8:256:fp16. Means of seeds with",
        "their standard errors. zstd is level 3 on the XOR of new and old weights, bytes of one significance together, at ten steps.",
        "",
        "| training | peak rate | seeds | changed | **bits a weight** | fewer bytes than bf16 | of single steps | matrices | embeddings, head | norms, biases | zstd |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, rate, fine_tuned in SETTINGS:
        of_setting = list(results.get(key_of((name, rate, fine_tuned)), {}).values())
        if not of_setting:
            continue
        bits = statistics.mean(run["bits"] for run in of_setting)
        kinds = " | ".join(f"{statistics.mean(run['by kind'][kind] for run in of_setting):.3g}" for kind in KINDS)
        lines.append(
            f"| {name}{', fine-tuning' if fine_tuned else ''} | {rate:g} | {len(of_setting)}"
            f" | {100 * statistics.mean(run['changed'] for run in of_setting):.3g} %"
            f" | {mean_and_error([run['bits'] for run in of_setting])} | {16 / bits:.3g}x"
            f" | {min(run['steps'][0] for run in of_setting):.3g} to {max(run['steps'][1] for run in of_setting):.3g}"
            f" | {kinds} | {statistics.mean(run['zstd'] for run in of_setting):.3g} |"
        )
    return "\n".join(lines) + "\n"


def key_of(setting: tuple[str, float, bool]) -> str:
    name, rate, fine_tuned = setting
    return f"{name} {rate:g}{' fine-tuning' if fine_tuned else ''}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--build-dir", type=pathlib.Path, default=ROOT / "build" / "exact_bits")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "bench" / "results")
    args = parser.parse_args()
    args.build_dir.mkdir(parents=True, exist_ok=True)
    kept = args.results / "exact_bits.json"
    results = json.loads(kept.read_text()) if kept.exists() else {"steps": args.steps, "trainings": {}}
    if results["steps"] != args.steps:
        raise SystemExit(f"expected --steps {results['steps']}, as in {kept}, given {args.steps}")
    for seed in range(args.seeds):
        for setting in SETTINGS:
            of_setting = results["trainings"].setdefault(key_of(setting), {})
            if str(seed) in of_setting:
                continue
            of_setting[str(seed)] = train(setting, seed, args.steps, args.build_dir)
            write(kept, results)
            (args.results / "exact_bits.md").write_text(page(results["trainings"], args.steps))
            print(key_of(setting), seed, of_setting[str(seed)], flush=True)


if __name__ == "__main__":
    main()
