#!/usr/bin/env python3
"""Runs every fault on every transport, and writes the end of every rank: the table of docs/reliability.md.

faults.py --program reliability_faults [--rows NAME...] [--transport NAME] [--document FILE]

A row is good if its fault was made, and all surviving ranks end with exact results, or all with the right error within the
deadline and one second of the call's begin. Failed transports must refuse further calls at once, with an error. No rank may hold more descriptors
or much more memory afterwards. Exit status: 0 all rows are good, 1 one is not, 77 no cluster can be made here (rows on
threads run in any case).
"""

import argparse
import dataclasses
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from inject import events, last, steps_taken

HERE = pathlib.Path(__file__).resolve().parent
CLUSTER = HERE.parent / "cluster" / "cluster.sh"
RANKS = 4
RATE = "20mbit"
DEADLINE = 3.0
GRACE = 1.0
LIMIT = 25.0
MOST_GROWTH_KIB = 16 * 1024

EXACT = frozenset({"exact"})
LOST = frozenset({"timeout_error", "peer_error", "mpi_error"})  # a rank does not answer
WRONG_CALL = frozenset({"precondition_error"})
# For changed messages. Ranks outside the split only see that others have left.
CORRUPT = frozenset({"integrity_error"}) | LOST
# After these a transport may go on.
CAN_GO_ON = frozenset({"precondition_error", "integrity_error", "injected_fault"})


@dataclasses.dataclass
class Row:
    name: str
    fault: str
    expected: frozenset  # of every survivor; "exact" is for all of them or none
    steps: list = dataclasses.field(default_factory=list)
    arguments: list = dataclasses.field(default_factory=list)
    transports: tuple = ("mpi",)
    apart: dict = dataclasses.field(default_factory=dict)  # rank: its expected ends, if they differ
    killed: tuple = ()
    late: dict = dataclasses.field(default_factory=dict)  # rank: seconds before it tries
    of_table: bool = True


def rows():
    cut = ["--calls", "24"]
    # All others have given up by then.
    late = str(int(1000 * (DEADLINE + 1.5)))
    early = str(int(1000 * DEADLINE / 3))
    both = ("mpi", "threads")
    network = [
        Row("none", "none", EXACT, transports=both),
        Row("link_down_short", "link of a node down for 0.5 s in mid-collective", EXACT,
            ["wait:0.07", "down:node1", "wait:0.5", "up:node1"], cut),
        Row("link_down_long", "link of a node down for good in mid-collective", LOST, ["wait:0.07", "down:node1"]),
        Row("loss_1", "1 % of a node's frames lost", EXACT, ["wire:node1:loss=0.01"], cut),
        Row("loss_10", "10 % of a node's frames lost", EXACT | LOST, ["wire:node1:loss=0.1"], cut),
        Row("delay_100ms", "100 ms delay each way", EXACT, ["wire:node1:delay=0.1"], cut),
        Row("rate_drop", f"a node's link slowed from {RATE} to 5mbit", EXACT, ["wait:0.07", "rate:node1:5mbit"], cut),
        Row("rate_collapse", f"a node's link slowed from {RATE} to 100kbit", LOST, ["wait:0.07", "rate:node1:100kbit"]),
        Row("killed", "a rank killed (SIGKILL)", LOST, ["wait:0.07", "kill:3"], killed=(3,)),
        Row("stopped_short", "a rank stopped (SIGSTOP) and resumed after 1 s", EXACT,
            ["wait:0.07", "stop:3", "wait:1", "cont:3"], cut),
        Row("stopped_long", f"a rank stopped and resumed {late} ms later", LOST,
            ["wait:0.07", "stop:3", f"wait:{float(late) / 1000}", "cont:3"]),
    ]
    calls = [
        Row(mistake, f"a rank {text}, `checked`", expected, [], ["--checked", "--mistake", mistake], both)
        for mistake, text, expected in [
            ("other_collective", "calls a different collective", WRONG_CALL),
            ("other_size", "calls with a different size", WRONG_CALL),
            ("other_quantizer", "calls with a different quantizer", WRONG_CALL),
            ("twice", "calls twice", WRONG_CALL),
        ]
    ] + [
        Row("all_reduce_" + mistake, f"a rank {text}, `checked`", WRONG_CALL, [],
            ["--checked", "--mistake", mistake, "--call", "11"], both)
        for mistake, text in [("other_size", "all-reduces a list of a different size"),
                              ("other_collective", "does not all-reduce where the others do")]
    ] + [
        Row(mistake + "_unchecked", f"a rank {text}, not `checked`", WRONG_CALL | LOST, [], ["--mistake", mistake], both)
        for mistake, text in [("other_collective", "calls a different collective"),
                              ("other_size", "calls with a different size"), ("twice", "calls twice")]
    ]
    injected = [
        Row(name, f"a rank's operation is {text}", expected, [], arguments, both, apart,
            late={1: float(late) / 1000} if name == "delay_long" else {})
        for name, text, expected, arguments, apart in [
            ("drop", "dropped", LOST, ["--fault", "drop"], {1: frozenset({"injected_fault"})}),
            ("delay_short", f"late by {early} ms", EXACT, ["--fault", "delay", "--delay", early], {}),
            ("delay_long", f"late by {late} ms", LOST, ["--fault", "delay", "--delay", late], {}),
            ("truncate", "cut to half its bytes", WRONG_CALL | LOST, ["--fault", "truncate"], {}),
            ("duplicate", "carried twice", WRONG_CALL | LOST, ["--fault", "duplicate"], {}),
            ("flip_bit", "carried with one bit flipped, `checksummed`", CORRUPT,
             ["--checksummed", "--fault", "flip_bit", "--operation", "26"], {}),
        ]
    ]
    # Tests that wrong results are found.
    planted = Row("planted", "a bit flipped, without checksums", frozenset({"wrong", "exact"}) | LOST, [],
                  ["--fault", "flip_bit"], both, of_table=False)
    return network + calls + injected + [planted]


def run_on_cluster(row, program, folder):
    """Runs a row on a cluster, and ends the cluster when all journals are complete. Returns the exit status; None if ended."""
    inject = [sys.executable, HERE / "inject.py", folder, "--ranks", RANKS, "--limit", LIMIT, "--steps", *row.steps]
    command = [CLUSTER, "run", "--nodes", 2, "--per-node", RANKS // 2, "--rate", RATE,
               "--beside", shlex.join(map(str, inject)), "--", *program]
    # mpirun must not end other ranks when one dies.
    recovery = ["env", "OMPI_MCA_orte_enable_recovery=1", "OMPI_MCA_orte_abort_on_non_zero_status=0"]
    with open(folder / "output", "w") as output:
        cluster = subprocess.Popen([*recovery, *map(str, command)], stdout=output, stderr=subprocess.STDOUT)
        until = time.monotonic() + 3 * LIMIT
        done = None
        while cluster.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
            if done is None and any(step["event"] == "done" for step in steps_taken(folder)):
                done = time.monotonic()
                # Ranks without an error call MPI_Finalize and exit.
                until = done + (10 if all_exact(folder) else 0)
        if cluster.poll() is None:
            cluster.terminate()
            cluster.wait()
            return None
        return cluster.returncode


def run_on_threads(program, folder):
    with open(folder / "output", "w") as output:
        try:
            return subprocess.run([*map(str, program), "--transport", "threads"], stdout=output,
                                  stderr=subprocess.STDOUT, timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            return None


def all_exact(folder):
    return all((last(folder, r, "end") or {}).get("outcome") == "exact" for r in range(RANKS))


def resumed(folder, rank):
    return max((step["wall"] for step in steps_taken(folder) if step["event"] == f"cont:{rank}"), default=0.0)


def rank_result(row, folder, rank):
    """A rank's end, and problems that no fault excuses."""
    end = last(folder, rank, "end")
    if end is None:
        calls = [e["number"] for e in events(folder, rank) if e["event"] == "call"]
        where = f"in call {calls[-1]}" if calls else "before its first call"
        return {"rank": rank, "became": "hangs", "problems": [f"rank {rank} never returned, {where}"]}
    result = {"rank": rank, "became": end["type"] if end["outcome"] == "error" else end["outcome"],
              "what": end.get("what"), "problems": []}
    problems = result["problems"]
    if end["outcome"] == "error":
        failed = last(folder, rank, "failed")
        begun = [e for e in events(folder, rank) if e["event"] == "call" and e["wall"] <= failed["wall"]][-1]
        result["seconds"] = failed["wall"] - max(begun["wall"], resumed(folder, rank)) - row.late.get(rank, 0.0)
        if result["seconds"] > DEADLINE + GRACE:
            problems.append(f"rank {rank} had its error after {result['seconds']:.2f} s")
        can_go_on = end["type"] in CAN_GO_ON
        if (end["next"] == "returned" and not can_go_on) or end["next_seconds"] > GRACE + can_go_on * DEADLINE:
            problems.append(f"rank {rank} could go on: {end['next']} after {end['next_seconds']:.2f} s")
    if end["release_seconds"] > GRACE:
        problems.append(f"rank {rank} needed {end['release_seconds']:.2f} s to let go of its transport")
    before, after = end["descriptors"]
    if after > before:
        problems.append(f"rank {rank} had {before} descriptors and has {after}")
    before, after = end["resident_kib"]
    if after - before > MOST_GROWTH_KIB:
        problems.append(f"rank {rank} had {before} KiB and has {after}")
    return result


def judge(row, folder, status):
    ranks = [rank_result(row, folder, r) for r in range(RANKS) if r not in row.killed]
    problems = [p for r in ranks for p in r["problems"]]
    taken = [step["event"] for step in steps_taken(folder)][:len(row.steps)]
    if taken != row.steps:
        problems.append(f"the fault was not made: {len(taken)} of the steps {', '.join(row.steps)}")
    for r in ranks:
        if r["became"] not in row.apart.get(r["rank"], row.expected):
            problems.append(f"rank {r['rank']} ended with {r['became']}: {r.get('what')}")
    if not row.of_table and all(r["became"] != "wrong" for r in ranks):
        problems.append("nobody saw that the result is wrong")
    survivors = [r for r in ranks if r["rank"] not in row.apart]
    if row.of_table and len({r["became"] == "exact" for r in survivors}) > 1:
        problems.append("some ranks have results and others an error")
    if all(r["became"] == "exact" for r in ranks) and status != 0:
        problems.append(f"the program ended with {status}" if status is not None else "the program did not end")
    return {"ranks": ranks, "problems": problems}


def measure(row, transport, program, scratch):
    folder = scratch / f"{row.name}.{transport}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words = [program, "--folder", folder, "--deadline", int(1000 * DEADLINE), *row.arguments]
    started = time.monotonic()
    status = run_on_threads(words, folder) if transport == "threads" else run_on_cluster(row, words, folder)
    if status == 77 or (status == 2 and "cluster.sh: needs root" in (folder / "output").read_text()):
        return None
    result = judge(row, folder, status)
    fault = row.fault
    lost = folder / "wire.log"
    if lost.exists() and not lost.read_text().startswith("0 "):
        fault += f" ({lost.read_text().strip()})"
    return {"fault": fault, "transport": transport, "run_seconds": round(time.monotonic() - started, 1), **result}


def outcome_text(result):
    by_outcome = {}
    for r in result["ranks"]:
        by_outcome.setdefault(r["became"], []).append(r["rank"])
    gone = sorted(set(range(RANKS)) - {r["rank"] for r in result["ranks"]})
    if gone:
        by_outcome["killed"] = gone
    if len(by_outcome) == 1:
        only = next(iter(by_outcome))
        return "exact results on every rank" if only == "exact" else f"`{only}` on every rank"
    return "; ".join(f"{f'`{o}`' if '_' in o else o} on rank{'s' * (len(r) > 1)} {', '.join(map(str, r))}"
                     for o, r in by_outcome.items())


def table(results):
    lines = ["| fault | transport | outcome | error after, s | |", "|---|---|---|---|---|"]
    for result in results:
        seconds = [r["seconds"] for r in result["ranks"] if "seconds" in r]
        when = f"{max(seconds):.2f}" if seconds else ""
        verdict = "**FAILED**: " + "; ".join(result["problems"]) if result["problems"] else "ok"
        lines.append(f"| {result['fault']} | {result['transport']} | {outcome_text(result)} | {when} | {verdict} |")
    return "\n".join(lines)


def write_between_markers(document, text):
    begin, end = "<!-- made by bench/reliability/run.sh -->", "<!-- end -->"
    before, rest = document.read_text().split(begin)
    _, after = rest.split(end)
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--rows", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--transport", choices=["mpi", "threads"])
    parser.add_argument("--document", type=pathlib.Path)
    wanted = parser.parse_args()
    everything = rows()
    chosen = [row for row in everything if row.name in wanted.rows or (not wanted.rows and row.of_table)]
    unknown = set(wanted.rows) - {row.name for row in chosen}
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(r.name for r in everything)}")

    results = []
    no_cluster = False
    with tempfile.TemporaryDirectory() as scratch:
        for row in chosen:
            for transport in row.transports:
                if wanted.transport not in (None, transport):
                    continue
                missing = transport == "mpi" and no_cluster
                result = None if missing else measure(row, transport, wanted.program, pathlib.Path(scratch))
                if result is None:
                    no_cluster = True
                    continue
                results.append(result)
                verdict = "; ".join(result["problems"]) or "ok"
                print(f"{row.name} on {transport}, {result['run_seconds']} s: {outcome_text(result)}: {verdict}", flush=True)
    print()
    print(table(results))
    if no_cluster:
        print("skipped: no cluster can be made here")
    elif wanted.document:
        write_between_markers(wanted.document, table(results))
    if any(result["problems"] for result in results):
        return 1
    return 77 if no_cluster else 0


if __name__ == "__main__":
    sys.exit(main())
