#!/usr/bin/env python3
"""A bad wire: takes a node of bench/cluster off its switch, and carries its frames both ways with delays and losses.

wire.py NODE [--delay SECONDS] [--loss PROBABILITY] [--seed N] [--log FILE]

For kernels without sch_netem. Runs where the switch is (cluster.sh --beside). After SIGTERM the node's link is back on the
switch. The kernel hands over batches of frames without checksums (PACKET_VNET_HDR), so a batch is lost or late as a whole.
FILE is written when the wire is in place, and after each loss: "LOST of SEEN".
"""

import argparse
import heapq
import itertools
import json
import pathlib
import random
import select
import signal
import socket
import subprocess
import time

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_VNET_HDR = 15
PACKET_OUTGOING = 4
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
LARGEST = 10 + 14 + 65536  # header of PACKET_VNET_HDR, Ethernet's, and a batch


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True)


def open_port(interface):
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    port.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    # Large buffers, so that only `loss` drops frames: sent frames wait for the link's shaper.
    port.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 28)
    port.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 28)
    port.bind((interface, 0))
    port.setblocking(False)
    return port


def carry(ports, delay, loss, chance, log):
    """Carries frames between two ports, without end. Calls log(lost, seen) after each loss."""
    other = {ports[0]: ports[1], ports[1]: ports[0]}
    order = itertools.count()
    on_the_way = []
    seen = lost = 0
    while True:
        now = time.monotonic()
        while on_the_way and on_the_way[0][0] <= now:
            _, _, port, frame = heapq.heappop(on_the_way)
            try:
                port.send(frame)
            except OSError:
                pass  # the link is down, and the frame is lost
        wait = max(0.0, on_the_way[0][0] - now) if on_the_way else None
        for port in select.select(ports, [], [], wait)[0]:
            try:
                frame, address = port.recvfrom(LARGEST)
            except OSError:
                continue
            if address[2] == PACKET_OUTGOING:
                continue
            seen += 1
            if chance.random() < loss:
                lost += 1
                log(lost, seen)
                continue
            heapq.heappush(on_the_way, (time.monotonic() + delay, next(order), other[port], frame))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("node")
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--loss", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", type=pathlib.Path, default=pathlib.Path("/dev/null"))
    wanted = parser.parse_args()

    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit))
    shown = subprocess.run(["ip", "-json", "link", "show", wanted.node], check=True, capture_output=True)
    size = str(json.loads(shown.stdout)[0]["mtu"])
    ip("link", "add", "wire", "mtu", size, "type", "veth", "peer", "name", "wire.switch", "mtu", size)
    ip("link", "set", "wire", "up")
    ip("link", "set", "wire.switch", "master", "data", "up")
    ports = [open_port(wanted.node), open_port("wire")]
    ip("link", "set", wanted.node, "nomaster")
    try:
        def log(lost, seen):
            wanted.log.write_text(f"{lost} of {seen}\n")

        log(0, 0)
        carry(ports, wanted.delay, wanted.loss, random.Random(wanted.seed), log)
    finally:
        ip("link", "del", "wire")
        ip("link", "set", wanted.node, "master", "data")


if __name__ == "__main__":
    main()
