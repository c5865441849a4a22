#!/usr/bin/env python3
"""The tables and the plot of bench/scale/run.sh.

report.py RESULTS

Reads scale.json in RESULTS, as experiments.py writes it, and writes scale.md and scale.png (with gnuplot). Exit status: 1
where the simulation of a cluster of namespaces is not within the tolerance below.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from report_tables import gnuplot_text, table  # noqa: E402

TOLERANCE = 0.2

# The phases of a step, and their numbers.
STEPS = {
    "zero3": {"ring all-gather": 2, "ring reduce-scatter": 1},
    "zero3, two hops": {"all-gather": 2, "reduce-scatter": 1},
    "qwz": {"qwZ all-gather": 2, "reduce-scatter": 1},
    "hpz": {"all-gather": 1, "hpZ secondary gather": 1, "reduce-scatter": 1},
    "qgz": {"all-gather": 2, "qgZ reduce-scatter": 1},
    "zeropp": {"qwZ all-gather": 1, "hpZ secondary gather": 1, "qgZ reduce-scatter": 1},
    # Nodes keep bf16, and backward gathers it as hpZ does.
    "differences": {"update and gather": 1, "hpZ secondary gather": 1, "reduce-scatter beside": 1},
}
# 2 for each pass over the weights: forward, backward (two passes), and forward again to recompute activations.
FLOPS_PER_PARAMETER_AND_TOKEN = 8


def sum_of(run, step, value):
    """Sum of value(phase) over the phases of a step, for one tensor."""
    phases = {phase["phase"]: phase for phase in run["phases"]}
    return sum(count * value(phases[name]) for name, count in STEPS[step].items())


def seconds_of(run, step, tensors):
    return tensors * sum_of(run, step, lambda phase: phase["seconds"][0])


def bytes_of(run, step, tensors):
    """Inter-node bytes of one node in a step, for tensors of full size."""
    return tensors * run["slowed"] * sum_of(run, step, lambda phase: phase["inter_node_by_node"])


def shape(run):
    return f"{run['nodes']}x{run['ranks_per_node']}"


def check_rows(check):
    """Yields (cluster, phase, measured, codec, simulated, ratio, required) for every phase."""
    for cluster in check:
        for measured, simulated in zip(cluster["measured"], cluster["simulated"]):
            # The best of several runs, because other programs only add time.
            seconds = min(measured["seconds"])
            codec = min(measured.get("codec_seconds", [0]))
            ratio = (simulated["seconds"][0] + codec) / seconds
            # Phases without inter-node bytes are copies by cores, which are not simulated.
            required = measured["inter_node_by_node"] > 0
            yield cluster, measured["phase"], seconds, codec, simulated["seconds"][0], ratio, required


def check_table(check):
    rows = []
    for cluster, phase, measured, codec, simulated, ratio, required in check_rows(check):
        outside = abs(ratio - 1) > TOLERANCE
        rows.append([f"{shape(cluster)} {cluster['rate']}", phase, f"{measured * 1e3:.1f}", f"{codec * 1e3:.1f}",
                     f"{simulated * 1e3:.1f}", f"{ratio:.2f}",
                     "outside" + (", FAILED" if required else "") if outside else "within"])
    return table(["cluster", "phase", "measured, ms", "codec of it", "simulated without codec, ms",
                  "(simulated + codec) / measured", f"{TOLERANCE:.0%}"], rows)


def links_table(check):
    return table(["cluster", "a node to others, MB/s each way", "a rank inside, MB/s", "latency across, us",
                  "inside, us"], [
        [f"{shape(c)} {c['rate']}", f"{c['links']['inter_node_bytes_per_second'] / 1e6:.1f}",
         f"{c['links']['intra_node_bytes_per_second'] / 1e6:.1f}", f"{c['links']['inter_node_latency_seconds'] * 1e6:.0f}",
         f"{c['links']['intra_node_latency_seconds'] * 1e6:.0f}"] for c in check])


def scaling_table(scaling):
    rows = []
    for whole, smaller in zip(scaling["whole"], scaling["smaller"]["phases"]):
        ratio = smaller["seconds"][0] / whole["seconds"][0]
        rows.append([whole["phase"], f"{whole['seconds'][0] * 1e3:.3f}", f"{smaller['seconds'][0] * 1e3:.3f}",
                     f"{ratio:.3f}"])
    return table(["phase", "whole tensor, ms", "smaller tensor, ms", "ratio"], rows)


def sweep_table(contents):
    heads = ["platform", "link, Gb/s"] + [f"{step}, s" for step in STEPS] + [
        "speed-up of zeropp", "of differences over zeropp", "zeropp by the plan, s", "differences by it", "GB across, zero3",
        "zeropp", "differences", "plan's zeropp", "plan's differences"]
    rows = []
    for run in contents["sweep"]:
        of = {step: seconds_of(run, step, contents["tensors"]) for step in STEPS}
        rows.append([shape(run), run["gbit"]] + [f"{seconds:.3f}" for seconds in of.values()] + [
            f"{of['zero3'] / of['zeropp']:.2f}x", f"{of['zeropp'] / of['differences']:.2f}x",
            f"{run['plan']['zeropp']['hops']:.3f}", f"{run['plan']['differences']['hops']:.3f}",
            *(f"{bytes_of(run, step, contents['tensors']) / 1e9:.3f}" for step in ("zero3", "zeropp", "differences")),
            *(f"{run['plan'][step]['inter_node_by_node'] / 1e9:.3f}" for step in ("zeropp", "differences"))])
    return table(heads, rows)


def sites_table(contents):
    """A row for each rate between sites: seconds and bytes of collectives that know the sites, and of others."""
    sites, nodes = contents["of_sites"][:2]
    rows = []
    for run in contents["sites"]:
        known = {step: seconds_of(run, step, contents["tensors"]) for step in ("zero3, two hops", "zeropp", "differences")}
        alone = {"phases": run["without_sites"]}
        rows.append([run["site_gbit"], *(f"{seconds:.3f}" for seconds in known.values()),
                     f"{seconds_of(alone, 'zeropp', contents['tensors']):.3f}",
                     f"{seconds_of(alone, 'zeropp', contents['tensors']) / known['zeropp']:.2f}x",
                     f"{run['plan']['zeropp']['hops']:.3f}",
                     *(f"{contents['tensors'] * run['slowed'] * sum_of(of, 'zeropp', value) / 1e9:.3f}" for of, value in (
                         (run, lambda phase: phase["inter_site_by_site"]), (alone, lambda phase: phase["carried_by_site"]))),
                     f"{nodes * run['plan']['zeropp']['inter_site_by_node'] / 1e9:.3f}"])
    return table(["link of a site, Gb/s", "three hops in 16 bits, s", "zeropp, s", "differences, s", "zeropp that knows no sites, s",
                  "speed-up of knowing them", "zeropp by the plan, s", "GB across sites, zeropp", "knowing no sites, counted", "plan's zeropp"], rows)


def paper_rows(contents):
    """Yields the paper's simulated rows, with times and speed-ups that follow from our communication."""
    paper = contents["paper"]
    runs = {(run["nodes"], run["ranks_per_node"], run["gbit"]): run for run in contents["sweep"]}
    for row in paper["rows"]:
        run = runs.get((paper["nodes"], paper["ranks_per_node"], row["links"] * paper["gbit_of_one_link"]))
        if run is None:
            continue
        flops = FLOPS_PER_PARAMETER_AND_TOKEN * row["parameters"] * row["tokens"]
        step = flops / (row["zero3"] * 1e12)
        # A larger model has more tensors of equal size.
        tensors = contents["tensors"] * row["parameters"] / contents["parameters"]
        before = seconds_of(run, "zero3", tensors)
        codec = run["plan"]["zeropp"]["codec"] * tensors / contents["tensors"]
        after = seconds_of(run, "zeropp", tensors) + codec
        compute = step - before
        yield {**row, "step": step, "before": before, "after": after, "compute": compute,
               "speed_up": step / (compute + after), "of_paper": row["zeropp"] / row["zero3"],
               "flops": flops, "bytes": bytes_of(run, "zero3", tensors)}


def paper_table(rows):
    return table(["parameters", "links", "tokens", "paper: zero3, TFLOP/s", "its step, s", "our zero3 comm., s",
                  "so its compute, s", "our zeropp comm. and codec, s", "speed-up: ours", "paper's", "ours / paper's"], [
        [f"{r['parameters'] / 1e9:.0f}B", r["links"], r["tokens"], r["zero3"], f"{r['step']:.2f}", f"{r['before']:.2f}",
         f"{r['compute']:.2f}", f"{r['after']:.2f}", f"{r['speed_up']:.2f}x", f"{r['of_paper']:.2f}x",
         f"{r['speed_up'] / r['of_paper']:.2f}"] for r in rows])


def baseline_rows(rows):
    """Yields a row for each model and number of links. From the paper's steps of two batch sizes it separates the time that
    grows with tokens from the rest, for ZeRO-3 and ZeRO++."""
    for small in rows:
        for large in rows:
            if (small["parameters"], small["links"], small["tokens"] * 2) == (large["parameters"], large["links"],
                                                                             large["tokens"]):
                after = [r["flops"] / (r["zeropp"] * 1e12) for r in (small, large)]
                by_tokens, rest = large["step"] - small["step"], 2 * small["step"] - large["step"]
                shrunk = by_tokens + rest * small["after"] / small["before"]
                yield {**small, "by_tokens": by_tokens, "rest": rest, "speed_up_of_rest": small["step"] / shrunk,
                       "by_tokens_after": after[1] - after[0], "rest_after": 2 * after[0] - after[1]}


def baseline_table(rows):
    return table(["parameters", "links", "zero3: s for each 1K tokens", "s whatever the tokens",
                  "as a rate of the link, Gb/s", "our comm., s", "zeropp: s for each 1K tokens", "s whatever the tokens", "our comm. and codec, s",
                  "1K: speed-up if the baseline's rest shrank as our communication", "paper's"], [
        [f"{r['parameters'] / 1e9:.0f}B", r["links"], f"{r['by_tokens']:.2f}", f"{r['rest']:.2f}",
         f"{r['bytes'] * 8e-9 / r['rest']:.0f}", f"{r['before']:.2f}", f"{r['by_tokens_after']:.2f}",
         f"{r['rest_after']:.2f}", f"{r['after']:.2f}", f"{r['speed_up_of_rest']:.2f}x", f"{r['of_paper']:.2f}x"]
        for r in baseline_rows(rows)])


def growth_rows(contents):
    """Yields (ranks, simulated seconds, simulated GB, planned seconds, planned GB), each of zero3 and zeropp; None if not
    simulated."""
    simulated = {(r["nodes"], r["ranks_per_node"]): r for r in contents["growth"]}
    for point in contents["modelled"]:
        run = simulated.get((point["nodes"], point["ranks_per_node"]))
        yield (point["nodes"] * point["ranks_per_node"],
               [seconds_of(run, s, contents["tensors"]) if run else None for s in ("zero3", "zeropp")],
               [bytes_of(run, s, contents["tensors"]) / 1e9 if run else None for s in ("zero3", "zeropp")],
               [point["plan"][s]["hops"] for s in ("zero3", "zeropp")],
               [point["plan"][s]["inter_node_by_node"] / 1e9 for s in ("zero3", "zeropp")])


def growth_table(contents):
    def cells(values, digits):
        return ["-" if v is None else f"{v:.{digits}f}" for v in values]

    rows = [[ranks] + cells(seconds, 3) + cells(planned, 3) + cells(gb, 2) + cells(planned_gb, 2)
            for ranks, seconds, gb, planned, planned_gb in growth_rows(contents)]
    return table(["ranks", "simulated zero3, s", "zeropp, s", "model zero3, s", "zeropp, s", "simulated zero3, GB",
                  "zeropp, GB", "model zero3, GB", "zeropp, GB"], rows)


def plot(contents, image):
    largest = max((run["nodes"] * run["ranks_per_node"], run["nodes"], run["ranks_per_node"])
                  for run in contents["sweep"])[1:]
    with tempfile.TemporaryDirectory() as folder:
        lines = ["Gbit/s " + " ".join(f'"{step}"' for step in STEPS if " " not in step)]
        for run in contents["sweep"]:
            if (run["nodes"], run["ranks_per_node"]) == largest:
                lines.append(f"{run['gbit']} " + " ".join(f"{seconds_of(run, step, contents['tensors']):.4f}"
                                                          for step in STEPS if " " not in step))
        (pathlib.Path(folder) / "sweep.dat").write_text("\n".join(lines) + "\n")
        lines = ['ranks "zero3, simulated" "zeropp, simulated" "zero3, model" "zeropp, model" "zero3, simulated" '
                 '"zeropp, simulated" "zero3, model" "zeropp, model"']
        for ranks, seconds, gb, planned, planned_gb in growth_rows(contents):
            lines.append(" ".join("-" if v is None else f"{v:.5f}"
                                  for v in [ranks] + seconds + planned + gb + planned_gb))
        (pathlib.Path(folder) / "growth.dat").write_text("\n".join(lines) + "\n")
        heading = f"{contents['parameters'] / 1e9:.0f}B parameters on {largest[0]}x{largest[1]} simulated ranks"
        subprocess.run(["gnuplot", "-e", f"folder={gnuplot_text(folder)}; image={gnuplot_text(image)}; heading='{heading}'",
                        str(pathlib.Path(__file__).parent / "scale.gnuplot")], check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    results = pathlib.Path(sys.argv[1])
    contents = json.loads((results / "scale.json").read_text())
    plot(contents, results / "scale.png")
    paper = list(paper_rows(contents))
    rates = ", ".join(f"{rate / 1e9:.0f} GB/s in nodes of {ranks}" for ranks, rate in contents["intra_node_rate"].items())
    why = results / "scale_explained.md"  # written by hand
    check = contents["check"]
    largest = max(run["nodes"] * run["ranks_per_node"] for run in contents["sweep"])
    text = f"""# A step on hundreds of ranks, simulated

Made by `bench/scale/run.sh{" --quick" if contents["quick"] else ""}` in {contents["seconds"]} s. **Every time below is simulated**, but for those called
measured (on this machine), the paper's, and those of the model, which are `zeropp-plan`'s.

The library's collectives and `mpi_transport`, unmodified, run under SimGrid's SMPI with data in their messages, on up to
{largest} ranks. In each run every rank's bytes, as `counting` counts them, were equal to the plan's (`plan/volume.hpp`), or it would have
failed; and the simulator's own count of each node's link agreed, to the 2 % that a count of flows is good for. No message leaves before its receiver is ready for it.

- **Platform**: a rank has a link each way to its node's switch ({rates}; {contents["intra_node_latency"] * 1e6:g} us), a node one to the others, which
  its ranks share ({contents["inter_node_latency"] * 1e6:g} us); the switches are no limit. Rates are assumed: NVLink of V100, NVSwitch of A100. Fluid
  flows share a link fairly, with no factors for TCP (model CM02, bandwidth and latency factors 1), and a message costs its
  sender nothing but its latency.
- **Time** is the simulator's for the library too: clock, `yield` (1 us) and `sleep_for` are replaced at link time, so that the
  transport's way of waiting, up to 250 us late, is part of it. Computation and codec take none; where a codec counts, below, it
  is the plan's, at {contents["codec_rate"] / 1e9:.0f} GB/s.
- **ZeRO-3** (`zero3`) is a ring through all ranks in 16 bits, as NCCL's: MPI's own collectives, set to logical rings. *Two hops* is the
  library's route with `cast_to`, which quantizes nothing. A step is forward gather, backward gather, reduce-scatter, one
  after another, in one chunk, with {contents["tensors"]} equal tensors of which one is simulated.
- **Scale**: a tensor is simulated by one that is smaller on links that are slower by the same factor, with latencies as they
  are: whole blocks and messages shrink by exactly that.

## Against the cluster of namespaces

`bench/cluster`, the same program with Open MPI and its rings, and simulated on links with the rates and latencies measured there.
The best of several, of both, on {contents["cores"]} cores, at a load average of {contents["load"]} when it began. Every phase that crosses nodes must be within
{TOLERANCE:.0%}, which takes a machine without other work: the cores that run all ranks are near their limit at 1 Gbit/s, and what the
processor does beside the codec (TCP, copies, turns between ranks) is not in the simulation. A hop inside a node is nothing
but copies by those cores, so the secondary gather is shown and not required.

{links_table(check) if check else "No cluster could be made where this was run."}
{check_table(check) if check else ""}
## A smaller tensor on slower links

{shape(contents["scaling"]["smaller"])}, {contents["scaling"]["smaller"]["gbit"]} Gb/s: {contents["scaling"]["smaller"]["elements_per_rank"]} elements on each rank as they are, and 1/{contents["scaling"]["smaller"]["slowed"]:.0f} of them.

{scaling_table(contents["scaling"])}
## Communication of a step, {contents["parameters"] / 1e9:.0f} billion parameters

GB across nodes: what one node sends in a step. The plan's times are an alpha-beta model of two hops without the codec.

{sweep_table(contents)}
![time and growth](scale.png)

"""
    if "sites" in contents:
        sites, nodes, ranks_per_node, gbit, latency = contents["of_sites"]
        text += f"""## Nodes in sites

{sites} sites of {nodes} nodes of {ranks_per_node} ranks, {gbit} Gb/s a node, {latency * 1e3:g} ms between sites. A link joins each site to the others, which its nodes share.
Bytes of each level were equal to the plan's on every rank, and the simulator's count of each site's link agreed, as for nodes. Collectives over
three levels are beside ones over `two_level({sites * nodes}, {ranks_per_node})`, which know no sites; their bytes across sites have no plan, and are the simulator's count.
GB: what one site sends in a step.

{sites_table(contents)}
"""
    if paper:
        text += f"""## The paper's speed-ups beside ours

{contents["paper"]["source"]}. A step of the paper is {FLOPS_PER_PARAMETER_AND_TOKEN} x parameters x tokens / its TFLOP/s: forward, backward (twice as much) and
recomputed activations. Its computation is that of its own baseline: step - our simulated ZeRO-3 communication at {contents["paper"]["gbit_of_one_link"]} Gb/s a
link, on {contents["paper"]["nodes"]}x{contents["paper"]["ranks_per_node"]} ranks. Ours is then step / (computation + our ZeRO++ communication + codec), without overlap.

{paper_table(paper)}
The paper's two batch sizes, as a time that grows with tokens and one that does not:

{baseline_table(paper)}
"""
        if why.exists():
            text += why.read_text() + "\n"
    text += f"""## Growth at a fixed model size for each rank

{contents["parameters"] / 384 / 1e6:.1f} million parameters on each rank, 8 ranks to a node, {contents["growth_gbit"]} Gb/s. The model pays a latency for every peer, one after
another; in the simulation those of a hop pass side by side, so the model is the slower where there are many. GB: across nodes, by
one node, in a step; of P ranks on G nodes, a ring sends (P - 1) / P of a tensor on from each node, and two hops, which the plan's
zero3 takes, (G - 1) / G.

{growth_table(contents)}"""
    (results / "scale.md").write_text(text)
    failed = [row for row in check_rows(check) if row[-1] and abs(row[-2] - 1) > TOLERANCE]
    for cluster, phase, *_, ratio, _ in failed:
        print(f"FAILED: {shape(cluster)} {cluster['rate']}, {phase}: simulated / measured is {ratio:.2f}, "
              f"not within {TOLERANCE:.0%}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
