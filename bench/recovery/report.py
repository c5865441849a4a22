#!/usr/bin/env python3
"""The table and the plot of bench/recovery/run.sh.

report.py RUNS RESULTS SEED...

Reads RUN.N.json and RUN.N.dat of each run and these seeds N in RUNS, as zero3_gpt writes them, and writes recovery.md and recovery.png
(with gnuplot) in RESULTS.
"""

import importlib.util
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from report import table  # noqa: E402

# Statistics and plot of runs from several seeds.
specification = importlib.util.spec_from_file_location("convergence", HERE.parent / "convergence" / "report.py")
convergence = importlib.util.module_from_spec(specification)
specification.loader.exec_module(convergence)

NAMES = {"whole": "no failure", "lost": "moments lost", "bf16": "mirrored in bf16", "fp32": "mirrored in fp32"}


def results_of(runs, seed):
    """All runs of a seed, in the order of NAMES."""
    each = {name: json.loads((runs / f"{run}.{seed}.json").read_text()) for run, name in NAMES.items()}
    for name, result in each.items():
        # A rank that is late for too long is lost, too.
        left = [recovery["ranks"] for recovery in result["runs"][0].get("recoveries", [])]
        if left != ([] if name == "no failure" else [5]):
            sys.exit(f"{name}, seed {seed}: expected that one of six ranks was lost, or none without a failure; ranks left: {left}")
    return {**each["no failure"], "runs": [{**result["runs"][0], "name": name} for name, result in each.items()]}


def curves_of(runs, seed):
    """All curves of a seed, in the order of NAMES. Names have no spaces, which separate columns."""
    curves = {name.replace(" ", "_"): convergence.curve(runs / f"{run}.{seed}.dat") for run, name in NAMES.items()}
    return {name: losses for name, curve in curves.items() for losses in curve.values()}


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    folder, results, numbers = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), list(map(int, sys.argv[3:]))
    seeds = [results_of(folder, n) for n in numbers]
    runs = convergence.summary(seeds)
    steps = seeds[0]["steps"]
    window = min(100, steps)
    convergence.plot([curves_of(folder, n) for n in numbers], window, results / "recovery.png")

    rows = []
    for run in runs:
        error = run["difference_standard_error"]
        rows.append([
            run["name"], f"{run['mean']:.4f}", f"{min(run['held_out_loss']):.4f} .. {max(run['held_out_loss']):.4f}",
            f"{run['difference_percent']:+.2f} %" + ("" if error is None else f" ± {error:.2f}"),
            ", ".join(f"{d:+.2f}" for d in run["difference_percent_of_seeds"])
        ])
    heads = ["run", "held-out loss, mean", "min .. max", "difference to no failure", "of each seed"]
    text = f"""# Recovery

Made by `bench/recovery/run.sh --seeds "{' '.join(map(str, numbers))}" --steps {steps}`: zero3_gpt with hpZ, {seeds[0]['parameters']} parameters
on 3 nodes x 2 ranks (threads), {steps} steps, {len(numbers)} seed{"s" if len(numbers) > 1 else ""}. In all runs but the first, rank 1 dies in the middle of step {steps // 2}.
The other five divide the weights anew and go on, on batches of five ranks. The held-out loss is in nats per byte, over a tenth
of the text that no run trains on.

{table(heads, rows)}
*Difference*: of the held-out loss to that without a failure of the same seed, in percent; less is better. The mean over the seeds
with its standard error, then each seed's. *Mirrored in fp32* has the moments to the bit, as a checkpoint of the last finished
step would; so its difference is that of the smaller batch, of lost weights, which come back in bf16, and of chance. Mirrors are
sent after every step.

![training losses](recovery.png)

Training losses: means over the seeds, each over the last {window} steps; below, how far they are from those without a failure.
"""
    (results / "recovery.md").write_text(text)


if __name__ == "__main__":
    main()
