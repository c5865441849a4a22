#!/usr/bin/env python3
"""Trains zero3_gpt synchronously in fewer and fewer bits, and with local steps, and draws held-out loss against bytes.

study.py PROGRAM RUNS RESULTS --seeds N... [--large]

PROGRAM is zero3_gpt. Rates are chosen with seed TUNING_SEED, which no mean includes. Then every entry of `entries` is trained
from all seeds, two of them over other numbers of steps too, and with --large every entry of `large_entries`. Each finished training
goes into pareto.json in RESULTS, from where a later call takes it up if its configuration, arguments and text are equal. Makes
pareto.md and pareto.png in RESULTS after each seed.

The text is Python's own library. Trainings see a byte .7 times on average, so they memorise little that held-out text lacks.
"""

import argparse
import functools
import hashlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import typing

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import results_json  # noqa: E402
from report_tables import gnuplot_text, table  # noqa: E402

HERE = pathlib.Path(__file__).parent
TEXT_BYTES = 4_700_000  # A tenth is held out; the rest is more than the tokens of all steps.


class Model(typing.NamedTuple):
    """A model with four heads, and its training."""

    layers: int
    width: int
    steps: int  # a multiple of all intervals, so that the last step is an exchange, unless its use is delayed
    windows: int = 16  # of a step, over all ranks
    context: int = 64  # bytes of a window
    more: tuple = ()  # arguments of zero3_gpt

    def tokens(self):
        """Number of tokens of a step, over all ranks."""
        return self.windows * self.context

    def arguments(self):
        return ("--layers", str(self.layers), "--heads", "4", "--width", str(self.width), "--context", str(self.context), *self.more)


SMALL = Model(layers=2, width=64, steps=3072)
LENGTHS = (768, 1536, SMALL.steps, 6144)
LARGE = Model(layers=5, width=128, steps=1536)

# The grid: peak rates of AdamW, and pairs of rate and momentum of the outer optimizer. The last pair is DiLoCo's.
TUNING_SEED = 1
RATES = (4e-3, 6e-3, 8e-3, 1.2e-2)
LARGE_RATES = (2e-3, 4e-3, 8e-3)
LARGE_ISLAND_RATES = (1e-3, *LARGE_RATES[:2])  # An island has fewer windows in a step, and learns best at a lower rate.
OUTER = ((1.0, 0.0), (0.7, 0.5), (0.7, 0.8), (0.7, 0.9))
ISLANDS, INTERVALS = (2, 4, 8), (8, 32, 128)
WARMUP, SHORT_WARMUP = 10, 30  # A warm-up takes a tenth of the steps, a short one a thirtieth.
CONTROL = 32  # The interval of the control, one island, which exchanges nothing.
DECAY = 0.99  # of the average of weights

INT4, INT2 = "int4:128:signed:bf16:h32", "int2:64:signed:bf16:h32"
SIGNS, THREE_LEVELS, FOUR_LEVELS = "lloyd2:128:unbiased:h128", "lloyd3:128:h128", "lloyd4:128:h128"
EXCHANGES = {16: "bf16", 4: INT4, 2: FOUR_LEVELS}

BASELINE = "bf16"
NODES = {0: (4, 2), 1: (4, 2), 2: (4, 2), 4: (4, 1), 8: (8, 1)}  # By islands (0: synchronous): ranks, and ranks of a node.


class Entry:
    """A training: `zero` and `ours` are the objects zero_optimization and zeropp of its configuration."""

    def __init__(self, purpose, zero=None, ours=None, islands=0, nodes=None):
        self.purpose, self.zero, self.ours, self.islands = purpose, zero or {}, ours or {}, islands
        self.ranks, self.ranks_per_node = nodes or NODES[islands]


QUANTIZED = {"zero_quantized_weights": True, "zero_quantized_gradients": True, "zero_hpz_partition_size": 2}


def formats(weights, gradients, **more):
    """Objects of a configuration with weight differences, and gradients between nodes, in these formats."""
    return (QUANTIZED,
            {"weight_quantizer": weights, "weight_differences": True,
             "gradient_quantizer_intra_node": "int8:256:bf16:h32", "gradient_quantizer_inter_node": gradients, **more})


ZEROPP = (QUANTIZED,
          {"weight_quantizer": "int8:256:fp16", "gradient_quantizer_intra_node": "int8:256:bf16:h32",
           "gradient_quantizer_inter_node": INT4})
BY_LAYER = formats(SIGNS, THREE_LEVELS, embedding_gradient_quantizer_inter_node=INT4)


def local(islands, every, bits, outer, purpose=None, inside=({}, {}), nodes=None, **more):
    """A training with local steps; `inside` is a configuration of islands."""
    exchange = {"islands": islands, "every": every, "learning_rate": outer[0], "momentum": outer[1], "quantizer": EXCHANGES[bits]}
    return Entry(purpose or EXCHANGES[bits], inside[0], inside[1] | {"local_steps": exchange | more}, islands, nodes)


CONTROL_NAME = f"1 island, H={CONTROL}"


def name_of(islands, interval, bits):
    return ("" if islands == 2 else f"{islands} islands, ") + f"H={interval}, {bits} bits"


GRID = {name_of(*exchange): exchange for exchange in itertools.product(ISLANDS, INTERVALS, EXCHANGES)}


def entries(outer):
    """Trainings of the comparison by name; `outer` has the chosen pair by islands and interval."""
    every = {
        BASELINE: Entry("ZeRO-3", ours={"weight_average": DECAY}),
        "ZeRO++": Entry("all of ZeRO++", *ZEROPP),
        "4+4": Entry(f"differences and gradients: {INT4}", *formats(INT4, INT4)),
        "2+2": Entry(f"differences and gradients: {INT2}", *formats(INT2, INT2)),
        "2+2 feedback": Entry(f"differences and gradients: {INT2}; error feedback on gradients",
                              *formats(INT2, INT2, gradient_error_feedback=True)),
        "signs+three": Entry(f"differences: {SIGNS}; gradients: {THREE_LEVELS}", *formats(SIGNS, THREE_LEVELS)),
        "by layer": Entry(f"differences: {SIGNS}; gradients: {THREE_LEVELS}, of embeddings and head {INT4}", *BY_LAYER),
        "slower blocks": Entry("control: blocks learn at 0.8 of the rate, nothing saved", ours={"block_rate": 0.8}),
        CONTROL_NAME: local(1, CONTROL, 16, outer[1, CONTROL], "control: the outer step alone, nothing saved"),
    }
    for name, (islands, interval, bits) in GRID.items():
        every[name] = local(islands, interval, bits, outer[islands, interval])
    variant = functools.partial(local, 2, CONTROL, 4, outer[2, CONTROL])
    name = name_of(2, CONTROL, 4)
    every[f"{name}, ZeRO++ inside"] = variant("islands of two nodes with all of ZeRO++", ZEROPP, (4, 1))
    every[f"{name}, streaming"] = variant("four fragments take turns, used two steps later, alpha 0.5", fragments=4, delay=2, alpha=0.5)
    return every


def entries_of_pair(pair):
    """Trainings of the comparison by name, all with one pair of the outer optimizer."""
    return entries(dict.fromkeys(itertools.product((1, *ISLANDS), INTERVALS), pair))


def large_entries(outer):
    """Trainings of the larger model by name."""
    names = BASELINE, "by layer", name_of(2, CONTROL, 4), name_of(2, CONTROL, 2)
    return {name: entry for name, entry in entries(outer).items() if name in names}


def library_text(file, most):
    """Writes the top-level modules of Python's library into `file`, one after another, at most `most` bytes."""
    modules = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    file.write_bytes(b"".join(module.read_bytes() for module in modules)[:most])
    return file


class Trainings:
    """Trains on a text with a program, or takes earlier results."""

    def __init__(self, program, runs, text):
        self.program, self.runs, self.text = program.resolve(), runs.resolve(), text.resolve()
        self.digest = hashlib.sha256(self.text.read_bytes()).hexdigest()

    def prepare(self):
        """Is called before a training whose result is not there yet."""

    def made(self, entry, seed, rate, model=SMALL, warmup=WARMUP):
        """Configuration, arguments and digest of a training. Earlier results with equal ones are used again."""
        config = {
            "train_micro_batch_size_per_gpu": model.windows // entry.ranks,
            "gradient_clipping": 1.0,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": rate, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}},
            "zero_optimization": {"stage": 3, **entry.zero},
            "zeropp": entry.ours,
        }
        given = ["--ranks", str(entry.ranks), "--ranks-per-node", str(entry.ranks_per_node), "--steps", str(model.steps),
                 "--warmup", str(model.steps // warmup), "--final-rate", "0", *model.arguments(), "--seed", str(seed)]
        return config, given, self.digest

    def __call__(self, name, entry, seed, *more, **named):
        """The result of one training, which runs in the folder of runs. Arguments after the name are those of `made`."""
        training = self.made(entry, seed, *more, **named)
        config, given, _ = training
        result = self.runs / f"{name.replace(' ', '_')}.{seed}.json"
        made, note = json.dumps(training), result.with_suffix(".made")
        if not (result.exists() and note.exists() and note.read_text() == made):
            self.prepare()
            print(f"{name}, seed {seed}", flush=True)
            settings, part = result.with_suffix(".config"), result.with_suffix(".part")
            settings.write_text(json.dumps(config, indent=2))
            # Ranks fill the cores, so more BLAS threads would only disturb.
            subprocess.run([self.program, settings, "--text", self.text, *given, "--json", part], check=True,
                           cwd=self.runs, stdout=subprocess.DEVNULL, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})
            # If the study is stopped in between, no note of an earlier training stands beside this result.
            note.unlink(missing_ok=True)
            part.rename(result)
            note.write_text(made)
        return json.loads(result.read_text())

    def held_out(self, *training, **more):
        return self(*training, **more)["runs"][0]["held_out_loss"]


class KeptTrainings(Trainings):
    """Trains, or takes results from the file `kept` or from `runs`. Adds all results to `kept`."""

    def __init__(self, program, runs, text, kept):
        super().__init__(program, runs, text)
        self.kept = kept
        # `kept` gets all results, so those in `runs` may be older: of another version of the file.
        for name, training in (json.loads(kept.read_text()) if kept.exists() else {}).items():
            (runs / f"{name}.json").write_text(json.dumps(training["result"]))
            (runs / f"{name}.made").write_text(training["made"])

    def __call__(self, *training, **more):
        result = super().__call__(*training, **more)
        trainings = {note.stem: {"made": note.read_text(), "result": json.loads(note.with_suffix(".json").read_text())}
                     for note in sorted(self.runs.glob("*.made"))}
        results_json.write(self.kept, trainings)
        return result


def losses_by_rate(train, name, entry, rates, model=SMALL):
    """Held-out losses of an entry from the tuning seed, by rate."""
    return {rate: train.held_out(f"{name} {rate:g}", entry, TUNING_SEED, rate, model) for rate in rates}


def tune(train):
    """Chooses the rate of synchronous training. At it, chooses an outer pair for each number of islands and interval. With the
    pair of CONTROL's interval, chooses a rate for each number of islands. Adds losses with a short warm-up."""
    synchronous = losses_by_rate(train, f"tuning {BASELINE}", Entry(""), RATES)
    best = min(synchronous, key=synchronous.get)

    def loss(islands, interval, pair, rate):
        if islands == 1 and pair == OUTER[0]:
            return synchronous[rate]  # One island's outer step changes nothing then.
        name = f"tuning {islands} islands H={interval} {pair[0]:g} {pair[1]:g} {rate:g}"
        return train.held_out(name, local(islands, interval, 16, pair), TUNING_SEED, rate)

    kinds = *((islands, every) for islands in ISLANDS for every in INTERVALS), (1, CONTROL)
    pairs = {kind: {pair: loss(*kind, pair, best) for pair in OUTER} for kind in kinds}
    # The control differs from synchronous training.
    outer = {kind: min(OUTER[1:] if kind[0] == 1 else OUTER, key=losses.get) for kind, losses in pairs.items()}
    of_islands = {islands: {rate: loss(islands, CONTROL, outer[islands, CONTROL], rate) for rate in RATES} for islands in ISLANDS}
    rates = {0: best, 1: best} | {islands: min(losses, key=losses.get) for islands, losses in of_islands.items()}

    def short(name, entry, rate):
        return train.held_out(f"tuning {name} short warmup", entry, TUNING_SEED, rate, warmup=SHORT_WARMUP)

    warmups = short(BASELINE, Entry(""), best), short("islands", local(2, CONTROL, 16, outer[2, CONTROL]), rates[2])
    return {"synchronous": synchronous, "pairs": pairs, "outer": outer, "islands": of_islands, "rates": rates, "warmups": warmups}


def bytes_per_token(file, islands, model):
    """Bytes that a node or island sends to others, for each token of a step."""
    run = file["runs"][0]
    sent = run["exchange"]["inter_node"] if islands > 1 else run["inter_node_bytes_per_step"]
    return sent / (islands if islands > 1 else file["nodes"]) / model.tokens()


def baseline_bytes(train, islands, model):
    """Bytes a token of ZeRO-3 with nodes in the place of islands. Every step sends as many, so two steps suffice."""
    ranks, _ = NODES[islands]
    nodes = max(islands, 2)
    file = train(f"bytes {model.layers} {nodes}", Entry("", nodes=(ranks, ranks // nodes)), TUNING_SEED, RATES[0],
                 model._replace(steps=2))
    return bytes_per_token(file, 0, model)


def rows_of(train, chosen, seeds, rates, model, prefix=""):
    """Facts of every training of `chosen` from these seeds, and differences from the baseline's with the same seeds. `rates` are
    by islands."""
    rate_of = {name: rates[entry.islands] for name, entry in chosen.items()}
    files = {name: [train(prefix + name, entry, seed, rate_of[name], model) for seed in seeds] for name, entry in chosen.items()}
    bases = [file["runs"][0]["held_out_loss"] for file in files[BASELINE]]
    rows = []
    for name, entry in chosen.items():
        runs = [file["runs"][0] for file in files[name]]
        sent = bytes_per_token(files[name][0], entry.islands, model)

        def differences(key):
            return [100 * (run[key] / base - 1) for run, base in zip(runs, bases) if key in run]

        rows.append({"name": name, "entry": entry, "rate": rate_of[name], "sent": sent,
                     "reduction": baseline_bytes(train, entry.islands, model) / sent,
                     "memory": runs[0]["memory_bytes_of_rank"], "losses": [run["held_out_loss"] for run in runs],
                     "differences": differences("held_out_loss"), "of_average": differences("held_out_loss_of_average")})
    return rows


def standard_error(values):
    """Standard error of the mean; 0 for one value."""
    return statistics.stdev(values) / len(values)**0.5 if len(values) > 1 else 0


def mean_text(values):
    mean = f"{statistics.mean(values):+.2f} %"
    return mean if len(values) == 1 else f"{mean} ± {standard_error(values):.2f}"


def rates_text(row):
    outer = row["entry"].ours.get("local_steps")
    return f"{row['rate']:g}" + (f"; {outer['learning_rate']:g}, {outer['momentum']:g}" if outer else "")


def table_of(rows):
    return table(["run", "formats, or purpose", "rate; outer rate, momentum", "fewer bytes", "bytes a token", "MB of a rank", "held-out loss",
                  "difference"],
                 [[r["name"], r["entry"].purpose, rates_text(r), f"{r['reduction']:.1f}x", f"{float(format(r['sent'], '.3g')):g}",
                   f"{r['memory'] / 1e6:.1f}", f"{statistics.mean(r['losses']):.4f}", mean_text(r["differences"])] for r in rows])


def losses_text(losses):
    return ", ".join(f"{rate:g}: {loss:.4f}" for rate, loss in losses.items())


def by_length(train, every, seeds, rates, model, lengths):
    """A section on synchronous training and two islands over several numbers of steps. `every` has the entries."""
    name = name_of(2, CONTROL, 4)
    cells = []
    for steps in lengths:
        prefix = "" if steps == model.steps else f"{steps} steps "
        base, islands = rows_of(train, {each: every[each] for each in (BASELINE, name)}, seeds, rates, model._replace(steps=steps), prefix)
        cells.append([str(steps), *(f"{statistics.mean(row['losses']):.4f}" for row in (base, islands)),
                      mean_text(islands["differences"]), str(steps // CONTROL)])
    return f"""## Length of the training

{BASELINE} and *{name}* over several numbers of steps, and so of tokens. Rates are those above, not chosen anew for a length.

{table(["steps", BASELINE, name, "difference", "exchanges"], cells)}""".rstrip()


def report(results, seeds, parameters, tuned, rows, lengths, large):
    of = {r["name"]: r for r in rows}

    def difference(name):
        return mean_text(of[name]["differences"])

    def beside(name, control):
        """The difference from a control in place of bf16."""
        return mean_text([100 * (a / b - 1) for a, b in zip(of[name]["losses"], of[control]["losses"])])

    four, two = name_of(2, CONTROL, 4), name_of(2, CONTROL, 2)
    within = max((r for r in rows if r["entry"].islands != 1
                  and statistics.mean(r["differences"]) + standard_error(r["differences"]) <= 1), key=lambda r: r["reduction"])
    noise = statistics.median(statistics.stdev(r["differences"]) for r in rows[1:]) if len(seeds) > 1 else None

    def losses_of(label, losses):
        return [label, *(f"{loss:.4f}" for loss in losses.values())]

    intervals = [losses_of(f"{islands} island{'s' if islands > 1 else ''}, H={interval}", losses)
                 for (islands, interval), losses in tuned["pairs"].items()]
    of_islands = [losses_of(f"{islands} islands, H={CONTROL}, outer {pair[0]:g}, {pair[1]:g}", tuned["islands"][islands])
                  for islands in ISLANDS for pair in [tuned["outer"][islands, CONTROL]]]
    edges = {RATES[0], RATES[-1]} & set(tuned["rates"].values())
    edge = "".join(f" {rate:g} is an end of the grid: a rate beyond it may be better." for rate in sorted(edges))
    page = f"""# Held-out loss against bytes

Made by `bench/pareto/run.sh --seeds "{' '.join(map(str, seeds))}"{' --large' if large else ''}`: zero3_gpt, {parameters} parameters, {SMALL.steps} steps, of which
{SMALL.steps // WARMUP} warm up, and rates that end at zero. All trainings have the same tokens, {SMALL.windows} windows of {SMALL.context} bytes in a step, drawn at
random from a text, so that a byte is seen .7 times on average. Ranks are threads: 2 nodes of 2, except for islands below. Held-out
loss is in nats per byte. Trainings of one seed have equal initial weights and batches.

The fewest bytes of this model, if a difference and its standard error must together be within 1 %, as in [the
map](../../docs/start/which_one.md): *{within["name"]}*, {within["reduction"]:.0f}x fewer than ZeRO-3, {mean_text(within["differences"])}.

{table_of(rows)}

*Fewer bytes*: than ZeRO-3 in bf16, with a node in the place of each island. *Bytes a token*: bytes that a node or island sends to others, counted on the
transport, divided by the tokens of a step. *MB of a rank*: arrays that rank 0 allocates, without activations; most are buffers at
this size, and bf16's include the average of weights below. *Difference*: of the held-out loss from bf16's of the same seed, {f"mean of {len(seeds)} seeds and its standard error" if len(seeds) > 1 else "one seed"}.{f" Between seeds, a difference varies by {noise:.2f} % (standard deviation, median over rows)." if noise else ""}
*H*: steps between two exchanges. There are two islands, unless the row says otherwise: an island is a node of 2 ranks, or one
rank with 4 or 8 islands, or with *ZeRO++ inside* two nodes of one rank. Islands keep AdamW moments of their own. Exchanges have
error feedback. Bytes inside islands are not counted. *Streaming* ends with islands that differ; its loss is their mean.

![held-out loss against bytes](pareto.png)

## Controls

Trainings that save no byte show gains that are not of the wire.

- *{CONTROL_NAME}* has the outer step on synchronous training: {difference(CONTROL_NAME)}. Beside it, *{four}* has
  {beside(four, CONTROL_NAME)}, and *{two}* {beside(two, CONTROL_NAME)}.
- An exponential moving average of bf16's weights, of decay {DECAY:g}, in place of the weights: {mean_text(of[BASELINE]["of_average"])}.
- Noise in gradients adds to second moments, which makes steps smaller. *slower blocks* has smaller steps in blocks without
  noise: {difference("slower blocks")}. Beside it, *by layer* has {beside("by layer", "slower blocks")}.

{lengths}

The longest training sees a byte 1.5 times on average.

## Rates

Rates were chosen on one grid, with seed {TUNING_SEED}, which no mean includes. Held-out losses at AdamW's peak rates:

{table(["", *(f"{rate:g}" for rate in RATES)], [losses_of(BASELINE, tuned["synchronous"]), *of_islands])}

Synchronous trainings and the control *{CONTROL_NAME}* have the first row's best rate, islands the best one of their
number.{edge} At the best rate of {BASELINE}, held-out losses of exchanges in 16 bits, by rate and momentum of the outer optimizer:

{table(["", *(f"{rate:g}, {momentum:g}" for rate, momentum in OUTER)], intervals)}

Exchanges in 4 and 2 bits have their row's best pair, though another may suit them better. The control has its best one other than
1, 0, which changes nothing.

With a warm-up of {SMALL.steps // SHORT_WARMUP} steps in place of {SMALL.steps // WARMUP}, {BASELINE} and two islands (H={CONTROL}, 16 bits), at their best rates, end at
{tuned["warmups"][0]:.4f} and {tuned["warmups"][1]:.4f}.

"""
    if large:
        page += f"""## A larger model

{large["parameters"]} parameters, {LARGE.steps} steps, the same seeds. Held-out losses of seed {TUNING_SEED} by peak rate: {BASELINE} {losses_text(large["losses"])};
*{four}* {losses_text(large["of_islands"])}.

{table_of(large["rows"])}

Synchronous trainings have the first best rate, islands the second. Outer pairs are the small model's.
"""
    (results / "pareto.md").write_text(page.rstrip() + "\n")
    draw(rows, results / "pareto.png")


def draw(rows, image):
    """Plots means and standard errors of differences against the reduction of bytes."""
    of = {r["name"]: r for r in rows}

    def line(label, row):
        values = row["differences"]
        return f'"{label}" {row["reduction"]} {statistics.mean(values)} {standard_error(values)}\n'

    sets = ["".join(line(name, row) for name, row in of.items() if name not in GRID)]
    for islands in ISLANDS:
        # The first point of an interval is labelled.
        sets.append("\n".join("".join(line("" if bits != max(EXCHANGES) else f"H={interval}", of[name_of(islands, interval, bits)])
                                     for bits in EXCHANGES) for interval in INTERVALS))
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        data.write("\n\n".join(sets))
        data.flush()
        subprocess.run(["gnuplot", "-e", f"data={gnuplot_text(data.name)}; image={gnuplot_text(image)}; islands='{' '.join(map(str, ISLANDS))}'",
                        HERE / "front.gnuplot"], check=True)


def study_parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    return parser


def arguments_of(parser):
    """The arguments of a study, of which the folder of runs is made."""
    args = parser.parse_args()
    if TUNING_SEED in args.seeds:
        sys.exit(f"{parser.prog}: --seeds: expected seeds other than {TUNING_SEED}, with which rates are chosen")
    args.runs.mkdir(parents=True, exist_ok=True)
    return args


def main():
    parser = study_parser(__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="train a larger model too")
    args = arguments_of(parser)
    train = KeptTrainings(args.program, args.runs, library_text(args.runs / "text", TEXT_BYTES), args.results / "pareto.json")
    tuned = tune(train)
    parameters = train(f"tuning {BASELINE} {RATES[0]:g}", Entry(""), TUNING_SEED, RATES[0])["parameters"]

    def make_page(seeds, large=None):
        every = entries(tuned["outer"])
        rows = rows_of(train, every, seeds, tuned["rates"], SMALL)
        lengths = by_length(train, every, seeds, tuned["rates"], SMALL, LENGTHS)
        report(args.results, seeds, parameters, tuned, rows, lengths, large)

    for count in range(1, len(args.seeds) + 1):
        make_page(args.seeds[:count])
    if not args.large:
        return
    chosen = large_entries(tuned["outer"])
    losses = losses_by_rate(train, "large tuning", Entry(""), LARGE_RATES, LARGE)
    of_islands = losses_by_rate(train, "large tuning islands", chosen[name_of(2, CONTROL, 4)], LARGE_ISLAND_RATES, LARGE)
    rates = {0: min(losses, key=losses.get), 2: min(of_islands, key=of_islands.get)}
    make_page(args.seeds, {
        "losses": losses, "of_islands": of_islands, "rows": rows_of(train, chosen, args.seeds, rates, LARGE, "large "),
        "parameters": train(f"large tuning {rates[0]:g}", Entry(""), TUNING_SEED, rates[0], LARGE)["parameters"]})


if __name__ == "__main__":
    main()
