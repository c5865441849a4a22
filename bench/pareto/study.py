#!/usr/bin/env python3
"""Trains zero3_gpt with formats of fewer and fewer bits, from several seeds, and draws held-out loss against bytes.

study.py PROGRAMS RUNS RESULTS --seeds N... [--steps N]

PROGRAMS has pareto. Writes a configuration for each training into RUNS, runs trainings without a result there, and makes
pareto.md and pareto.png in RESULTS. Entries of VARIANTS on the CURVE run from all seeds, others from their own seeds or the
first two, like AT_OTHER_RATES. LARGE runs on a larger model from the first LARGE_SEEDS.

The text is Python's own library. 3000 steps see each byte less than once, so nothing is memorised that held-out text lacks.
"""

import argparse
import hashlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import sysconfig
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from report import size_text, table  # noqa: E402

HERE = pathlib.Path(__file__).parent
BASELINE = "bf16"
INSIDE = "int8:256:bf16:h32"
INT4, INT3 = "int4:128:signed:bf16:h32", "int3:128:signed:bf16:h32"
INT2, INT2_WIDE = "int2:64:signed:bf16:h32", "int2:128:signed:bf16:h128"
SPIKE2, SPIKE3 = "spike2:256", "spike3:256"
FOUR, THREE, SIGN = (f"lloyd{levels}:128:h128" for levels in (4, 3, 2))
SIGN_UNROTATED = "lloyd2:128"
FOUR_UNBIASED, THREE_UNBIASED, SIGN_UNBIASED = (f"lloyd{levels}:128:unbiased:h128" for levels in (4, 3, 2))


def differences(weights, gradients, **options):
    """A variant with weight differences, and inter-node gradients in `gradients` (None: both hops in bf16)."""
    return {"differences": True, "weights": weights, "gradients": gradients, **options}


# Seeds of later trainings that are not on the CURVE.
SECOND_MACHINE = (5, 6, 7, 8, 9, 10, 11, 12)

# Name: variant and purpose.
VARIANTS = {
    BASELINE: ({}, "ZeRO-3, the baseline"),
    "fp32": ({"bf16": False}, "control: rounds nothing"),
    "zeropp": ({"weights": "int8:256:fp16", "hpz": True, "gradients": INT4}, "all of ZeRO++"),
    "4+4": (differences(INT4, INT4), "differences and gradients of 4 bits"),
    "3+3": (differences(INT3, INT3), "of 3 bits"),
    "2+2": (differences(INT2, INT2), "of 2 bits"),
    "2+2 wide": (differences(INT2_WIDE, INT2_WIDE), "of 2 bits, in larger blocks and rotations"),
    "2+2 feedback": (differences(INT2, INT2, feedback=True), "of 2 bits, error feedback on gradients"),
    "2+16": (differences(INT2, None), "2 bits in differences alone"),
    "16+2": (differences("bf16", INT2), "2 bits in gradients alone"),
    "four+16": (differences(FOUR_UNBIASED, None), "four levels in differences alone"),
    "three+16": (differences(THREE_UNBIASED, None), "three levels in differences alone, in 1.6 bits"),
    "sign+16": (differences(SIGN_UNBIASED, None), "signs in differences alone"),
    "biased four+16": (differences(FOUR, None), "as four+16, levels of least error: differences arrive too small"),
    "biased sign+16": (differences(SIGN, None), "as sign+16, likewise"),
    "16+four": (differences("bf16", FOUR), "four levels in gradients alone"),
    "16+sign": (differences("bf16", SIGN), "signs in gradients alone"),
    "four+four": (differences(FOUR_UNBIASED, FOUR), "four levels in both"),
    "sign+4": (differences(SIGN_UNBIASED, INT4), "signs in differences, 4 bits in gradients"),
    "sign+3": (differences(SIGN_UNBIASED, INT3), "signs in differences, 3 bits in gradients"),
    "sign+four": (differences(SIGN_UNBIASED, FOUR), "signs in differences, four levels in gradients"),
    "sign+four feedback": (differences(SIGN_UNBIASED, FOUR_UNBIASED, feedback=True),
                           "the same with error feedback on gradients, whose levels are unbiased then"),
    "sign+biased four feedback": (differences(SIGN_UNBIASED, FOUR, feedback=True), "as before, levels of least error"),
    "sign+three": (differences(SIGN_UNBIASED, THREE), "signs, and three levels in 1.6 bits"),
    "sign+sign": (differences(SIGN_UNBIASED, SIGN), "signs in both"),
    "sign+sign feedback": (differences(SIGN_UNBIASED, SIGN_UNBIASED, feedback=True),
                           "signs in both, error feedback on gradients"),
    "sign+three ends4": (differences(SIGN_UNBIASED, THREE, embedding_gradients=INT4),
                         "as sign+three, with gradients of embeddings and head in 4 bits"),
    "sign+three ends4 slower": (differences(SIGN_UNBIASED, THREE, embedding_gradients=INT4, block_rate=0.8,
                                            against="slower blocks", seeds=SECOND_MACHINE[:2]),
                                "the same, blocks at 0.8 of the rate; the difference is to *slower blocks*"),
    "sign+three ends2": (differences(SIGN_UNBIASED, THREE, embedding_gradients=INT2, seeds=SECOND_MACHINE[:1]),
                         "the same, those of embeddings and head in 2 bits"),
    "sign+sign ends4": (differences(SIGN_UNBIASED, SIGN, embedding_gradients=INT4, seeds=SECOND_MACHINE[:3]),
                        "signs in both, but gradients of embeddings and head in 4 bits"),
    "sign+unrotated ends4": (differences(SIGN_UNBIASED, SIGN_UNROTATED, embedding_gradients=INT4,
                                         seeds=SECOND_MACHINE[:1]),
                             "the same, signs of gradients as they are, not rotated"),
    "slower blocks": ({"block_rate": 0.8},
                      "control: what noise in gradients does to steps, nothing saved: blocks learn at 0.8 of the rate"),
    "slowest blocks": ({"block_rate": 0.6, "seeds": SECOND_MACHINE[:2]}, "control: at 0.6 of it"),
    "predicted sign+3": (differences(f"{SIGN_UNBIASED}:ahead90:kept80", INT3, seeds=SECOND_MACHINE[:4]),
                         "as sign+3, differences to where a running mean of moves leads"),
    "predicted three+16": (differences(f"{THREE_UNBIASED}:ahead90:kept50", None, seeds=SECOND_MACHINE[:2]),
                           "as three+16, likewise"),
    "spike2+16": (differences(SPIKE2, None), "spikes reserved, 2 bits, in differences alone"),
    "16+spike2": (differences("bf16", SPIKE2), "spikes reserved, 2 bits, in gradients alone"),
    "sign+spike3": (differences(SIGN_UNBIASED, SPIKE3), "signs in differences, spikes reserved and 3 bits in gradients"),
    "lagging": (differences("lagging70", None), "control: replicas that lag as those of 2 bits do, nothing saved"),
    "noisy": (differences("noisy70", None), "control: noise of the size of 2 bits' in differences, nothing saved"),
    "lagging gradients": (differences("bf16", "lagging70", feedback=True),
                          "control: gradients of which 30 % come a step later each time, in 8 bits"),
}

# The peak rate: the baseline's best in SWEEP, within noise. At lower rates steps are too small, and formats gain if their
# noise makes steps larger.
RATE = 8e-3
SWEEP = (1.5e-3, 3e-3, 6e-3, 8e-3, 1e-2, 1.5e-2)
# A lower rate, at which some formats run beside the baseline of that rate.
LOW_RATE = 3e-3


def baseline_at(rate):
    return BASELINE if rate == RATE else f"{BASELINE} at {rate:g}"


AT_OTHER_RATES = {baseline_at(rate): ({"rate": rate}, "the baseline") for rate in SWEEP if rate != RATE}
for name in ("2+2", "2+2 feedback", "lagging", "lagging gradients"):
    AT_OTHER_RATES[f"{name} at {LOW_RATE:g}"] = (VARIANTS[name][0] | {"rate": LOW_RATE, "against": baseline_at(LOW_RATE)},
                                                 VARIANTS[name][1])

# Entries of the curve of loss against bytes, run from all seeds.
CURVE = (BASELINE, "zeropp", "4+4", "3+3", "2+2", "sign+3", "sign+four", "sign+three", "sign+three ends4", "slower blocks")

# A model about eight times as large: its arguments and steps, and peak rates of the baseline; other entries take the best.
LARGE_MODEL = ("--layers", "5", "--heads", "4", "--width", "128", "--context", "64")
LARGE_STEPS = 1200
LARGE_SWEEP = (2e-3, 4e-3, 8e-3)
LARGE_SEEDS = 3
LARGE = ("zeropp", "2+2", "sign+3", "sign+four", "sign+three")


# Windows in a step's global batch, and ranks that share it.
WINDOWS = 16
RANKS = 4


def configuration(variant):
    """The configuration of a variant for zero3_gpt."""
    zero, ours = {"stage": 3}, {}
    if "weights" in variant:
        zero["zero_quantized_weights"] = True
        ours["weight_quantizer"] = variant["weights"]
    if variant.get("gradients"):
        zero["zero_quantized_gradients"] = True
        ours |= {"gradient_quantizer_intra_node": INSIDE, "gradient_quantizer_inter_node": variant["gradients"]}
    if "embedding_weights" in variant:
        ours["embedding_weight_quantizer"] = variant["embedding_weights"]
    if "embedding_gradients" in variant:
        ours["embedding_gradient_quantizer_inter_node"] = variant["embedding_gradients"]
    if variant.get("hpz") or variant.get("differences"):
        zero["zero_hpz_partition_size"] = 2
    if variant.get("differences"):
        ours["weight_differences"] = True
    if "block_rate" in variant:
        ours["block_rate"] = variant["block_rate"]
    if variant.get("feedback"):
        ours["gradient_error_feedback"] = True
    if "average" in variant:
        ours["weight_average"] = variant["average"]
    if "local" in variant:
        ours["local_steps"] = variant["local"]
    return {
        "train_micro_batch_size_per_gpu": variant.get("windows", WINDOWS) // variant.get("ranks", RANKS),
        "gradient_clipping": 1.0,
        "bf16": {"enabled": variant.get("bf16", True)},
        "optimizer": {"type": "AdamW", "params": {"lr": variant.get("rate", RATE), "betas": [0.9, 0.95], "eps": 1e-8,
                                                  "weight_decay": 0.1}},
        "zero_optimization": zero,
        "zeropp": ours,
    }


def library_text(file, most=None):
    """Writes the top-level modules of Python's library into `file`, one after another, at most `most` bytes."""
    modules = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    file.write_bytes(b"".join(module.read_bytes() for module in modules)[:most])
    return file


def result_file(runs, name, seed):
    return runs / f"{name.replace(' ', '_')}.{seed}.json"


SMALL_MODEL = ("--layers", "2", "--heads", "4", "--width", "64", "--context", "64")


def arguments(variant, steps, seed, model=SMALL_MODEL):
    ranks = ["--ranks", str(variant["ranks"])] if "ranks" in variant else []
    return ["--ranks-per-node", str(variant.get("ranks_per_node", 2)), "--steps", str(steps), "--warmup", str(steps // 30),
            "--final-rate", "0", *model, "--seed", str(seed), *ranks]


def made_once(result, text, facts, make):
    """Contents that make(file) wrote for these facts and this text, now or in an earlier run."""
    made = json.dumps([facts, hashlib.sha256(text.read_bytes()).hexdigest()])
    note = result.with_suffix(".made")
    if not (result.exists() and note.exists() and note.read_text() == made):
        print(result.stem, flush=True)
        part = result.with_suffix(".part")
        make(part)
        part.rename(result)
        note.write_text(made)
    return json.loads(result.read_text())


def run(command):
    # Ranks fill the cores, so more BLAS threads would only disturb.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"})


def train(program, runs, name, variant, seed, steps, text, model=SMALL_MODEL):
    """Runs one training, or takes its earlier result."""
    result = result_file(runs, name, seed)
    config, given = configuration(variant), arguments(variant, steps, seed, model)

    def make(file):
        settings = result.with_suffix(".config")
        settings.write_text(json.dumps(config, indent=2))
        run([program, settings, "--text", text, *given, "--json", file])

    return made_once(result, text, [config, given], make)


def by_numpy(name, runs, text):
    """Losses by feedback.py or islands.py, as `name` says."""
    script = HERE / f"{name}.py"
    return made_once(runs / f"{name}.json", text, script.read_text(),
                     lambda file: run([sys.executable, script, text, "--json", file]))


def entry(name, variant, purpose, of_seeds, baselines):
    """Losses of one training from some seeds, and differences from the baseline's with those seeds."""
    runs = [file["runs"][0] for file in of_seeds]
    bases = [file["runs"][0] for file in baselines]

    def differences_of(key):
        return [100 * (run[key] / base[key] - 1) for run, base in zip(runs, bases)]

    inter_node_bytes = [run["inter_node_bytes_per_step"] for run in (runs[0], bases[0])]
    return {
        "name": name,
        "seeds": [file["seed"] for file in of_seeds],
        "wire": variant,
        "purpose": purpose,
        "inter_node_bytes_per_step": inter_node_bytes[0],
        "reduction": inter_node_bytes[1] / inter_node_bytes[0],
        **{key: [run[key] for run in runs] for key in ("training_loss", "held_out_loss", "held_out_loss_of_masters")},
        "difference_percent": differences_of("held_out_loss"),
        "difference_percent_of_masters": differences_of("held_out_loss_of_masters"),
        "difference_percent_of_training": differences_of("training_loss"),
    }


def train_all(program, runs, seeds, steps, text):
    """Entries of VARIANTS, of AT_OTHER_RATES, and of the larger model, its sweep first; and facts that runs share."""
    every = VARIANTS | AT_OTHER_RATES

    def train_from(name, seed):
        return train(program, runs, name, every[name][0], seed, steps, text)

    def entry_of(name):
        variant, purpose = every[name]
        of = seeds if name in CURVE else variant.get("seeds", seeds[:2])
        return entry(name, variant, purpose, [train_from(name, seed) for seed in of],
                     [train_from(variant.get("against", BASELINE), seed) for seed in of])

    entries = {name: entry_of(name) for name in every}

    def train_large(name, variant, of=seeds[:LARGE_SEEDS]):
        return [train(program, runs, f"large {name}", variant, seed, LARGE_STEPS, text, LARGE_MODEL) for seed in of]

    sweep = {rate: train_large(f"{BASELINE} at {rate:g}", {"rate": rate}, seeds[:1]) for rate in LARGE_SWEEP}
    best = min(sweep, key=lambda rate: sweep[rate][0]["runs"][0]["held_out_loss"])
    baselines = train_large(f"{BASELINE} at {best:g}", {"rate": best})
    large = {"parameters": sweep[best][0]["parameters"], "rate": best,
             "sweep": [(rate, of[0]["runs"][0]["held_out_loss"]) for rate, of in sweep.items()],
             "runs": [entry(name, VARIANTS[name][0], VARIANTS[name][1], train_large(name, VARIANTS[name][0] | {"rate": best}),
                            baselines) for name in LARGE]}
    return train_from(BASELINE, seeds[0]), [entries[n] for n in VARIANTS], [entries[n] for n in AT_OTHER_RATES], large


def mean_text(values):
    mean = f"{statistics.mean(values):+.2f} %"
    return mean if len(values) == 1 else f"{mean} ± {statistics.stdev(values) / len(values)**0.5:.2f}"


def wire_text(wire):
    """Texts of the formats of weights and gradients."""
    plain = "bf16" if wire.get("bf16", True) else "fp32"

    def with_embedding(others, kind):
        return f"{others}, {wire[kind]} for embeddings and head" if kind in wire else others

    return (with_embedding(wire.get("weights", plain), "embedding_weights") +
            (", of differences" if wire.get("differences") else ""),
            with_embedding(wire.get("gradients") or plain, "embedding_gradients") +
            (", error feedback" if wire.get("feedback") else ""))


def rows_of(entries):
    """Rows of entries for a table under COLUMNS."""
    return [[e["name"], *wire_text(e["wire"]), e["purpose"], f"{e['reduction']:.2f}x", size_text(e["inter_node_bytes_per_step"]),
             len(e["held_out_loss"]), f"{statistics.mean(e['held_out_loss']):.4f}", mean_text(e["difference_percent"]),
             mean_text(e["difference_percent_of_masters"]), mean_text(e["difference_percent_of_training"])]
            for e in entries]


COLUMNS = ["run", "weights", "gradients across nodes", "what it is", "reduction", "across nodes per step", "seeds",
           "held-out loss", "difference", "of masters", "of training loss"]


def against_control(entry, control):
    """Differences of held-out losses of an entry from a control's, in percent, for seeds that both have."""
    losses = [dict(zip(e["seeds"], e["held_out_loss"])) for e in (entry, control)]
    return [100 * (losses[0][seed] / losses[1][seed] - 1) for seed in losses[0] if seed in losses[1]]


def report(results, seeds, header, entries, at_other_rates, large, feedback):
    of = {e["name"]: e for e in entries + at_other_rates}
    base = of[BASELINE]
    gap = [100 * (h / t - 1) for h, t in zip(base["held_out_loss"], base["training_loss"])]
    sweep = [[f"{rate:g}", *(f"{loss:.4f}" for loss in of[baseline_at(rate)]["held_out_loss"][:2])] for rate in SWEEP]
    page = f"""# Held-out loss against bytes

Made by `bench/pareto/run.sh --seeds "{' '.join(map(str, seeds))}"`: zero3_gpt, {header['parameters']} parameters on {header['nodes']} nodes
x {header['ranks_per_node']} ranks (threads), {header['steps']} steps, rates that end at zero, and a text of which no byte is seen twice on average:
the baseline's held-out loss is {statistics.mean(gap):+.1f} % from its training loss (of the last steps), so that nothing which hinders
overfitting is rewarded. The peak rate is {RATE:g}, within noise of the baseline's best (below). A seed fixes the initial weights
and the order of the text, so runs of one seed differ in nothing but the wire, if they are of one machine: another
processor's BLAS rounds otherwise, which after 3000 steps is as much as another seed. Where there are fewer seeds than for the baseline,
they are the first two, or, for others of precision by layer and for predictions, those from {SECOND_MACHINE[0]} on. Losses are in nats per byte.
The committed runs have [remarks](pareto_remarks.md), which this script does not write.

{table(COLUMNS, rows_of(entries))}

*Difference*: of the held-out loss to the baseline's of the same seed, mean over seeds and its standard error, with the
weights that ranks gather; *of masters*: the same with the exact weights that the optimizer has; *of training loss*: of the last 20
steps. What travels as differences goes into weights that each node keeps, divided over its ranks, in bf16, and nothing crosses
nodes on the way back; bytes are counted on the transport, whole weights of the first step and padding included. *Levels*
are those that lose least of normal data, in blocks of 128 rotated elements with a scale of one byte; unbiased,
they are larger by what is lost on average.

![held-out loss against bytes](pareto.png)

## The rate decides what looks good

{table(["peak rate", *(f"held-out loss of the baseline, seed {seed}" for seed in seeds[:2])], sweep)}

At {LOW_RATE:g}, well below the best, steps are too small, and whatever makes them larger, as noise does, is rewarded; the same runs as
above compare otherwise there. A comparison at such a rate says little of the wire.

{table(COLUMNS, rows_of([e for e in at_other_rates if e["name"] != BASELINE and "against" in e["wire"]]))}

## Precision by layer

Embeddings and head are 27 % of the parameters. Most bytes are rare in the text: their gradients are small beside those they share
blocks with, so that they take over noise, which Adam divides by second moments as small as they are. *sign+three ends4* has
4 bits for these gradients, and three levels for those of the transformer's blocks: {of["sign+three ends4"]["reduction"]:.1f}x fewer bytes than ZeRO-3, and
{mean_text(of["sign+three ends4"]["difference_percent"])} in place of *sign+three*'s {mean_text(of["sign+three"]["difference_percent"])}. With signs for the blocks', {of["sign+sign ends4"]["reduction"]:.1f}x fewer, it is
{mean_text(of["sign+sign ends4"]["difference_percent"])} in place of {mean_text(of["sign+sign"]["difference_percent"])}.

That it ends below the baseline is not all the wire's merit. Noise in gradients adds to second moments, which makes steps smaller, and the
blocks do better with smaller ones: *slower blocks*, which saves no byte, has {mean_text(of["slower blocks"]["difference_percent"])}. Beside this control, of the same
seeds, *sign+three ends4* has {mean_text(against_control(of["sign+three ends4"], of["slower blocks"]))}.

## Differences to a prediction

Adam's steps resemble those before. *predicted* has all nodes hold a running mean of the moves decoded, in one more 16-bit number for each
weight that they keep, and sends differences to where it leads. With signs that is worse:
{mean_text(of["predicted sign+3"]["difference_percent"])} in place of {mean_text(of["sign+3"]["difference_percent"])}. With three levels it is {mean_text(of["predicted three+16"]["difference_percent"])} in place of
{mean_text(of["three+16"]["difference_percent"])}, which is within noise.

## Error feedback and Adam

`bench/pareto/feedback.py`, which is NumPy and float64 alone: a small network, {feedback['steps']} steps, gradients of two nodes
rotated and rounded to two bits; held-out loss at each peak rate, mean over {len(feedback['seeds'])} seeds.

{table(["", *(f"{rate:g}" for rate in feedback["rates"])],
       [[name, *(f"{loss:.4f}" for loss in losses)] for name, losses in feedback["losses"].items()])}

With feedback, what arrives is the gradient and the last step's residual, less the next one's: noise that takes from one step
what it has added to the other, so that of its first moments next to nothing is left, and all of it in the second ones. Steps become
smaller, most of all for weights whose gradients are small, and the best rate is a higher one. The last two rows have the second moments of exact gradients
instead. Where codes are biased (levels of least error arrive too small), feedback also delays what they leave out: the control
*lagging gradients* shows what a delay alone costs.

## A model of {large['parameters']} parameters

{LARGE_STEPS} steps, the first {LARGE_SEEDS} seeds; the baseline's held-out loss of seed {seeds[0]} at peak rates of {', '.join(f'{rate:g}: {loss:.4f}' for rate, loss in large['sweep'])}.

{table(COLUMNS, rows_of(large["runs"]))}

The sweep is a coarse one: where few bits end below the baseline, its rate may be lower than its best, at which noise is rewarded, as
above. What the table says is that a larger model does not suffer more from few bits.
"""
    (results / "pareto.md").write_text(page)
    draw(entries, "difference_percent", results / "pareto.png", 64)


def draw(entries, key, image, most):
    """Plots means and standard errors of the differences under `key` against the reduction of bytes, up to `most`."""
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        for e in entries:
            values = e[key]
            error = statistics.stdev(values) / len(values)**0.5 if len(values) > 1 else 0
            data.write(f'"{e["name"]}" {e["reduction"]} {statistics.mean(values)} {error}\n')
        data.flush()
        subprocess.run(["gnuplot", "-e", f"data='{data.name}'; image='{image}'; most={most}", HERE / "front.gnuplot"],
                       check=True)


def argument_parser(description):
    """A parser of the arguments that all studies have."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    return parser


def main():
    parser = argument_parser(__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
    args.runs.mkdir(parents=True, exist_ok=True)
    text = library_text(args.runs / "text")
    feedback = by_numpy("feedback", args.runs, text)
    report(args.results, args.seeds, *train_all(args.programs / "pareto", args.runs, args.seeds, args.steps, text), feedback)


if __name__ == "__main__":
    main()
