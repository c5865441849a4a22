#!/usr/bin/env python3
"""Makes the tables, the picture and the measured figures of docs/start/which_one.md from the answers of zeropp-plan.

    examples/plan/map.py PROGRAM [--check]

PROGRAM is zeropp-plan. With --check nothing is written: the page and the picture must agree with the program.
Its losses must agree with the largest model of bench/results/pareto*.md, and figures in the page's sentences with these
pages.
"""

import argparse
import html
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/pareto"))
import sizes  # noqa: E402

PAGE = ROOT / "docs/start/which_one.md"
PICTURE = PAGE.with_suffix(".svg")
SIZES = sizes.sizes_of(ROOT / "bench/results")

# Gbit/s of an island to the others, and microseconds of latency.
LINKS = (("0.05", "50000"), ("1", "20000"), ("10", "1000"), ("100", "20"))
ISLANDS = (2, 8)
# Name of a model, options of the program, and nodes of an island.
MODELS = (
    ("1 billion", "--params 1e9 --vocabulary 32000 --width 2048 --compute-ms 1000", 1),
    ("7 billion", "--params 7e9 --vocabulary 32000 --width 4096 --compute-ms 7000", 1),
    ("70 billion", "--params 70e9 --vocabulary 128256 --width 8192 --compute-ms 8000", 8),
)
# Numbers of islands with measured losses.
MEASURED = (2, 4, 8)
# Names of synchronous settings in the studies.
IN_STUDY = {"ZeRO++": "ZeRO++", "signs, three levels": "signs+three", "by layer": "by layer"}

# Colours of settings: one for synchronous ones, one for local steps of an interval.
COLOURS = {"ZeRO-3": "#c9ced6", "exact differences": "#8fd0bf", "ZeRO++": "#9cc4f0", "by layer": "#f5cf7a",
           "signs, three levels": "#e9b44c", "every 8 steps": "#e3c4ee", "every 32 steps": "#d19be2",
           "every 128 steps": "#bb76d2"}
MARGIN, LABEL, CELL, HEAD = 10, 132, 142, 56


def answer(program, model, islands, link):
    """Lines that the program prints for a model, a number of islands and a link."""
    _, options, nodes = model
    command = [program, "--advise", *options.split(), "--nodes", str(islands * nodes), "--ranks-per-node", "8", "--islands",
               str(islands), "--between-gbit", link[0], "--between-us", link[1], "--gpu-memory-gb", "80",
               "--other-memory-gb", "30"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


def cells(row):
    """Cells of a row of a table."""
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def losses(program):
    """Table of measured losses, by setting and number of islands."""
    table = {}
    for islands in MEASURED:
        for line in answer(program, MODELS[1], islands, LINKS[1]):
            found = re.fullmatch(r"- (.*): .* s, ([-+].* M)(, 2 nodes)?, (?:fits|does not fit).*", line)
            if found and "inside" not in found[1] and not (found[3] and islands > 2):
                table.setdefault(found[1], {})[islands] = found[2]
    lines = ["| setting | " + " | ".join(f"{islands} islands or nodes" for islands in MEASURED) + " |",
             "|---|" + "---|" * len(MEASURED)]
    for setting in sorted(table, key=order):
        lines.append(f"| {setting} | " + " | ".join(table[setting].get(islands, "") for islands in MEASURED) + " |")
    return table, lines


def order(setting):
    """Key that sorts settings: synchronous ones, then local steps by interval and bits."""
    found = re.match(r"(\d+) bits every (\d+)", setting)
    return (int(found[2]), -int(found[1])) if found else (0, list(IN_STUDY).index(setting))


def studied(setting, islands):
    """Loss of a setting in the studies, of the largest model that has a row of it."""
    found = re.match(r"(\d+ bits) every (\d+)", setting)
    name = IN_STUDY.get(setting) or ("" if islands == 2 else f"{islands} islands, ") + f"H={found[2]}, {found[1]}"
    # A loss of one seed has no error, and is no row.
    of = [size for size in SIZES if size.rows.get(name, (0, None))[1] is not None]
    if not of:
        raise SystemExit(f"map.py: bench/results/pareto*.md have no row {name}")
    return f"{sizes.cell(*of[-1].rows[name])}, {of[-1].millions()}"


def with_figures(page, sentence, *figures):
    """The page with these figures in a sentence, in the places of its fields."""
    pattern = re.sub(r"\\{.*?\\}", r"[-+]?[\\d.]+", re.escape(sentence))
    page, places = re.subn(pattern, sentence.format(*figures), page)
    if places != 1:
        raise SystemExit(f"map.py: expected one sentence in {PAGE.name}: {sentence}, given {places}")
    return page


def with_prose(page, program):
    """The page with figures of the program and of the studies in its sentences."""
    help_text = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    if len(SIZES) != 3:
        raise SystemExit(f"map.py: expected results of three sizes of models in bench/results/pareto*.md, given {len(SIZES)}")
    small, larger, largest = SIZES
    for sentence, *figures in (
            ("bits, {} a weight, are of", re.search(r"--exact-bits .*=([\d.]+)", help_text)[1]),
            ("the small model has {:+.2f} %, but the largest one has {:+.2f} % in 4 bits", small.rows["H=32, 16 bits"][0],
             largest.rows["H=32, 4 bits"][0]),
            ("mean of {} seeds", len(small.seeds.split())),
            ("{} seeds of the largest", len(largest.seeds.split())),
            ("- {:.2f} M: {} steps of {} bytes, and {:.2f} M: {} steps of {} bytes (",
             *(figure for size in (small, larger) for figure in (size.parameters / 1e6, size.steps, size.model.tokens()))),
            ("- {:.2f} M: {} steps of {} bytes, on another text", largest.parameters / 1e6, largest.steps, largest.model.tokens()),
            ("4 bits every 32 steps had {:+.2f} % ± {:.2f} on the small model, and {:+.2f} % ± {:.2f} on the largest",
             *small.rows["H=32, 4 bits"], *largest.rows["H=32, 4 bits"]),
            ("more exchanges: {} in place of {}. Twice", small.steps // 32, largest.steps // 32),
            ("without saving a byte, has {:+.2f} % ± {:.2f} on the small model, and {:+.2f} % ± {:.2f} on the",
             *small.rows["1 island, H=32"], *largest.rows["1 island, H=32"])):
        page = with_figures(page, sentence, *figures)
    return page


def short(setting):
    """Name of a setting in the picture."""
    return re.sub(r" every (\d+) steps", r" / \1", setting).replace("exact differences", "exact").replace(
        "signs, three levels", "three levels").replace(", ZeRO++ inside", " +")


def marked(loss):
    """A loss with its size. A star stands for the number of nodes or islands on which it was measured."""
    return re.sub(r", \d+ (nodes|islands)$", " *", "no loss" if loss == "none" else loss)


def colour(setting):
    """Colour of a setting."""
    return next(COLOURS[key] for key in COLOURS if key in setting)


def draw(heads, rows):
    """Picture of the tables: for each limit of loss, the setting of each model, number of islands and link."""
    limits = [(i, head) for i, head in enumerate(heads) if "loss" in head]
    width = 2 * MARGIN + LABEL + len(LINKS) * CELL
    row_of = [26] + [40] * (len(limits) - 1)  # a measured loss takes a second line
    panels = [HEAD + len(MODELS) * len(ISLANDS) * row for row in row_of]
    height = 2 * MARGIN + sum(panels)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="sans-serif" '
             'font-size="12" fill="#1d2430">',
             "<title>Settings and predicted steps by model, islands, link and limit of loss</title>",
             f'<rect width="{width}" height="{height}" fill="#fbfbfd"/>']

    def text(x, y, words, more=""):
        parts.append(f'<text x="{x}" y="{y}"{more}>{html.escape(words)}</text>')

    for number, (column, head) in enumerate(limits):
        top, row = MARGIN + sum(panels[:number]), row_of[number]
        text(MARGIN, top + 18, head[0].upper() + head[1:], ' font-size="15" font-weight="bold"')
        for i, (gbit, latency) in enumerate(LINKS):
            text(MARGIN + LABEL + i * CELL + 6, top + 44, f"{gbit} Gbit/s, {int(latency) / 1000:g} ms")
        for line, (model, islands) in enumerate((model, islands) for model in MODELS for islands in ISLANDS):
            y = top + HEAD + line * row
            text(MARGIN, y + 17, f"{model[0]}, {islands} x {8 * model[2]}")
            for i, link in enumerate(LINKS):
                of_link = rows[model[0], islands, link]
                setting, _, step = of_link[column].rpartition(", ")
                x = MARGIN + LABEL + i * CELL
                parts.append(f'<rect x="{x}" y="{y}" width="{CELL - 3}" height="{row - 3}" fill="{colour(setting)}"/>')
                text(x + 6, y + 16, short(setting))
                text(x + CELL - 9, y + 16, step, ' text-anchor="end"')
                if number != 0:
                    text(x + 6, y + 31, marked(of_link[column + 1]), ' font-size="10"')
    return "\n".join([*parts, "</svg>", ""])


def with_table(page, heading, table):
    """The page with another table, the first one behind a heading."""
    pattern = re.compile(rf"(^#+ {re.escape(heading)}\n(?:(?!\||#).*\n)*)((?:\|.*\n)+)", re.M)
    page, places = pattern.subn(lambda found: found[1] + "\n".join(table) + "\n", page)
    if places != 1:
        raise SystemExit(f"map.py: expected one heading with a table in {PAGE.name}: {heading}, given {places}")
    return page


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("program")
    options.add_argument("--check", action="store_true")
    given = options.parse_args()

    page, rows = PAGE.read_text(), {}
    for model in MODELS:
        table = []
        for islands in ISLANDS:
            for link in LINKS:
                printed = answer(given.program, model, islands, link)[:3]
                table = table or printed[:2]
                table.append(printed[2])
                rows[model[0], islands, link] = cells(printed[2])
        heads = cells(table[0])
        page = with_table(page, f"{model[0].capitalize()} parameters", table)
    by_setting, table = losses(given.program)
    page = with_prose(with_table(page, "Measured losses", table), given.program)
    wrong = [f"{setting}, {islands}: the program has {loss}, the studies {studied(setting, islands)}"
             for setting, of in by_setting.items() for islands, loss in of.items() if loss != studied(setting, islands)]
    made = {PAGE: page, PICTURE: draw(heads, rows)}
    for path, content in made.items():
        if not given.check:
            path.write_text(content)
        elif not path.exists() or path.read_text() != content:
            wrong.append(f"{path.name} differs from the program: run examples/plan/map.py {given.program}")
    if wrong:
        raise SystemExit("map.py: " + "\n".join(wrong))


if __name__ == "__main__":
    main()
