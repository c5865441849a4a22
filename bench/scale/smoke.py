#!/usr/bin/env python3
"""smoke.py PROGRAM: runs a step on simulated ranks, on equal and on unequal nodes. The program compares every byte with the plan. This
script compares times with the links' limits, and checks that all phases but one cross nodes."""

import sys

import simgrid

LINKS = simgrid.Links(intra_node_rate=1e9, intra_node_latency=2e-6, inter_node_rate=1e7, inter_node_latency=5e-6)


def check(node_sizes):
    print(f"nodes of {node_sizes}")
    step = simgrid.simulate(sys.argv[1], node_sizes, LINKS, 2048)
    for phase in step["phases"]:
        # A node's link is the limit. Intra-node hops, latencies and polling add less.
        least = phase["inter_node_by_node"] / LINKS.inter_node_rate
        seconds = phase["seconds"][0]
        print(f"{phase['phase']}: {seconds:.6f} s, {least:.6f} s on the link, {phase['inter_node_by_node']} bytes")
        if not least <= seconds <= 1.5 * least + 1e-3:
            sys.exit("expected between as long as the link takes and half as long again")
    if [p["inter_node_by_node"] for p in step["phases"]].count(0) != 1:
        sys.exit("expected that all but the secondary gather cross nodes")


def main():
    for node_sizes in [[4, 4, 4, 4], [3, 2, 2]]:
        check(node_sizes)


if __name__ == "__main__":
    main()
