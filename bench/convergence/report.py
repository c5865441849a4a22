#!/usr/bin/env python3
"""The table and the plot of bench/convergence/run.sh and gpu.sh.

Reads results and curves in RUNS, as zero3_gpt writes them, and writes convergence.md and convergence.png (with gnuplot) in
RESULTS. The first run of each file is the baseline.
"""

import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from report_tables import gnuplot_text, size_text, table  # noqa: E402

HERE = pathlib.Path(__file__).parent


def formats(file):
    """Formats of a configuration, in words: (weights, intra-node + inter-node gradients)."""
    config = json.loads(file.read_text())
    zero, ours = config["zero_optimization"], config.get("zeropp", {})
    plain = "bf16" if "bf16" in config else "fp32"
    weights = ours["weight_quantizer"] if zero.get("zero_quantized_weights") else plain
    gradients = plain
    if zero.get("zero_quantized_gradients"):
        gradients = f"{ours['gradient_quantizer_intra_node']} + {ours['gradient_quantizer_inter_node']}"
        if "embedding_gradient_quantizer_inter_node" in ours:
            gradients += f", of embeddings and head {ours['embedding_gradient_quantizer_inter_node']}"
    if ours.get("weight_differences"):
        weights += ", of differences"
    if ours.get("gradient_error_feedback"):
        gradients += ", error feedback"
    if "local_steps" in ours:
        gradients += f", between islands {ours['local_steps']['quantizer']} every {ours['local_steps']['every']} steps"
    return weights, gradients


def summary(seeds):
    """One entry for each run, with all its seeds."""
    runs = []
    for place, first in enumerate(seeds[0]["runs"]):
        of_seeds = [seed["runs"][place] for seed in seeds]
        assert all(run["name"] == first["name"] for run in of_seeds)
        losses = [run["held_out_loss"] for run in of_seeds]
        differences = [100 * (run["held_out_loss"] / seed["runs"][0]["held_out_loss"] - 1)
                       for run, seed in zip(of_seeds, seeds)]
        runs.append({
            "name": first["name"],
            "held_out_loss": losses,
            "mean": statistics.mean(losses),
            "standard_deviation": statistics.stdev(losses) if len(losses) > 1 else None,
            "difference_percent": statistics.mean(differences),
            "difference_percent_of_seeds": differences,
            "difference_standard_error":
                statistics.stdev(differences) / len(differences)**0.5 if len(differences) > 1 else None,
            "inter_node_bytes_per_step": first["inter_node_bytes_per_step"],
            "reduction_inter_node": seeds[0]["runs"][0]["inter_node_bytes_per_step"] / (first["inter_node_bytes_per_step"] or math.inf),
        })
    return runs


def smooth(column, window):
    """Mean of the last `window` steps at each step."""
    sums = [0.0]
    for loss in column:
        sums.append(sums[-1] + loss)
    return [(sums[i + 1] - sums[max(0, i + 1 - window)]) / min(i + 1, window) for i in range(len(column))]


def curve(file):
    """Losses of a file of zero3_gpt: {run: [of each step]}."""
    names, *rows = [line.split() for line in file.read_text().splitlines()]
    return {name: [float(row[c]) for row in rows] for c, name in enumerate(names) if c}


def plot(seeds, window, image):
    """Plots smoothed means of losses over all seeds, each {run: losses}, and their differences from the baseline."""
    names = list(seeds[0])
    curves = [[smooth(seed[name], window) for name in names] for seed in seeds]
    means = [[statistics.mean(values) for values in zip(*(curve[c] for curve in curves))] for c in range(len(names))]
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        data.write(" ".join(["step"] + names) + "\n")
        for step, losses in enumerate(zip(*means)):
            # Earlier means have less than a whole window.
            if step + 1 >= window:
                data.write(" ".join([str(step + 1)] + [f"{loss:.6f}" for loss in losses]) + "\n")
        data.flush()
        settings = f"data={gnuplot_text(data.name)}; image={gnuplot_text(image)}; last='{len(names) + 1}'; window='{window}'"
        subprocess.run(["gnuplot", "-e", settings, str(HERE / "curves.gnuplot")], check=True)


def verdict(run, baseline):
    if run is baseline:
        return "-"
    if run["difference_percent"] <= 0.25:
        return "at most 0.25 % above the baseline"
    if run["mean"] <= max(baseline["held_out_loss"]):
        return "inside the spread of the baseline's seeds"
    return "**above both**"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="RUNS", type=pathlib.Path)
    parser.add_argument("results", metavar="RESULTS", type=pathlib.Path)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seeds", metavar="N", nargs="+", type=int, help="seeds of run.sh, in seedN.json and seedN.dat")
    which.add_argument("--gpu", metavar="NAME", nargs="+", help="runs of gpu.sh, in NAME.json and NAME.dat: writes gpu_training.md")
    arguments = parser.parse_args()
    folder, results, name = arguments.folder, arguments.results, "gpu_training" if arguments.gpu else "convergence"
    if arguments.gpu:
        parts = [json.loads((folder / f"{run}.json").read_text()) for run in arguments.gpu]
        numbers, seeds = [parts[0]["seed"]], [{**parts[0], "runs": [part["runs"][0] for part in parts]}]
        curves = [{run: losses for part in arguments.gpu for run, losses in curve(folder / f"{part}.dat").items()}]
        shared = (folder / "device").read_text().strip()
        command, configs, place = "bench/convergence/gpu.sh", folder / "configs", f"threads that share one {shared}"
    else:
        numbers = arguments.seeds
        seeds = [json.loads((folder / f"seed{n}.json").read_text()) for n in numbers]
        curves = [curve(folder / f"seed{n}.dat") for n in numbers]
        command, configs, place = f"bench/convergence/run.sh --seeds \"{' '.join(map(str, numbers))}\"", HERE, "threads"
    runs = summary(seeds)
    facts = {key: seeds[0][key] for key in ("parameters", "nodes", "ranks_per_node", "steps")}
    window = min(100, max(1, facts["steps"] // 10))
    if shutil.which("gnuplot"):
        plot(curves, window, results / f"{name}.png")

    heads = ["run", "weights", "gradients, inside + across nodes", "held-out loss, mean", "min .. max", "standard deviation",
             "difference to the baseline", "of each seed", "verdict", "across nodes per step", "reduction"]
    rows = []
    for run in runs:
        deviation, error = run["standard_deviation"], run["difference_standard_error"]
        rows.append([
            run["name"], *formats(configs / f"{run['name']}.json"), f"{run['mean']:.4f}",
            f"{min(run['held_out_loss']):.4f} .. {max(run['held_out_loss']):.4f}",
            "-" if deviation is None else f"{deviation:.4f}", f"{run['difference_percent']:+.2f} %" + ("" if error is None else f" ± {error:.2f}"),
            ", ".join(f"{d:+.2f}" for d in run["difference_percent_of_seeds"]), verdict(run, runs[0]),
            size_text(run["inter_node_bytes_per_step"]), f"{run['reduction_inter_node']:.2f}x" if run["reduction_inter_node"] else "all"
        ])
    text = f"""# {"A training on one GPU" if arguments.gpu else "Convergence"}

Made by `{command}`: zero3_gpt, {facts['parameters']} parameters on {facts['nodes']} nodes x {facts['ranks_per_node']} ranks
({place}), {facts['steps']} steps, {len(numbers)} seed{"s" if len(numbers) > 1 else ""}. A seed fixes the initial weights and the order of the text, so runs of
one seed differ in nothing but the wire{", and local_steps in its outer optimizer" if arguments.gpu else ""}. The held-out loss is in nats per byte, over {"2048 windows of " if arguments.gpu else ""}a tenth of the text that no run trains on,
with the weights as the format gathers them.

{table(heads, rows)}
*Difference*: of the held-out loss to that of the baseline with the same seed, in percent; less is better. The mean over the
seeds with its standard error, then each seed's. Training magnifies any change, so that even a format that does no harm ends
above the baseline from one seed and below it from another; a mean that is not several standard errors from zero may be chance.
{"" if arguments.gpu else "*fp32* is a control: it rounds nothing. "}The bytes are counted on the transport, for all ranks together.

![training losses]({name}.png)

Training losses: means over the seeds, each over the last {window} steps; below, how far they are from the baseline's.
"""
    (results / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
