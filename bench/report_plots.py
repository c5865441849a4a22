"""Plots of results of bench/run.sh, by gnuplot."""

import pathlib
import subprocess
import tempfile

from report_tables import (COLLECTIVES, collective_rows, gnuplot_text, place_order, place_text, quantizer_order, size_text,
                           training_runs)


def plot(folder, name, heading, unit, heads, rows):
    """Plots bars: a group for each row, a bar for each column after the first. Returns the image as Markdown."""
    if not rows:
        return ""
    lines = [" ".join(f'"{head}"' for head in ["where", *heads])]
    lines += [" ".join(f'"{cell}"' if i == 0 else str(cell) for i, cell in enumerate(row)) for row in rows]
    with tempfile.NamedTemporaryFile("w", suffix=".dat") as data:
        data.write("\n".join(lines) + "\n")
        data.flush()
        settings = f"data={gnuplot_text(data.name)}; image={gnuplot_text(f'{folder / name}.png')}; "
        settings += f"heading='{heading}'; unit='{unit}'; "
        settings += f"columns={len(heads) + 1}"
        subprocess.run(["gnuplot", "-e", settings, str(pathlib.Path(__file__).parent / "bars.gnuplot")], check=True)
    return f"![{heading}]({name}.png)\n"


def plot_collective(results, folder, collective):
    """Bars of the largest tensor on the smallest cluster with the slowest links, each series by its fastest run."""
    of_cluster = [x for x in collective_rows(results, collective) if x[0].startswith("cluster")]
    if not of_cluster:
        return ""
    largest = max(row["size"] for _, _, row in of_cluster)
    place = min((place for place, _, _ in of_cluster), key=place_order)
    rows = [row for where, _, row in of_cluster if where == place and row["size"] == largest]
    bits = {row["quantizer"]: -quantizer_order(row["quantizer"])[0][-1] for row in rows if "int" in row["quantizer"]}
    times = {}

    def add(series, contestant):
        times[series] = min(times.get(series, float("inf")), contestant["time_us"] / 1e3)

    for row in sorted(rows, key=lambda row: quantizer_order(row["quantizer"])):
        for series, key in (("MPI, 32 bits", "native_fp32"), ("MPI, 16 bits", "native_bf16"), ("ours, 16 bits", "ours_bf16")):
            add(series, row[key])
        if row["quantizer"] in bits:
            add(f"ours, {bits[row['quantizer']]} bits", row["out_of_place"])
    fewest = min(bits, key=bits.get)
    for row in rows:
        if row["quantizer"] == fewest:
            add(f"bare messages, {bits[fewest]} bits", row["bare_exchange"])
    heading = f"{COLLECTIVES[collective]}: {size_text(largest)} of fp32, {place_text(place)}"
    return plot(folder, collective, heading, "time, ms", list(times), [["", *(round(t, 1) for t in times.values())]])


def plot_codec(results, folder):
    contents = results.get(("codec", "perf"), {"rows": []})
    largest = max((r["size"] for r in contents["rows"]), default=0)
    groups = {}
    for r in contents["rows"]:
        if r["size"] == largest and r["type"] == "float":
            groups.setdefault(r["operation"].replace("reduce_", "reduce_\\n"), {})[r["quantizer"]] = r["fraction_of_loop"]
    quantizers = sorted({q for values in groups.values() for q in values}, key=quantizer_order)
    rows = [[group] + [values.get(q, "-") for q in quantizers] for group, values in groups.items()]
    return plot(folder, "codec", f"host codec on one thread, {size_text(largest)} of fp32", "speed, of a plain loop", quantizers, rows)


def plot_training(results, folder):
    places = list(dict.fromkeys(place for place, _, _ in training_runs(results)))
    names = list(dict.fromkeys(run["name"] for _, run, _ in training_runs(results)))
    times = {(place, run["name"]): run["step_seconds_median"] * 1e3 for place, run, _ in training_runs(results)}
    rows = [[place_text(place)] + [times.get((place, name), "-") for name in names] for place in places]
    return plot(folder, "zero3_gpt", "zero3_gpt across a cluster", "step, ms", names, rows)
