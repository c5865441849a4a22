#!/usr/bin/env python3
"""Trains the largest model that two cores train in hours, in the settings of study.py that are wanted most.

largest.py PROGRAM RUNS RESULTS --seeds N...

PROGRAM is zero3_gpt. AdamW's rates are chosen with seed TUNING_SEED, which no mean includes: one for synchronous training, one for
islands, together with a pair for the outer optimizer. Then every setting is trained from one seed after another, and two of them over
more steps. Each finished training goes into pareto_largest.json in RESULTS, from where a later call takes it up if its configuration,
arguments and text are equal. Makes pareto_largest.md in RESULTS after each setting of the first seed, and after each further seed.

The text is English: the dictionaries of the Debian packages dict-gcide (GPL 3 or later) and dict-wn (WordNet's licence).
"""

import gzip
import itertools
import pathlib

from study import (BASELINE, CONTROL, CONTROL_NAME, ISLANDS, NODES, OUTER, TUNING_SEED, WARMUP, Entry, KeptTrainings, Model, arguments_of,
                   by_length, entries_of_pair, losses_by_rate, name_of, rows_of, study_parser, table, table_of)

DICTIONARIES = [pathlib.Path("/usr/share/dictd", name) for name in ("gcide.dict.dz", "wn.dict.dz")]
MODEL = Model(layers=5, width=256, steps=2304, context=128, more=("--held-out-windows", "2048"))
LENGTHS = (MODEL.steps, 2 * MODEL.steps)
RATES = (1e-3, 2e-3, 4e-3)
ISLAND_RATES = (5e-4, 1e-3, 2e-3)  # An island has fewer windows in a step, and learns best at a lower rate.
PAIRS = OUTER[1:3]  # Rate and momentum of the outer optimizer. The small model's choice was never the first or the last pair.
NAMES = (BASELINE, "ZeRO++", "4+4", "by layer", "signs+three", name_of(2, CONTROL, 4), name_of(4, CONTROL, 4), CONTROL_NAME,
         "slower blocks")  # Those wanted most come first.
OF_ISLANDS = name_of(2, CONTROL, 4)  # The setting that chooses pair and rate of islands.


def report(page, command, parameters, size, seeds, losses, of_pairs, rows, lengths):
    every_rate = sorted({*RATES, *ISLAND_RATES})

    def losses_of(label, losses):
        return [label, *(f"{losses[rate]:.4f}" if rate in losses else "" for rate in every_rate)]

    tuned = [losses_of(BASELINE, losses), *(losses_of(f"{OF_ISLANDS}, outer {rate:g}, {momentum:g}", of_pair)
                                            for (rate, momentum), of_pair in of_pairs.items())]
    page.write_text(f"""# Held-out loss of {parameters / 1e6:.1f} million parameters

Made by `{command}`: zero3_gpt, {parameters} parameters, {MODEL.steps} steps, of which {MODEL.steps // WARMUP} warm up, and rates that end at zero.
All trainings have the same tokens, {MODEL.windows} windows of {MODEL.context} bytes in a step, drawn at random from a text of {size / 1e6:.0f} MB:
two English dictionaries, Debian's packages dict-gcide (GPL 3 or later) and dict-wn (WordNet's licence). Of these, every tenth chunk of 2 KB
is held out; a byte of the rest is seen {MODEL.steps * MODEL.tokens() / (0.9 * size):.2f} times on average. Held-out loss is in nats per byte, of 2048
windows that are spread over all held-out text. Ranks, islands and columns are as in [the comparison of a small model](pareto.md).

{table_of(rows)}

*Difference*: of the held-out loss from bf16's of the same seed, {f"mean of {len(seeds)} seeds and its standard error" if len(seeds) > 1 else "one seed"}.
Held-out losses of seed {TUNING_SEED} by peak rate, and by rate and momentum of the outer optimizer:

{table(["", *(f"{rate:g}" for rate in every_rate)], tuned)}

Synchronous trainings and the control *{CONTROL_NAME}* have the first row's best rate, islands the best rate of the other rows. All local
steps have the pair of that row.{lengths}
""")


def main():
    args = arguments_of(study_parser(__doc__.splitlines()[0]))
    text = args.runs / "text"
    text.write_bytes(b"".join(gzip.decompress(file.read_bytes()) for file in DICTIONARIES))
    train = KeptTrainings(args.program, args.runs, text, args.results / "pareto_largest.json")

    losses = losses_by_rate(train, "tuning", Entry(""), RATES, MODEL)
    of_pairs = {pair: losses_by_rate(train, f"tuning islands {pair[0]:g} {pair[1]:g}", entries_of_pair(pair)[OF_ISLANDS], ISLAND_RATES, MODEL)
                for pair in PAIRS}
    rate = min(losses, key=losses.get)
    pair, of_islands = min(itertools.product(PAIRS, ISLAND_RATES), key=lambda choice: of_pairs[choice[0]][choice[1]])
    every = entries_of_pair(pair)
    rates = dict.fromkeys(NODES, rate) | dict.fromkeys(ISLANDS, of_islands)

    def make_page(names, seeds, lengths=""):
        rows = rows_of(train, {name: every[name] for name in names}, seeds, rates, MODEL)
        parameters = train(BASELINE, every[BASELINE], seeds[0], rate, MODEL)["parameters"]
        command = f'bench/pareto/run.sh --largest --seeds "{" ".join(map(str, seeds))}"'
        report(args.results / "pareto_largest.md", command, parameters, text.stat().st_size, seeds, losses, of_pairs, rows, lengths)

    for count in range(1, len(NAMES) + 1):
        make_page(NAMES[:count], args.seeds[:1])
    for count in range(2, len(args.seeds) + 1):
        make_page(NAMES, args.seeds[:count])
    for count in range(1, len(args.seeds) + 1):
        make_page(NAMES, args.seeds, "\n\n" + by_length(train, every, args.seeds[:count], rates, MODEL, LENGTHS))


if __name__ == "__main__":
    main()
