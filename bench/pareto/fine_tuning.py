#!/usr/bin/env python3
"""Fine-tunes a trained model in the settings of study.py.

fine_tuning.py PROGRAM RUNS RESULTS --seeds N...

PROGRAM is zero3_gpt. Trains study.py's larger model in bf16, on Python's own library. Then fine-tunes it on another text: AdamW's
rate is chosen with seed TUNING_SEED, which no mean includes, and every setting is trained from all seeds. Each finished training goes
into fine_tuning.json in RESULTS, from where a later call takes it up if its configuration, arguments and text are equal, and those of
the first training too. Makes fine_tuning.md in RESULTS after each seed.

The text is English: the dictionary of the Debian package dict-wn (WordNet's licence).
"""

import gzip
import hashlib
import json
import pathlib

from study import (BASELINE, CONTROL, LARGE, NODES, TEXT_BYTES, TUNING_SEED, WARMUP, Entry, KeptTrainings, Trainings,
                   arguments_of, entries_of_pair, library_text, losses_by_rate, losses_text, name_of, rows_of, study_parser, table_of)

DICTIONARY = pathlib.Path("/usr/share/dictd/wn.dict.dz")
PRETRAINING_RATE = 4e-3  # The best one of study.py's larger model.
PRETRAINING = LARGE._replace(more=("--dump", "weights"))
PRETRAINED = Entry(""), TUNING_SEED, PRETRAINING_RATE, PRETRAINING
WEIGHTS = f"pretraining/weights/pretrained.{TUNING_SEED}"
MODEL = LARGE._replace(steps=512, more=("--weights", WEIGHTS, "--held-out-windows", "2048"))
RATES = (1e-3, 3e-3, 1e-2)
OUTER = (0.7, 0.8)  # Rate and momentum of the outer optimizer: the small model's choice at CONTROL for two islands.
NAMES = (BASELINE, "ZeRO++", "4+4", "2+2", "signs+three", "by layer", name_of(2, CONTROL, 4))


class FineTunings(KeptTrainings):
    def __init__(self, program, runs, text, kept):
        super().__init__(program, runs, text, kept)
        folder = self.runs / "pretraining"
        folder.mkdir(exist_ok=True)
        self.pretrain = Trainings(program, folder, library_text(folder / "text", TEXT_BYTES))
        made = json.dumps([self.digest, self.pretrain.made(*PRETRAINED)])
        self.digest = hashlib.sha256(made.encode()).hexdigest()

    def prepare(self):
        self.pretrain("pretrained", *PRETRAINED)


def report(page, command, parameters, before, seeds, losses, rows):
    page.write_text(f"""# Held-out loss of fine-tuning

Made by `{command}`: zero3_gpt, {parameters} parameters, trained in bf16 for {PRETRAINING.steps} steps on Python's own library, then fine-tuned for
{MODEL.steps} steps on WordNet's dictionary (Debian's package dict-wn), of which {MODEL.steps // WARMUP} warm up, with rates that end at zero and new moments of
AdamW. All fine-tunings begin with the same weights, whose held-out loss of the dictionary is {before:.4f}; seeds draw the {MODEL.windows} windows
of {MODEL.context} bytes of each step. Held-out loss is in nats per byte, of 2048 windows. Ranks, islands and columns are as in
[the comparison of a small model](pareto.md).

{table_of(rows)}

*Difference*: of the held-out loss from bf16's of the same seed, {f"mean of {len(seeds)} seeds and its standard error" if len(seeds) > 1 else "one seed"}.
bf16's held-out losses of seed {TUNING_SEED} by peak rate: {losses_text(losses)}. All fine-tunings have the best
one. The outer optimizer's rate and momentum are the small model's choice.
""")


def main():
    args = arguments_of(study_parser(__doc__.splitlines()[0]))
    text = args.runs / "text"
    text.write_bytes(gzip.decompress(DICTIONARY.read_bytes()))
    train = FineTunings(args.program, args.runs, text, args.results / "fine_tuning.json")
    before = train.held_out("before", Entry(""), TUNING_SEED, 1e-12, MODEL._replace(steps=1))
    losses = losses_by_rate(train, "tuning", Entry(""), RATES, MODEL)
    rate = min(losses, key=losses.get)
    every = entries_of_pair(OUTER)
    for count in range(1, len(args.seeds) + 1):
        seeds = args.seeds[:count]
        rows = rows_of(train, {name: every[name] for name in NAMES}, seeds, dict.fromkeys(NODES, rate), MODEL)
        parameters = train(BASELINE, every[BASELINE], seeds[0], rate, MODEL)["parameters"]
        command = f'bench/pareto/run.sh --fine-tuning --seeds "{" ".join(map(str, seeds))}"'
        report(args.results / "fine_tuning.md", command, parameters, before, seeds, losses, rows)


if __name__ == "__main__":
    main()
