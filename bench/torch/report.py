#!/usr/bin/env python3
"""The page and the plots of bench/torch/run.sh.

report.py keep FOLDER COMMAND LINKS TASK MODE PRESET RUN [INTERFACES]
                                         adds what a run of COMMAND and its links have written to FOLDER's torch.json
report.py take RESULTS FOLDER            moves FOLDER's runs to torch.json, in place of those over their links in their modes
report.py page RESULTS                   writes torch.md from torch.json, and a plot for every link

Plots are held-out losses against the seconds of training; they need gnuplot.
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import results_json  # noqa: E402
from report_tables import gnuplot_text, table  # noqa: E402

LINKS = {"200mbit": "200 Mbit/s", "1gbit": "1 Gbit/s", "loopback": "loopback"}
MODES = ("FSDP2", "HSDP", "DDP", "DeepSpeed")
TASKS = {"text": "GPT", "digits": "vision transformer"}


def runs_in(results):
    file = results / "torch.json"
    return json.loads(file.read_text()) if file.exists() else []


def take(results, folder):
    made = runs_in(pathlib.Path(folder))
    again = {(run["links"], run["mode"]) for run in made}
    others = [run for run in runs_in(results) if (run["links"], run["mode"]) not in again]
    results_json.write(results / "torch.json", others + made)
    (pathlib.Path(folder) / "torch.json").unlink()


def keep(folder, command, links, task, mode, preset, run, interfaces=None):
    cpu = next(line for line in open("/proc/cpuinfo") if line.startswith("model name")).split(":")[1].strip()
    entry = {"command": command, "machine": f"{os.cpu_count()} cores ({cpu})", "links": links, "task": task, "mode": mode, "preset": preset}
    entry |= json.loads(pathlib.Path(run).read_text())
    if interfaces:
        entry["sent_bytes"] = json.loads(pathlib.Path(interfaces).read_text())["interfaces"][0]["sent_bytes"]
    results_json.write(folder / "torch.json", [*runs_in(folder), entry])


def medians(runs):
    """Of the runs of the same settings, the one whose step took the median of their times."""
    same = {}
    for run in runs:
        same.setdefault(tuple(run[k] for k in ("links", "task", "mode", "preset")), []).append(run)
    return [sorted(group, key=lambda run: run["ms"])[len(group) // 2] for group in same.values()]


def run_beside(runs, run, preset):
    """The run with `preset` and the links, task and mode of `run`; None if there is none."""
    same = [r for r in runs if r["preset"] == preset and all(r[k] == run[k] for k in ("links", "task", "mode"))]
    return same[0] if same else None


def formats_of(run):
    own = "DeepSpeed's own" if run["mode"] == "DeepSpeed" else "torch's own"
    return own if run["preset"] == "none" else run["preset"]


def rows_of(runs):
    for run in runs:
        plain, sixteen = run_beside(runs, run, "none"), run_beside(runs, run, "16bit")
        sent, plain_sent = run.get("sent_bytes"), plain.get("sent_bytes")
        loss, plain_loss = run["curve"][-1][1], plain["curve"][-1][1]
        yield [
            LINKS[run["links"]], TASKS[run["task"]], run["mode"], formats_of(run),
            f"{run['ms']:.0f}", f"{sixteen['ms'] / run['ms']:.2f}x" if sixteen else "-",
            f"{plain['ms'] / run['ms']:.2f}x",
            "-" if sent is None else f"{sent / 1e6:.1f}", "-" if sent is None else f"{plain_sent / sent:.1f}x",
            f"{loss:.4f}", f"{100 * (loss / plain_loss - 1):+.2f} %",
        ]


def plot(runs, links, image):
    """Plots held-out losses of the GPT over `links`."""
    shown = [r for r in runs if r["links"] == links and r["task"] == "text"]
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        for run in shown:
            name = f"{run['mode']}, {formats_of(run)}"
            data.write(f'"{name}"\n' + "".join(f"{x} {y}\n" for x, y in run["curve"]) + "\n\n")
        data.flush()
        lines = ", ".join(
            f"{gnuplot_text(data.name)} index {i} with linespoints dashtype {1 + MODES.index(run['mode'])} title columnhead(1)"
            for i, run in enumerate(shown)
        )
        script = (
            f"set terminal pngcairo size 960,600; set output {gnuplot_text(image)}; set grid; set logscale x\n"
            f"set xlabel 'seconds of training over {LINKS[links]}'; set ylabel 'held-out loss, nats per byte'\nplot {lines}\n"
        )
        subprocess.run(["gnuplot"], input=script, text=True, check=True)


def origins(runs, what):
    """The commands or machines that made the runs, the one of most runs first."""
    return [origin for origin, _ in collections.Counter(run[what] for run in runs).most_common()]


def page(results):
    every = runs_in(results)
    runs = sorted(medians(every), key=lambda run: (list(LINKS).index(run["links"]), run["task"] != "text", MODES.index(run["mode"])))
    turns = len([r for r in every if r["links"] == "loopback"]) // max(1, len([r for r in runs if r["links"] == "loopback"]))
    heads = ["links", "model", "", "formats", "ms a step", "speed-up over 16bit", "over its own", "MB across nodes, sent by node 0", "fewer"]
    heads += ["held-out loss", "difference"]
    plots = ""
    for links in ("200mbit", "1gbit"):
        if any(r["links"] == links for r in runs):
            plot(runs, links, results / f"torch_{links}.png")
            plots += f"![held-out losses over {LINKS[links]}](torch_{links}.png)\n\n"
    (results / "torch.md").write_text(f"""# PyTorch with and without zeropp

Made by {" and ".join(f"`{command}`" for command in origins(runs, "command"))}, on {" and ".join(origins(runs, "machine"))}, which all ranks share: a byte-level GPT of 9.8 million parameters, 2 windows of 64 bytes
on each of 2 nodes x 2 ranks, and a vision transformer of 2.4 million on scikit-learn's digits, 4 images on each rank; gloo, FSDP2
with bf16 parameters, fp32 reduction and hpZ (`reshard_after_forward` of a node's ranks, with torch's own collectives too), DDP in
fp32. HSDP is FSDP2 with shards within nodes and replicas between them, which the preset's formats reduce. DeepSpeed 0.19.8 is its
ZeRO-3 in bf16, with hpZ. `exact` is exact differences of weights, with the gradients of a preset. Nodes are network namespaces with
shaped links. Steps are medians, without those after an evaluation, which has sent the exact differences; bytes are those of a node's
interface over the whole run, held-out losses included. On loopback all ranks are one node, and nothing is shaped.
Of several runs in turns ({turns} of each on loopback, elsewhere `--rounds`) the median is shown, of two the slower.
DDP had four connections to each rank over 200 Mbit/s, as `ddp_hook` has now, and two over 1 Gbit/s and on loopback.

`16bit` moves bf16 along this library's route, which crosses each link once: the speed-up over it comes from the bits. Between torch's
or DeepSpeed's own collectives and `16bit` lies the route. gloo's collectives cross links more often; NCCL's rings and trees do not, so that on GPUs
the first column is the one to expect.

{table(heads, list(rows_of(runs)))}
{plots}## What a call takes

{(results / "torch_overhead.md").read_text().strip()}

Microseconds on 2 ranks over loopback, medians of rounds in which each is called once; bare is torch.distributed's own collective, and
bytes are those of the whole tensor. Without messages, callbacks return at once.
""")


def main():
    what, folder, *rest = sys.argv[1:]
    {"keep": keep, "take": take, "page": page}[what](pathlib.Path(folder), *rest)


if __name__ == "__main__":
    main()
