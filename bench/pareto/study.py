#!/usr/bin/env python3
"""Trains zero3_gpt with formats of fewer and fewer bits, from several seeds, and draws held-out loss against bytes.

study.py PROGRAMS RUNS RESULTS --seeds N... [--only NAME...] [--steps N]

PROGRAMS has pareto and pareto_changes. Writes a configuration for each of VARIANTS into RUNS, runs what has no result there
yet, seed by seed, and makes pareto.md, pareto.json and pareto.png in RESULTS. The text is Python's own library, of which
3000 steps see each byte less than once: what is learnt of it is nothing that held-out text does not share.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from report import size_text, table  # noqa: E402

HERE = pathlib.Path(__file__).parent
BASELINE = "bf16"
INSIDE = "int8:256:bf16:h32"
INT4, INT3 = "int4:128:signed:bf16:h32", "int3:128:signed:bf16:h32"
INT2, INT2_WIDE = "int2:64:signed:bf16:h32", "int2:128:signed:bf16:h128"


def differences(weights, gradients, **options):
    """Weight differences into what nodes keep, and gradients across nodes; None: both hops in bf16."""
    return {"differences": True, "weights": weights, "gradients": gradients, **options}


# What travels, and what it is for.
VARIANTS = {
    BASELINE: ({}, "ZeRO-3, the baseline"),
    "fp32": ({"bf16": False}, "control: rounds nothing"),
    "zeropp": ({"weights": "int8:256:fp16", "hpz": True, "gradients": INT4}, "all of ZeRO++"),
    "4+4": (differences(INT4, INT4), "differences and gradients of 4 bits"),
    "3+3": (differences(INT3, INT3), "of 3 bits"),
    "2+2": (differences(INT2, INT2), "of 2 bits"),
    "2+2 wide": (differences(INT2_WIDE, INT2_WIDE), "of 2 bits, in larger blocks and rotations"),
    "2+2 feedback": (differences(INT2, INT2, feedback=True), "of 2 bits, error feedback on gradients"),
    "2+16": (differences(INT2, None), "2 bits in differences alone"),
    "16+2": (differences("bf16", INT2), "2 bits in gradients alone"),
    "lagging": (differences("lagging70", None), "control: replicas that lag as those of 2 bits do, nothing saved"),
    "noisy": (differences("noisy70", None), "control: noise of the size of 2 bits' in differences, nothing saved"),
}


# Peak learning rates of the trainings whose changed weights are counted, and their steps.
RATES = (3e-3, 1e-4, 3e-6)
STEPS_OF_CHANGES = 500


def configuration(variant, rate=3e-3):
    """A file for zero3_gpt."""
    zero, ours = {"stage": 3}, {}
    if "weights" in variant:
        zero["zero_quantized_weights"] = True
        ours["weight_quantizer"] = variant["weights"]
    if variant.get("gradients"):
        zero["zero_quantized_gradients"] = True
        ours |= {"gradient_quantizer_inside": INSIDE, "gradient_quantizer_across": variant["gradients"]}
    if variant.get("hpz") or variant.get("differences"):
        zero["zero_hpz_partition_size"] = 2
    if variant.get("differences"):
        ours["weight_differences"] = True
    if variant.get("feedback"):
        ours["gradient_error_feedback"] = True
    return {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": variant.get("bf16", True)},
        "optimizer": {"type": "AdamW", "params": {"lr": rate, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
        "zero_optimization": zero,
        "zeropp": ours,
    }


def library_text(folder):
    """The modules at the top of Python's library, one behind the other, as a file."""
    modules = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    file = folder / "text"
    file.write_bytes(b"".join(module.read_bytes() for module in modules))
    return file


def result_file(runs, name, seed):
    return runs / f"{name.replace(' ', '_')}.{seed}.json"


def arguments(text, steps, seed):
    return ["--text", text, "--ranks-per-node", "2", "--steps", str(steps), "--warmup", str(steps // 30), "--final-rate", "0",
            "--layers", "2", "--heads", "4", "--width", "64", "--context", "64", "--seed", str(seed)]


def run(command):
    # Ranks fill the cores; more BLAS threads would only get in each other's way.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})


def train(program, runs, name, seed, steps, text):
    config = runs / f"{name.replace(' ', '_')}.config"
    config.write_text(json.dumps(configuration(VARIANTS[name][0]), indent=2))
    result = result_file(runs, name, seed)
    part = result.with_suffix(".part")
    print(f"{name}, seed {seed}", flush=True)
    run([program, config, *arguments(text, steps, seed), "--json", part])
    part.rename(result)


def count_changes(program, runs, text):
    """How many weights a step changes in bfloat16, and what exact_update sends of them, for each of RATES."""
    result = runs / "changes.json"
    if not result.exists():
        configs = []
        for rate in RATES:
            configs.append(runs / f"{rate:g}.rate")
            configs[-1].write_text(json.dumps(configuration({}, rate)))
        print("changes", flush=True)
        part = result.with_suffix(".part")
        run([program, *configs, *arguments(text, STEPS_OF_CHANGES, 1), "--json", part])
        part.rename(result)
    return json.loads(result.read_text())


def summary(runs, names, seeds):
    """One entry for each variant: losses, and how far they are from the baseline's of the same seed."""
    files = {name: [json.loads(result_file(runs, name, seed).read_text()) for seed in seeds] for name in names}
    entries = []
    for name in names:
        of_seeds = [file["runs"][0] for file in files[name]]
        baseline = [file["runs"][0] for file in files[BASELINE]]

        def differences_of(key):
            return [100 * (run[key] / base[key] - 1) for run, base in zip(of_seeds, baseline)]

        bytes_across = [file["bytes_per_step_across"] for file in (of_seeds[0], baseline[0])]
        entries.append({
            "name": name,
            "wire": VARIANTS[name][0],
            "purpose": VARIANTS[name][1],
            "bytes_per_step_across": bytes_across[0],
            "reduction": bytes_across[1] / bytes_across[0],
            **{key: [run[key] for run in of_seeds]
               for key in ("training_loss", "held_out_loss", "held_out_loss_of_masters")},
            "difference_percent": differences_of("held_out_loss"),
            "difference_percent_of_masters": differences_of("held_out_loss_of_masters"),
            "difference_percent_of_training": differences_of("training_loss"),
        })
    return files[BASELINE][0], entries


def mean_text(values):
    error = statistics.stdev(values) / len(values)**0.5 if len(values) > 1 else float("nan")
    return f"{statistics.mean(values):+.2f} % ± {error:.2f}"


def report(results, seeds, header, entries, changes):
    rows = []
    for e in entries:
        wire = e["wire"]
        plain = "bf16" if wire.get("bf16", True) else "fp32"
        weights = wire.get("weights", plain) + (", of differences" if wire.get("differences") else "")
        gradients = (wire.get("gradients") or plain) + (", error feedback" if wire.get("feedback") else "")
        rows.append([e["name"], weights, gradients, e["purpose"], f"{e['reduction']:.2f}x",
                     size_text(e["bytes_per_step_across"]), f"{statistics.mean(e['held_out_loss']):.4f}",
                     mean_text(e["difference_percent"]), mean_text(e["difference_percent_of_masters"]),
                     mean_text(e["difference_percent_of_training"])])
    columns = ["run", "weights", "gradients across nodes", "what it is", "reduction", "across nodes per step", "held-out loss",
               "difference", "of masters", "of training loss"]
    base = entries[0]
    gap = [100 * (h / t - 1) for h, t in zip(base["held_out_loss"], base["training_loss"])]
    page = f"""# Held-out loss against bytes

Made by `bench/pareto/run.sh --seeds "{' '.join(map(str, seeds))}"`: zero3_gpt, {header['parameters']} parameters on {header['nodes']} nodes
x {header['ranks_per_node']} ranks (threads), {header['steps']} steps, rates that end at zero, and a text of which no byte is seen twice on average:
the baseline's held-out loss is {statistics.mean(gap):+.1f} % from its training loss (of the last steps), so that nothing which hinders
overfitting is rewarded. A seed fixes the initial weights and the order of the text, so runs of one seed differ in nothing but
the wire. Losses are in nats per byte.

{table(columns, rows)}

*Difference*: of the held-out loss to the baseline's of the same seed, mean over {len(seeds)} seeds and its standard error, with the
weights that ranks gather; *of masters*: the same with the exact weights that the optimizer has; *of training loss*: of the last 20
steps. What travels as differences goes into weights that each node keeps, divided over its ranks, in bf16, and nothing crosses
nodes on the way back; bytes are counted on the transport, whole weights of the first step and padding included.

![held-out loss against bytes](pareto.png)

## To the bit

`exact_update` moves the weights that have changed once they are rounded to bfloat16: from what the same model changes in a step of
{STEPS_OF_CHANGES}, of plain bf16 training from the seed's weights at three peak rates that end at zero (mean over the steps).

{table(["peak learning rate", "weights that a step changes", "fewer bytes across nodes than all of them"],
       [[c["name"], f"{c['changed_percent']:.1f} %", f"{c['reduction']:.2f}x"] for c in changes])}

It pays where rates are those of fine-tuning, and hardly where they are those of training from nothing.
"""
    (results / "pareto.md").write_text(page)
    (results / "pareto.json").write_text(json.dumps({"seeds": seeds, "runs": entries, "changes": changes}, indent=1) + "\n")
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        for e in entries:
            values = e["difference_percent"]
            error = statistics.stdev(values) / len(values)**0.5 if len(values) > 1 else 0
            data.write(f'"{e["name"]}" {e["reduction"]} {statistics.mean(values)} {error}\n')
        data.flush()
        subprocess.run(["gnuplot", "-e", f"data='{data.name}'; image='{results / 'pareto.png'}'", HERE / "front.gnuplot"],
                       check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--only", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    names = [BASELINE] + [name for name in args.only if name != BASELINE]
    text = library_text(args.runs)
    for seed in args.seeds:
        for name in names:
            if not result_file(args.runs, name, seed).exists():
                train(args.programs / "pareto", args.runs, name, seed, args.steps, text)
    changes = count_changes(args.programs / "pareto_changes", args.runs, text)
    report(args.results, args.seeds, *summary(args.runs, names, args.seeds), changes)


if __name__ == "__main__":
    main()
