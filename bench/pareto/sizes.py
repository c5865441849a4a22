#!/usr/bin/env python3
"""Compares differences from bf16 of models of several sizes.

sizes.py RESULTS

Reads the tables of pareto.md and pareto_largest.md in RESULTS. Makes loss_by_size.md and loss_by_size.png there, of the settings
that several sizes have. Names sizes that have no results yet.
"""

import math
import pathlib
import re
import subprocess
import sys
import tempfile
import typing

import largest
from report_tables import gnuplot_text
from study import BASELINE, HERE, LARGE, SMALL, Model, table

PAGES = {"pareto.md": (SMALL, LARGE), "pareto_largest.md": (largest.MODEL,)}
CLEAR = 3  # standard errors that a change exceeds if it is named


class Size(typing.NamedTuple):
    """Results of a model in a page."""

    page: str
    seeds: str
    model: Model
    parameters: int
    steps: int
    rows: dict  # By setting: mean in percent, and standard error, None for one seed.

    def millions(self):
        return f"{self.parameters / 1e6:.2f} M"


def sizes_of(results):
    """Sizes that pages in the folder of results have, smallest first."""
    sizes = []
    for page, models in PAGES.items():
        text = (results / page).read_text() if (results / page).exists() else ""
        for model, part in zip(models, re.split(r"(?=\b\d{6,} parameters, \d+ steps)", text)[1:]):
            rows = re.findall(r"^\| (.+?) \|.*\| ([-+][\d.]+) %(?: ± ([\d.]+))? \|$", part, re.M)
            sizes.append(Size(page, re.search('--seeds "(.*?)"', text)[1], model, *map(int, re.findall(r"\d+", part)[:2]),
                              {name: (float(mean), float(error) if error else None) for name, mean, error in rows}))
    return sizes


def cell(mean, error):
    return f"{mean:+.2f} %" if error is None else f"{mean:+.2f} ± {error:.2f} %"


def change(values):
    """Change from the first of several means to the last one, and its name."""
    (first, before), (last, after) = values[0], values[-1]
    if None in (before, after):
        return cell(last - first, None), "open"
    error = math.hypot(before, after)
    return cell(last - first, error), "open" if abs(last - first) <= CLEAR * error else "grows" if last > first else "falls"


def draw(settings, image):
    """Plots means and standard errors against millions of parameters; `settings` have them by number of parameters."""
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        for name, values in settings.items():
            points = "".join(f"{parameters / 1e6} {mean} {error or 0}\n" for parameters, (mean, error) in values.items())
            data.write(f'"{name}"\n{points}\n\n')
        data.flush()
        subprocess.run(["gnuplot", "-e", f"data={gnuplot_text(data.name)}; image={gnuplot_text(image)}; settings={len(settings)}", HERE / "sizes.gnuplot"],
                       check=True)


def report(results):
    sizes = sizes_of(results)
    of = {name: {size.parameters: size.rows[name] for size in sizes if name in size.rows}
          for name in dict.fromkeys(name for size in sizes for name in size.rows) if name != BASELINE}
    of = {name: values for name, values in of.items() if len(values) > 1}
    if not of:
        print(f"loss_by_size.md: needs a setting of two sizes, given tables of {len(sizes)} in {results}")
        return
    changes = {name: change(list(values.values())) for name, values in of.items()}
    trained = "\n".join(f"- {size.millions()}: {size.parameters} parameters, seeds {size.seeds}, {size.steps} steps of "
                        f"{size.model.tokens()} bytes, {size.steps * size.model.tokens() / size.parameters:.1f} bytes a parameter"
                        f" ([{size.page}]({size.page}))" for size in sizes)
    missing = "".join(f"\n- no results yet: about {12 * model.layers * model.width**2 / 1e6:.1f} million parameters, {page}"
                      for page, models in PAGES.items() for model in models if model not in [size.model for size in sizes])

    def names(kind):
        return ", ".join(f"*{name}*" for name, (_, other) in changes.items() if other == kind) or "none"

    draw(of, results / "loss_by_size.png")
    (results / "loss_by_size.md").write_text(f"""# Loss by size of the model

Made by `bench/pareto/run.sh --sizes` from the tables of these trainings:

{trained}{missing}

Differences of held-out loss from bf16's, mean over seeds and standard error (without one: one seed). An empty cell was not trained.

{table(["setting", *(size.millions() for size in sizes), "change, first to last"],
       [[name, *(cell(*values[size.parameters]) if size.parameters in values else "" for size in sizes), ": ".join(changes[name])]
        for name, values in of.items()])}

![differences of held-out loss against millions of parameters](loss_by_size.png)

A change is called *grows* or *falls* if it exceeds {CLEAR} of its standard errors: with few seeds, errors are uncertain themselves.

## Does the price grow with the model?

- It grows: {names("grows")}. A loss of a smaller model is no promise for these.
- It falls: {names("falls")}.
- Open: {names("open")}. The seeds do not tell growth from noise.

These trainings do not show:

- that the size is the reason. Larger models had fewer bytes a parameter and fewer steps, and pareto_largest.md also has another text and
  longer windows. Each may change a price. The length of the training changes that of islands, of [a small
  model](pareto.md#length-of-the-training) and of [the largest](pareto_largest.md#length-of-the-training).
- a price of islands or of bits alone. *1 island* exchanges nothing: its difference is that of the outer optimizer's rate and momentum.
- a law, or a loss of billions of parameters. The sizes span a factor of {sizes[-1].parameters / sizes[0].parameters:.0f}.
- a gain, where a difference is below 0: [controls](pareto.md#controls) without a saved byte have such differences too.
""")


if __name__ == "__main__":
    report(pathlib.Path(sys.argv[1]))
