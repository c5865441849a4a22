#!/usr/bin/env python3
"""Runs the soak on a cluster of 2 x 2 ranks with passing faults, and writes soak.md and soak.json.

soak.py --program reliability_soak --minutes M --results FOLDER [--seed N]

Exit status: 0 nothing wrong and nothing grew, 1 otherwise, 2 something is missing, 77 no cluster can be made here.
"""

import argparse
import collections
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

from inject import events, last, steps_taken

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import results_json  # noqa: E402

CLUSTER = HERE.parent / "cluster" / "cluster.sh"
RANKS = 4
RATE = "20mbit"
# Buffers of MPI and of the allocator grow with the shapes of calls.
MOST_GROWTH_KIB = 8 * 1024
TROUBLES = {"down": "link down and up again", "rate": "rate changed and set back", "stop": "rank stopped and resumed",
            "loss": "frames lost, 1 % for a while", "delay": "frames late by 20 ms for a while"}


def run(wanted, folder):
    inject = [sys.executable, HERE / "inject.py", folder, "--ranks", RANKS, "--rate", RATE, "--seed", wanted.seed,
              "--until-end"]
    command = [CLUSTER, "run", "--nodes", 2, "--per-node", 2, "--rate", RATE, "--beside", shlex.join(map(str, inject)),
               "--", wanted.program, "--folder", folder, "--minutes", wanted.minutes, "--seed", wanted.seed]
    try:
        return subprocess.run(list(map(str, command)), timeout=60 * wanted.minutes + 120).returncode
    except subprocess.TimeoutExpired:
        return None


def troubles(folder):
    """Number of each kind of trouble."""
    counted = collections.Counter()
    for taken in steps_taken(folder):
        step = taken["event"].split(":")
        kind = step[2].split("=")[0] if step[0] == "wire" else step[0]
        counted[kind] += kind in TROUBLES
    counted["rate"] //= 2  # there and back
    return {kind: counted[kind] for kind in TROUBLES}


def judge(folder, status):
    problems = [] if status == 0 else [f"the program ended with {status}" if status is not None else "it hangs"]
    if not any(troubles(folder).values()):
        problems.append("no fault was made")
    ranks = []
    for rank in range(RANKS):
        end = last(folder, rank, "end")
        samples = [e for e in events(folder, rank) if e["event"] == "sample"]
        if end is None or end["outcome"] != "exact":
            problems.append(f"rank {rank}: {(end or {}).get('what') or (end or {}).get('outcome', 'no end')}")
        quarter = max(1, len(samples) // 4)
        if len(samples) < 8:
            problems.append(f"rank {rank} was seen {len(samples)} times only")
            continue
        # The first quarter lets buffers grow to the largest shapes.
        second, fourth = samples[quarter:2 * quarter], samples[-quarter:]
        facts = {"rank": rank, "calls": end and end.get("calls"), "wrong": end and end.get("wrong"),
                 "elements": end and end.get("elements"), "slowest_call_seconds": end and end.get("slowest"),
                 "samples": [{k: s[k] for k in ("seconds", "calls", "wrong", "descriptors", "requests", "resident_kib")}
                             for s in samples]}
        for name in ("descriptors", "requests", "resident_kib"):
            facts[name] = [round(statistics.median(s[name] for s in part)) for part in (second, fourth)]
        ranks.append(facts)
        if max(s["requests"] for s in samples) != 0:
            problems.append(f"rank {rank} had requests open between calls")
        if max(s["descriptors"] for s in fourth) > max(s["descriptors"] for s in second):
            problems.append(f"rank {rank} has more and more descriptors")
        if facts["resident_kib"][1] - facts["resident_kib"][0] > MOST_GROWTH_KIB:
            problems.append(f"rank {rank} has more and more memory")
    return ranks, problems


def document(wanted, ranks, happened, problems):
    calls = ranks[0]["calls"] if ranks else 0
    lines = ["# Soak", "",
             f"`bench/reliability/soak.sh --minutes {wanted.minutes:g} --seed {wanted.seed}`: {wanted.minutes:g} minutes of "
             f"collectives with random shapes, quantizers, element types, chunks and topologies on 2 nodes of 2 ranks with links of "
             f"{RATE}, every result held against the tests' reference, with faults that pass. {calls} calls, "
             f"{sum(r['wrong'] or 0 for r in ranks)} wrong. " + ("Problems: " + "; ".join(problems) if problems else "No problems."),
             "", "| fault | times |", "|---|---|"]
    lines += [f"| {text} | {happened[kind]} |" for kind, text in TROUBLES.items()]
    lines += ["", "What a rank holds between two calls, medians of the second and of the last quarter of the time:", "",
              "| rank | calls | wrong | slowest call, s | resident memory, KiB | descriptors | open MPI requests |",
              "|---|---|---|---|---|---|---|"]
    arrow = " to ".join
    for r in ranks:
        lines.append(f"| {r['rank']} | {r['calls']} | {r['wrong']} | {r['slowest_call_seconds'] or 0:.2f} | "
                     + " | ".join(arrow(map(str, r[name])) for name in ("resident_kib", "descriptors", "requests")) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        status = run(wanted, folder)
        if status in (2, 77):
            return status
        ranks, problems = judge(folder, status)
        happened = troubles(folder)
    text = document(wanted, ranks, happened, problems)
    (wanted.results / "soak.md").write_text(text)
    results_json.write(wanted.results / "soak.json",
                       {"minutes": wanted.minutes, "seed": wanted.seed, "rate": RATE, "faults": happened,
                        "problems": problems, "ranks": ranks})
    print(text)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
