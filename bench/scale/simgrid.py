"""Runs scale_step_simulated under SimGrid's SMPI."""

import json
import pathlib
import subprocess
import tempfile
import typing


class SimulationFailed(Exception):
    pass


class Links(typing.NamedTuple):
    """Rates in bytes per second each way, and latencies in seconds: of a rank within its node, of a node to others and, if there
    are several sites, of a site to others."""
    intra_node_rate: float
    intra_node_latency: float
    inter_node_rate: float
    inter_node_latency: float
    inter_site_rate: float = 0
    inter_site_latency: float = 0

    def slowed(self, times):
        """Links on which messages with 1/`times` of the bytes take equal time."""
        return self._replace(intra_node_rate=self.intra_node_rate / times, inter_node_rate=self.inter_node_rate / times,
                             inter_site_rate=self.inter_site_rate / times)


# The simulator's fluid model with the given rates and latencies. SMPI's default corrects them for one cluster's Ethernet
# and TCP. Here there are no factors and no windows, and directions do not disturb each other.
NETWORK = {
    "network/model": "CM02",
    "network/bandwidth-factor": 1,
    "network/latency-factor": 1,
    "network/weight-S": 0,
    "network/TCP-gamma": 0,
    "network/crosstraffic": "no",
}
# The library waits on the simulated clock (in_simulation.cpp), so polling MPI costs no time. Ranks have no global variables.
# No message is sent eagerly, because real messages are too large for that. Computation takes no time. MPI's own
# collectives are rings through all ranks, as NCCL's. SMPI's "ring" differs: every rank sends to every other.
MPI = {
    "plugin": "link_load",
    "smpi/test": 0,
    "smpi/wtime": 0,
    "smpi/privatization": "no",
    "smpi/send-is-detached-thresh": 0,
    "smpi/simulate-computation": "no",
    "smpi/allgather": "NTSLR",
    "smpi/reduce_scatter": "ompi_ring",
}


def platform(node_sizes, links, sites=1):
    """SimGrid's XML. A node is a zone with a host for each rank, which a link joins to the node's switch. A link joins
    each node to the others of its site, and a link each site, of as many successive nodes, to the others. Switches do not limit
    rates."""
    intra_node = f'bw="{links.intra_node_rate!r}Bps" lat="{links.intra_node_latency / 2!r}s"'
    inter_node_latency = max(0.0, links.inter_node_latency - links.intra_node_latency) / 2
    lines = ["<?xml version='1.0'?>", '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
             '<platform version="4.1">', '<zone id="cluster" routing="Full">']
    nodes = len(node_sizes)
    for node, ranks in enumerate(node_sizes):
        lines.append(f'<cluster id="node{node}" prefix="node{node}_" suffix="" radical="0-{ranks - 1}" '
                     f'speed="1Gf" {intra_node} sharing_policy="SPLITDUPLEX" router_id="node{node}_switch"/>')
    for node in range(nodes):
        lines.append(f'<link id="nic{node}" bandwidth="{links.inter_node_rate!r}Bps" latency="{inter_node_latency!r}s" '
                     'sharing_policy="SPLITDUPLEX"/>')
    inter_site_latency = max(0.0, links.inter_site_latency - links.inter_node_latency) / 2
    for site in range(sites if sites > 1 else 0):
        lines.append(f'<link id="site{site}" bandwidth="{links.inter_site_rate!r}Bps" latency="{inter_site_latency!r}s" '
                     'sharing_policy="SPLITDUPLEX"/>')
    for a in range(nodes):
        for b in range(nodes):
            if a != b:
                from_site, to_site = (node * sites // nodes for node in (a, b))
                way = [f"nic{a}", *([f"site{from_site}"] if from_site != to_site else [])]
                back = [*([f"site{to_site}"] if from_site != to_site else []), f"nic{b}"]
                lines.append(f'<zoneRoute src="node{a}" dst="node{b}" gw_src="node{a}_switch" gw_dst="node{b}_switch" '
                             'symmetrical="NO">' + "".join(f'<link_ctn id="{link}" direction="UP"/>' for link in way)
                             + "".join(f'<link_ctn id="{link}" direction="DOWN"/>' for link in back) + "</zoneRoute>")
    return "\n".join(lines + ["</zone>", "</platform>"]) + "\n"


def simulate(program, node_sizes, links, elements_per_rank, sites=1, known_sites=None):
    """Runs the program on nodes of these numbers of ranks, and returns its JSON. The collectives know of `known_sites` sites, all
    unless given. Raises SimulationFailed if it fails, which unplanned bytes cause."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "platform.xml").write_text(platform(node_sizes, links, sites))
        (folder / "hosts").write_text("".join(f"node{n}_{r}\n" for n, ranks in enumerate(node_sizes) for r in range(ranks)))
        settings = [f"--cfg={key}:{value}" for key, value in (NETWORK | MPI).items()]
        result = subprocess.run(
            ["smpirun", "-np", str(sum(node_sizes)), "-platform", folder / "platform.xml", "-hostfile",
             folder / "hosts", pathlib.Path(program).resolve(), *settings, "--log=root.thresh:warning",
             "--node-sizes", ",".join(map(str, node_sizes)), "--sites", str(known_sites or sites), "--elements-per-rank", str(elements_per_rank), "--json",
             folder / "step.json"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            raise SimulationFailed(f"nodes of {node_sizes}, {sites} sites: {result.stdout}")
        return json.loads((folder / "step.json").read_text())
