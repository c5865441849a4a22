#!/usr/bin/env python3
"""Injects faults into a cluster while a program of this folder runs there (cluster.sh --beside).

inject.py FOLDER --ranks N [--limit SECONDS] [--steps STEP...] [--until-end --rate RATE --seed N]

Waits until all ranks have written "ready" in their journals, takes the steps, and waits until every living rank has
written "end". Writes steps and times to FOLDER/injector.jsonl, "done" last. Steps:

  wait:SECONDS       down:NODE  up:NODE  rate:NODE:RATE         the node's link, with ip and tc
  wire:NODE:OPTIONS  whole:NODE            wire.py with --OPTION VALUE,... in its place, and the switch again
  kill:RANK  stop:RANK  cont:RANK          the rank's process

--until-end takes random steps without lasting harm until the ranks have written "end".
"""

import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "cont": signal.SIGCONT}


def records(path):
    """Records of a journal, without an incomplete last line; none if there is no such file."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def events(folder, rank):
    """Events of a rank's journal."""
    return records(folder / f"rank{rank}.jsonl")


def steps_taken(folder):
    """Steps of the injector, with their times."""
    return records(folder / "injector.jsonl")


def last(folder, rank, event):
    return next((e for e in reversed(events(folder, rank)) if e["event"] == event), None)


class Injector:
    def __init__(self, folder, ranks):
        self.folder = folder
        self.ranks = range(ranks)
        self.wire = None
        self.killed = set()

    def pid(self, rank):
        return last(self.folder, rank, "ready")["pid"]

    def take(self, step):
        name, *rest = step.split(":")
        if name == "wait":
            time.sleep(float(rest[0]))
        elif name in ("down", "up"):
            subprocess.run(["ip", "-n", rest[0], "link", "set", "eth0", name], check=True)
        elif name == "rate":
            node, rate = rest
            shape = ["root", "handle", "1:", "tbf", "rate", rate, "burst", "20kb", "limit", "1000000000"]
            subprocess.run(["tc", "-n", node, "qdisc", "change", "dev", "eth0", *shape], check=True)
            subprocess.run(["tc", "qdisc", "change", "dev", node, *shape], check=True)
        elif name == "wire":
            node, options = rest
            words = [word for option in options.split(",") for word in ("--" + option).split("=")]
            log = self.folder / "wire.log"
            log.unlink(missing_ok=True)
            self.wire = subprocess.Popen([sys.executable, HERE / "wire.py", node, "--log", log, *words])
            while not log.exists():
                time.sleep(0.01)
        elif name == "whole":
            self.wire.terminate()
            self.wire.wait()
        elif name in SIGNALS:
            rank = int(rest[0])
            os.kill(self.pid(rank), SIGNALS[name])
            if name == "kill":
                self.killed.add(rank)
        else:
            raise ValueError(f"no such step: {step}")
        self.log(step)

    def log(self, step):
        with open(self.folder / "injector.jsonl", "a") as out:
            print(json.dumps({"event": step, "wall": time.time()}), file=out)

    def passing_troubles(self, chance, rate):
        """Yields, without end, the steps of a random trouble that passes."""
        while True:
            node, rank = f"node{chance.randrange(2)}", chance.choice(self.ranks)
            seconds = chance.uniform(0.1, 1.5)
            yield chance.choice([
                [f"down:{node}", f"wait:{seconds / 3:.2f}", f"up:{node}"],
                [f"rate:{node}:{chance.choice(['3mbit', '10mbit', '300mbit'])}", f"wait:{3 * seconds:.2f}",
                 f"rate:{node}:{rate}"],
                [f"stop:{rank}", f"wait:{seconds:.2f}", f"cont:{rank}"],
                [f"wire:{node}:loss=0.01,seed={chance.randrange(1000)}", f"wait:{2 * seconds:.2f}", f"whole:{node}"],
                [f"wire:{node}:delay=0.02", f"wait:{2 * seconds:.2f}", f"whole:{node}"],
            ])

    def wait_for(self, event, limit):
        """Waits at most `limit` seconds. True if all ranks that were not killed have written `event`."""
        until = time.monotonic() + limit
        while not all(last(self.folder, r, event) for r in self.ranks if r not in self.killed):
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--limit", type=float, default=30)
    parser.add_argument("--steps", nargs="*", default=[], metavar="STEP")
    parser.add_argument("--until-end", action="store_true")
    parser.add_argument("--rate", help="of every node's link")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()

    injector = Injector(wanted.folder, wanted.ranks)
    if injector.wait_for("ready", wanted.limit):
        for step in wanted.steps:
            injector.take(step)
        chance = random.Random(wanted.seed)
        troubles = injector.passing_troubles(chance, wanted.rate)
        while wanted.until_end and not injector.wait_for("end", chance.uniform(1, 4)):
            for step in next(troubles):
                injector.take(step)
        injector.wait_for("end", wanted.limit)
    injector.log("done")


if __name__ == "__main__":
    main()
