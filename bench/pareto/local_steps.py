#!/usr/bin/env python3
"""Trains zero3_gpt with local steps and synchronously, on equal tokens, and draws held-out loss against bytes.

local_steps.py PROGRAMS RUNS RESULTS --seeds N... [--page-only]

Uses study.py's trainings. Rates are chosen with seed TUNING_SEED, which no mean includes. Trainings with a result in RUNS
are not run again. With --page-only none of zero3_gpt is run: the page has the trainings whose results are there.
"""

import statistics
import sys

import study
from study import BASELINE, RATE, VARIANTS, library_text, mean_text, table

STEPS = 1280  # A multiple of all intervals, so that the last step is an exchange.
TEXT_BYTES = 2_000_000  # More than the steps' tokens. Held-out text takes a tenth, and its evaluation as many minutes.
TOKENS = study.WINDOWS * 64  # of a step

TUNED = 32  # The interval at which rates are chosen.
FORMATS = {16: "bf16", 4: "int4:128:signed:bf16:h32", 2: "lloyd4:128:h128"}

# The grid: peak rates of the inner optimizer, and pairs of rate and momentum of the outer one.
TUNING_SEED = 1
RATES = (2e-3, 4e-3, 8e-3, 1.6e-2)
OUTER = ((1.0, 0.0), (0.7, 0.5), (0.4, 0.8), (0.7, 0.9))
DECAY = 0.98  # of the average of weights

# Synchronous trainings in formats of VARIANTS.
SYNCHRONOUS = {
    "zeropp": "all of ZeRO++",
    "2+2": "differences and gradients of 2 bits",
    "sign+three": "signs and three levels, five codes in a byte",
    "sign+three ends4": "precision by layer: the same, 4 bits for gradients of embeddings and head",
}
# Trainings on two ranks, each an island or a node: peak rate, windows of a step, and steps between plain averages of
# weights (0: synchronous).
PAIR = ((8e-3, study.WINDOWS, 0), (5.7e-3, study.WINDOWS, 0), (8e-3, study.WINDOWS, 1), (4e-3, study.WINDOWS, 1),
        (8e-3, study.WINDOWS // 2, 0), (4e-3, study.WINDOWS // 2, 0))

NODES = {1: (4, 2), 2: (4, 2), 4: (4, 1), 8: (8, 1)}  # By islands: ranks, and ranks of a node.


def local(islands, every, bits, rate, outer, **more):
    """A variant with local steps."""
    ranks, per_node = NODES[islands]
    variant = {"rate": rate, "local": {"islands": islands, "every": every, "learning_rate": outer[0], "momentum": outer[1],
                                       "quantizer": FORMATS[bits], **more.pop("local", {})}, **more}
    if ranks != study.RANKS:
        variant["ranks"] = ranks
    if per_node != 2:
        variant["ranks_per_node"] = per_node
    return variant


def pair(rate, windows, every):
    """A variant of PAIR."""
    variant = {"rate": rate, "windows": windows, "ranks": 2, "ranks_per_node": 1}
    if every:
        variant["local"] = {"islands": 2, "every": every, "learning_rate": 1.0, "momentum": 0.0, "quantizer": FORMATS[16]}
    return variant


class Trainings:
    """Trains, or takes earlier results; None for a training without a result, if `page_only`."""

    def __init__(self, program, runs, page_only):
        self.program, self.runs, self.page_only = program, runs, page_only
        self.text = library_text(runs / "text", TEXT_BYTES)

    def __call__(self, name, variant, seed, steps=STEPS):
        if self.page_only and not study.result_file(self.runs, name, seed).exists():
            return None
        return study.train(self.program, self.runs, name, variant, seed, steps, self.text)

    def held_out(self, name, variant, seed):
        """Held-out loss; infinite if it is not finite, or missing."""
        file = self(name, variant, seed)
        loss = file["runs"][0]["held_out_loss"] if file else None
        return float("inf") if loss is None else loss


def tune(train):
    """Chooses rates: of synchronous training; of two islands that exchange every TUNED steps in bf16, first the outer
    optimizer and then the inner rate, which all local steps inherit; and of the controls."""

    def loss(islands, rate, outer):
        return train.held_out(f"tuning {islands} islands {rate:g} {outer[0]:g} {outer[1]:g}",
                              local(islands, TUNED, 16, rate, outer), TUNING_SEED)

    rates = {rate: train.held_out(f"tuning {BASELINE} {rate:g}", {"rate": rate}, TUNING_SEED) for rate in RATES}
    rate = min(rates, key=rates.get)
    by_outer = {outer: loss(2, RATE, outer) for outer in OUTER}
    outer = min(by_outer, key=by_outer.get)
    by_rate = {inner: loss(2, inner, outer) for inner in RATES}
    inner = min(by_rate, key=by_rate.get)
    # Without momentum and at rate 1, one island's outer step changes nothing.
    alone = {pair: loss(1, rate, pair) if pair != OUTER[0] else float("inf") for pair in OUTER}
    return {"rates": rates, "rate": rate, "by_outer": by_outer, "by_rate": by_rate, "outer": {2: outer, 1: min(alone, key=alone.get)},
            "inner": {2: inner, 1: rate}, "alone": alone}


def cells(tuned):
    """Trainings by name, most important first: islands (0 if synchronous), variant and purpose."""
    every = {BASELINE: (0, {"rate": tuned["rate"], "average": DECAY}, "ZeRO-3")}

    def add(islands, interval, bits, name=None, purpose=None, **more):
        kind = min(islands, 2)
        every[name or f"{islands} islands, H={interval}, {bits} bits"] = (
            islands, local(islands, interval, bits, tuned["inner"][kind], tuned["outer"][kind], **more),
            purpose or FORMATS[bits])

    add(1, TUNED, 16, "1 island, H=32", "control: the outer step alone, nothing saved")
    for bits in (4, 2, 16):
        for interval in (8, 32, 128):
            add(2, interval, bits)
    for bits in (4, 2):
        for islands in (4, 8):
            add(islands, 32, bits)
    inside = {"weights": "int8:256:fp16", "gradients": study.INT4, "ranks_per_node": 1}
    add(2, 32, 4, "2 islands, H=32, 4 bits, ZeRO++ inside",
        "islands of two nodes, which train with all of ZeRO++; only bytes between islands are counted", **inside)
    add(2, 32, 4, "2 islands, H=32, 4 bits, streaming", "four fragments take turns, used two steps later, alpha 0.5",
        local={"fragments": 4, "delay": 2, "alpha": 0.5})
    for name, purpose in SYNCHRONOUS.items():
        every[name] = (0, VARIANTS[name][0] | {"rate": tuned["rate"]}, purpose)
    return every


def bytes_per_token(file, islands):
    """Bytes that a node or island sends to others, for each token of the whole training."""
    run = file["runs"][0]
    sent = run["exchange"]["inter_node"] if islands > 1 else run["inter_node_bytes_per_step"]
    return sent / (islands if islands > 1 else file["nodes"]) / TOKENS


def entries_of(train, tuned, seeds):
    """The trainings with results, and the baseline's bytes by number of nodes."""
    all_cells = cells(tuned)
    files = {name: {} for name in all_cells}
    for seed in seeds:
        for name, (_, variant, _) in all_cells.items():
            files[name][seed] = train(name, variant, seed)
    baseline_bytes = {}
    for nodes, (ranks, per_node) in NODES.items():
        # Bytes of a step do not depend on their number.
        file = train(f"bytes on {nodes}", {"ranks": ranks, "ranks_per_node": per_node}, TUNING_SEED, steps=2)
        baseline_bytes[nodes] = bytes_per_token(file, 0) if file else float("nan")
    entries = []
    for name, (islands, variant, purpose) in all_cells.items():
        found = [s for s in seeds if files[name][s] and files[BASELINE][s]]
        if not found:
            continue
        runs, bases = ([files[n][s]["runs"][0] for s in found] for n in (name, BASELINE))
        sent = bytes_per_token(files[name][found[0]], islands)
        entries.append({
            "name": name, "seeds": found, "variant": variant, "purpose": purpose, "islands": islands,
            "bytes": sent, "reduction": baseline_bytes[max(islands, 2)] / sent, "memory": runs[0]["memory_bytes_of_rank"],
            "losses": [r["held_out_loss"] for r in runs],
            "differences": [100 * (r["held_out_loss"] / b["held_out_loss"] - 1) for r, b in zip(runs, bases)],
            "of_average": [100 * (r["held_out_loss_of_average"] / b["held_out_loss"] - 1) for r, b in zip(runs, bases)
                           if "held_out_loss_of_average" in r]})
    return entries, [name for name in all_cells if name not in {e["name"] for e in entries}]


def pair_rows(train):
    """Rows of PAIR, with differences from its first training."""
    losses = [train.held_out(f"pair {rate:g} {windows} {every}", pair(rate, windows, every), TUNING_SEED)
              for rate, windows, every in PAIR]
    return [["weights averaged after each step" if every else "synchronous", windows, f"{rate:g}", number(loss),
             f"{100 * (loss / losses[0] - 1):+.2f} %" if max(loss, losses[0]) < float("inf") else ""]
            for (rate, windows, every), loss in zip(PAIR, losses)]


def numpy_rows(numpy):
    """Rows of islands.py's result, with differences of the best rate's loss from the best synchronous one."""
    means = {name: [statistics.mean(of) for of in losses] for name, losses in numpy["losses"].items()}
    best = min(means["synchronous"])
    return [[name, *(f"{loss:.4f}" for loss in losses), f"{100 * (min(losses) / best - 1):+.2f} %"]
            for name, losses in means.items()]


def number(loss):
    return f"{loss:.4f}" if loss < float("inf") else "not run"


def rates_text(variant):
    outer = variant.get("local")
    return f"{variant['rate']:g}" + (f"; {outer['learning_rate']:g}, {outer['momentum']:g}" if outer else "")


def report(results, header, tuned, entries, missing, seeds, pairs, numpy):
    rows = [[e["name"], e["purpose"], rates_text(e["variant"]), f"{e['reduction']:.1f}x", f"{e['bytes']:.3g}",
             f"{e['memory'] / 1e6:.2f}", len(e["seeds"]), f"{statistics.mean(e['losses']):.4f}", mean_text(e["differences"])]
            for e in entries]
    of = {e["name"]: e for e in entries}
    tuning = [[f"2 islands, H={TUNED}", f"{RATE:g}", *(number(tuned["by_outer"][o]) for o in OUTER)],
              [f"1 island, H={TUNED}", f"{tuned['rate']:g}", *(number(tuned["alone"][o]) for o in OUTER)]]
    within = [e for e in entries if e["islands"] > 1 and statistics.mean(e["differences"]) <= 1]
    best = max(within, key=lambda e: e["reduction"], default=None)
    edge = (" The islands' rate is the end of the grid: a rate beyond it may be better." if tuned["inner"][2] in (RATES[0], RATES[-1])
            else "")
    average = of[BASELINE]["of_average"] if BASELINE in of else []
    page = f"""# Local steps against synchronous training

Made by `bench/pareto/run.sh --study local_steps --seeds "{' '.join(map(str, seeds))}"`: zero3_gpt, {header['parameters']} parameters,
{STEPS} steps, rates that end at zero, as in [pareto.md](pareto.md), on the first {TEXT_BYTES:,} bytes of its text. Every training
has the same tokens: {study.WINDOWS} windows of 64 bytes in each step, which the islands share. Ranks are threads. The last step is an
exchange. Islands keep their AdamW moments.

{"The fewest bytes within 1 % of bf16: *" + best["name"] + f"*, {best['reduction']:.0f}x fewer, " + mean_text(best["differences"]) + "." if best else "No training with local steps ended within 1 % of bf16."}

{table(["run", "exchanges, or formats", "rate; outer rate, momentum", "fewer bytes", "bytes a token", "MB of a rank", "seeds",
        "held-out loss", "difference"], rows)}

*Fewer bytes*: than ZeRO-3 in bf16 on as many nodes. *Bytes a token*: that a node or island sends to others, counted on the
transport, divided by the tokens of the whole step. An island is a node of 2 ranks with 2 islands, and one rank with 4 or 8. *MB
of a rank*: arrays that rank 0 allocates, without activations; most are buffers at this size. *Difference*: of the
held-out loss from synchronous bf16 with the same seed, mean and standard error.{" Of one seed, differences below about 1 % are noise." if len(seeds) == 1 else ""}

![held-out loss against bytes](local_steps.png)

## Controls

Averaging alone is known to improve a training, and would flatter islands. Two controls save no byte. *1 island* has the
outer step on synchronous training: {mean_text(of["1 island, H=32"]["differences"]) if "1 island, H=32" in of else "not run"}. An exponential moving average of
synchronous training's weights, of decay {DECAY:g}, is evaluated in place of the weights: {mean_text(average) if average else "not run"}.

## Where the loss comes from

Two ranks, each an island or a node, seed {TUNING_SEED}. With averages of weights after each step, in bf16, little differs from synchronous
training: each island has AdamW moments of its own, and clips by its own norm. Under SGD without clipping the two are equal
(`tests/zero3_gpt/local_steps.cpp`).

{table(["", "windows of a step", "peak rate", "held-out loss", "difference"], pairs)}

So these cost about as much as all of an interval of 8 steps above. The gradients of an island, of half the windows, are noisier, and
AdamW divides by second moments that include the noise. Steps that are smaller by the root of 2 do not explain the loss: the second
row has them. A higher rate does not make up for it: the model learns worse with half the windows, as the last rows show, though
they also see half of the tokens. Longer trainings were not measured. The committed runs have [remarks](pareto_remarks.md) with
more pairs.

`bench/pareto/islands.py`, which is NumPy and float64 alone: a small network that bears higher rates, two islands, {numpy["steps"]} steps,
nothing rounded, outer rate 1 and no momentum unless named. Held-out loss at each peak rate, mean over {len(numpy["seeds"])} seeds, and the
difference of the best rates:

{table(["", *(f"{rate:g}" for rate in numpy["rates"]), "difference"], numpy_rows(numpy))}

## Rates

Rates were chosen on one grid, with seed {TUNING_SEED}, which no mean includes: peak rates of the inner optimizer
{", ".join(f"{r:g}" for r in RATES)}; rate and momentum of the outer one {", ".join(f"{r:g} and {m:g}" for r, m in OUTER)}. The last pair is
DiLoCo's. For 2 islands, H={TUNED} and exchanges in bf16, first the outer pair was chosen at {RATE:g}, then the inner rate. All other local
steps inherit the choice, so theirs may have better ones. Held-out losses:

{table(["", "inner rate", *(f"outer {r:g}, {m:g}" for r, m in OUTER)], tuning)}

{table(["", *(f"rate {r:g}" for r in RATES)], [["synchronous, bf16", *(number(l) for l in tuned["rates"].values())],
       [f"2 islands, H={TUNED}, best outer pair", *(number(l) for l in tuned["by_rate"].values())]])}

Other synchronous formats inherit {tuned["rate"]:g}. The average's decay was not tuned.{edge}

## Not run

{"Without a result here: " + ", ".join(missing) + ". " if missing else ""}Longer trainings and larger models, on which the literature reports
smaller losses of local steps; other inner optimizers (MuLoCo's Muon); sparse exchanges (SparseLoCo); more than 8 islands;
islands that differ in speed; precision by layer inside islands; time, which the [planner](../../docs/start/which_one.md) predicts.
"""
    (results / "local_steps.md").write_text(page)
    study.draw(entries, "differences", results / "local_steps.png", 4096)


def main():
    parser = study.argument_parser(__doc__)
    parser.add_argument("--page-only", action="store_true", help="run nothing, report the results that are there")
    args = parser.parse_args()
    if TUNING_SEED in args.seeds:
        sys.exit(f"local_steps.py: --seeds: expected seeds other than {TUNING_SEED}, with which rates are chosen")
    args.runs.mkdir(parents=True, exist_ok=True)
    train = Trainings(args.programs / "pareto", args.runs, args.page_only)
    tuned = tune(train)
    entries, missing = entries_of(train, tuned, args.seeds)
    header = train(f"tuning {BASELINE} {RATE:g}", {"rate": RATE}, TUNING_SEED)
    numpy = study.by_numpy("islands", args.runs, train.text)
    report(args.results, header, tuned, entries, missing, args.seeds, pair_rows(train), numpy)


if __name__ == "__main__":
    main()
