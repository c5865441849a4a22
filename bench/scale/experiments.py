#!/usr/bin/env python3
"""Runs the experiments of bench/scale/run.sh.

experiments.py [--quick] BUILD RESULTS

BUILD has scale_step, scale_step_simulated and zeropp-plan. Writes scale.json in RESULTS. Exit status: 1 if a simulation
failed, which unplanned bytes cause; otherwise 0, also if no cluster of namespaces can be made here.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import simgrid

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import results_json  # noqa: E402

# A rank's rate to its node by the ranks of a node, in bytes per second each way; latencies of a message in seconds. Assumed,
# not measured: NVLink of V100 (6 links of 25 GB/s) and NVSwitch of A100 (12 links of 25 GB/s).
INSIDE_RATE = {4: 150e9, 8: 300e9, 16: 150e9}
INSIDE_LATENCY = 2e-6
ACROSS_LATENCY = 5e-6
# Sites: their number, nodes of a site, ranks of a node, Gbit/s of a node, latency between sites. Rates of a site are swept.
SITES = 2, 4, 8, 400, 1e-3
SITE_GBIT = 25, 100, 400
# Bytes per second that a GPU's codec reads and writes. Assumed; simulated times leave the codec out.
CODEC_RATE = 600e9

# The model of the sweep: 18 billion parameters in equal tensors, gathered and reduced one after another. One is simulated.
PARAMETERS = 18_000_000_000
TENSORS = 40
# Elements of the simulated tensor on each rank: whole blocks of every format, so that all messages shrink by one factor.
SIMULATED_ELEMENTS = 2048
GROWTH_GBIT = 400


def links_of(ranks_per_node, gbit):
    return simgrid.Links(INSIDE_RATE[ranks_per_node], INSIDE_LATENCY, gbit * 1e9 / 8, ACROSS_LATENCY)


class Experiments:
    def __init__(self, build, quick):
        self.simulated = build / "bench/scale/scale_step_simulated.so"
        self.real = build / "bench/scale/scale_step"
        self.plan_program = build / "examples/plan/zeropp-plan"
        self.quick = quick
        self.start = time.time()

    def say(self, text):
        print(f"== after {time.time() - self.start:.0f} s: {text}", flush=True)

    def simulate(self, nodes, ranks_per_node, gbit, elements_per_rank):
        """Phases of a tensor with `elements_per_rank` elements on each rank, simulated by a smaller tensor on slower links."""
        times = elements_per_rank / SIMULATED_ELEMENTS
        began = time.time()
        step = simgrid.simulate(self.simulated, [ranks_per_node] * nodes,
                                links_of(ranks_per_node, gbit).slowed(times), SIMULATED_ELEMENTS)
        self.say(f"{nodes}x{ranks_per_node} at {gbit} Gb/s: simulated in {time.time() - began:.0f} s, bytes as planned")
        return {"nodes": nodes, "ranks_per_node": ranks_per_node, "gbit": gbit,
                "elements_per_rank": elements_per_rank, "slowed": times,
                "phases": step["phases"], "plan": self.plan(nodes, ranks_per_node, gbit, elements_per_rank)}

    def over_sites(self, site_gbit, elements_per_rank):
        """As `simulate`, on nodes in sites: by collectives over three levels, and by collectives that know nodes alone."""
        sites, nodes, ranks_per_node, gbit, latency = SITES
        elements = 8 * SIMULATED_ELEMENTS  # The simulator's counts are off by up to a kilobyte over links of a high latency.
        times = elements_per_rank / elements
        links = links_of(ranks_per_node, gbit)._replace(inter_site_rate=site_gbit * 1e9 / 8, inter_site_latency=latency)
        three, two = (simgrid.simulate(self.simulated, [ranks_per_node] * (sites * nodes), links.slowed(times), elements,
                                       sites, known) for known in (sites, 1))
        self.say(f"{sites}x{nodes}x{ranks_per_node} at {site_gbit} Gb/s between sites: bytes as planned")
        return {"site_gbit": site_gbit, "slowed": times, "phases": three["phases"], "without_sites": two["phases"],
                "plan": self.plan(sites * nodes, ranks_per_node, gbit, elements_per_rank,
                                  "--sites", sites, "--inter-site-gbit", site_gbit, "--inter-site-us", latency * 1e6)}

    def plan(self, nodes, ranks_per_node, gbit, elements_per_rank, *more):
        """The plan by zeropp-plan for a step of TENSORS tensors of `elements_per_rank` elements on each rank."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run(
                [self.plan_program, "--tensors", f"{TENSORS}x{round(elements_per_rank * nodes * ranks_per_node)}",
                 "--nodes", str(nodes), "--ranks-per-node", str(ranks_per_node), "--inter-node-gbit", str(gbit),
                 "--intra-node-gbit", str(INSIDE_RATE[ranks_per_node] * 8e-9), "--inter-node-us", str(ACROSS_LATENCY * 1e6),
                 "--intra-node-us", str(INSIDE_LATENCY * 1e6), "--codec-gb", str(CODEC_RATE * 1e-9), "--json", file.name, *map(str, more)],
                check=True, stdout=subprocess.DEVNULL)
            runs = json.loads(pathlib.Path(file.name).read_text())["runs"]
        of = ("forward", "backward", "gradients")
        return {run["name"]: {"hops": sum(run["seconds"][p]["total"] - run["seconds"][p]["codec"] for p in of),
                              "codec": sum(run["seconds"][p]["codec"] for p in of),
                              "inter_node_by_node": run["bytes_by_node"]["total"]["inter_node"],
                              "inter_site_by_node": run["bytes_by_node"]["total"].get("inter_site", 0)}
                for run in runs}

    def cluster(self, nodes, ranks_per_node, rate, elements_per_rank):
        """Runs the program on a cluster of namespaces, and simulates it on the measured links; None without a cluster."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            # NCCL's rings, as in the simulation.
            rings = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allgather_algorithm": "4",
                     "coll_tuned_reduce_scatter_algorithm": "3"}
            result = subprocess.run(
                [HERE.parent / "cluster/cluster.sh", "run", "--nodes", str(nodes), "--per-node", str(ranks_per_node),
                 "--rate", rate, "--", self.real, "--node-sizes", ",".join([str(ranks_per_node)] * nodes), "--elements-per-rank",
                 str(elements_per_rank), "--repeats", "3" if self.quick else "5", "--json", file.name],
                env=os.environ | {f"OMPI_MCA_{name}": value for name, value in rings.items()},
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if result.returncode == 77 or "needs root" in result.stdout:
                self.say("no cluster of namespaces can be made here: left out")
                return None
            if result.returncode != 0:
                raise simgrid.SimulationFailed(f"on the cluster: {result.stdout}")
            measured = json.loads(pathlib.Path(file.name).read_text())
        links = simgrid.Links(*(measured["links"][f"{where}_{what}"] for where in ("intra_node", "inter_node")
                                for what in ("bytes_per_second", "latency_seconds")))
        step = simgrid.simulate(self.simulated, [ranks_per_node] * nodes, links, elements_per_rank)
        self.say(f"{nodes}x{ranks_per_node} at {rate}: measured and simulated")
        return {"nodes": nodes, "ranks_per_node": ranks_per_node, "rate": rate,
                "elements_per_rank": elements_per_rank, "links": measured["links"], "measured": measured["phases"],
                "simulated": step["phases"]}

    def scaling(self, nodes, ranks_per_node, gbit, elements_per_rank):
        """Simulates a tensor at full size, and by a smaller one."""
        whole = simgrid.simulate(self.simulated, [ranks_per_node] * nodes, links_of(ranks_per_node, gbit),
                                 elements_per_rank)
        return {"whole": whole["phases"], "smaller": self.simulate(nodes, ranks_per_node, gbit, elements_per_rank)}


def side_by_side(*lists):
    """Results of lists of calls. Runs each call once, two at a time, the largest first."""
    calls = sorted({call for calls in lists for call in calls}, key=lambda call: -call[1] * call[2])
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        futures = {call: pool.submit(*call) for call in calls}
        return [[futures[call].result() for call in calls] for calls in lists]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    args = parser.parse_args()
    run = Experiments(args.build, args.quick)
    load = os.getloadavg()[0]
    paper = json.loads((HERE / "paper.json").read_text())

    # First, while the cores are free.
    clusters = [(2, 2, "200mbit")] if args.quick else [(n, 2, rate) for n in (2, 4) for rate in ("200mbit", "1gbit")]
    check = [run.cluster(*where, 2**18 if args.quick else 2**20) for where in clusters]
    scaling = run.scaling(4, 4, 100, 2**18 if args.quick else 2**20)

    platforms = [(4, 4), (8, 8)] if args.quick else [(4, 4), (8, 8), (16, 8), (48, 8)]
    rates = [100, 400] if args.quick else [100, 200, 400, 800]
    points = [(*platform, gbit) for platform in platforms for gbit in rates]
    if not args.quick:
        points += [(paper["nodes"], paper["ranks_per_node"], gbit)
                   for gbit in sorted({row["links"] * paper["gbit_of_one_link"] for row in paper["rows"]})]
    nodes_of_growth = [2, 4, 8] if args.quick else [2, 4, 8, 16, 32, 48]
    by_rank = PARAMETERS / TENSORS / 384  # the largest platform's
    sweep, growth = side_by_side([(run.simulate, n, k, gbit, PARAMETERS / TENSORS / (n * k)) for n, k, gbit in points],
                                 [(run.simulate, n, 8, GROWTH_GBIT, by_rank) for n in nodes_of_growth])
    modelled = [{"nodes": n, "ranks_per_node": 8, "plan": run.plan(n, 8, GROWTH_GBIT, by_rank)}
                for n in nodes_of_growth + [64, 128, 256, 512, 1024, 2048]]

    sites = [run.over_sites(gbit, by_rank) for gbit in (SITE_GBIT[:1] if args.quick else SITE_GBIT)]

    contents = {"quick": args.quick, "parameters": PARAMETERS, "tensors": TENSORS, "intra_node_rate": INSIDE_RATE,
                "intra_node_latency": INSIDE_LATENCY, "inter_node_latency": ACROSS_LATENCY, "codec_rate": CODEC_RATE,
                "growth_gbit": GROWTH_GBIT, "load": round(load, 1), "cores": os.cpu_count(),
                "check": [c for c in check if c], "scaling": scaling, "sweep": sweep,
                "growth": growth, "modelled": modelled, "of_sites": SITES, "sites": sites, "paper": paper,
                "seconds": round(time.time() - run.start)}
    results_json.write(args.results / "scale.json", contents)
    run.say("all simulations done")


if __name__ == "__main__":
    try:
        main()
    except simgrid.SimulationFailed as problem:
        sys.exit(f"FAILED: {problem}")
