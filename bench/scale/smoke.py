#!/usr/bin/env python3
"""smoke.py PROGRAM: runs a step on simulated ranks, on equal and on unequal nodes, and on nodes in sites. The program compares every byte with the plan. This
script compares times with the links' limits, and checks that all phases but one cross nodes."""

import sys

import simgrid

LINKS = simgrid.Links(intra_node_rate=1e9, intra_node_latency=2e-6, inter_node_rate=1e7, inter_node_latency=5e-6,
                      inter_site_rate=2e6, inter_site_latency=1e-3)


def check(node_sizes, elements=2048, sites=1):
    print(f"nodes of {node_sizes}, {sites} sites")
    step = simgrid.simulate(sys.argv[1], node_sizes, LINKS, elements, sites)
    for phase in step["phases"]:
        # The slowest link is the limit. Other hops, latencies and polling add less.
        by_node, by_site = phase["inter_node_by_node"], phase.get("inter_site_by_site", 0)
        least = max(by_node / LINKS.inter_node_rate, by_site / LINKS.inter_site_rate)
        seconds = phase["seconds"][0]
        print(f"{phase['phase']}: {seconds:.6f} s, {least:.6f} s on the link, {by_node} and {by_site} bytes")
        if not least <= seconds <= 1.5 * least + (1e-3 if sites == 1 else 2e-2):
            sys.exit("expected between as long as the link takes and half as long again")
    if [p["inter_node_by_node"] for p in step["phases"]].count(0) != 1:
        sys.exit("expected that all but the secondary gather cross nodes")


def main():
    for node_sizes in [[4, 4, 4, 4], [3, 2, 2]]:
        check(node_sizes)
    # The simulator's counts are off by up to a kilobyte over links of a high latency.
    check([2, 2, 2, 2], elements=16384, sites=2)


if __name__ == "__main__":
    main()
