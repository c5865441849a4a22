"""Results of bench/run.sh as rows, and tables of them: each column stands once, as its heading and its cell."""

import functools
import json
import re

COLLECTIVES = {
    "all_gather": "quantized_all_gather",
    "reduce_scatter": "hierarchical_quantized_reduce_scatter",
    "all_to_all": "quantized_all_to_all",
    "secondary": "secondary_partition_gather",
}

RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def place_order(place):
    """Sort key of places: by name; clusters by size, then by rate."""
    shape = re.fullmatch(r"cluster_(\d+)x(\d+)_(\d+)([kmg]bit)", place)
    if not shape:
        return place, ()
    nodes, per_node, rate, unit = shape.groups()
    return "cluster", (int(nodes), int(per_node), int(rate) * RATE_UNITS[unit])


def quantizer_order(name):
    """Sort key of quantizers and pairs: from many bits to few, then by name."""
    return [-int(re.match(r"[a-z]+(\d+)", hop).group(1)) for hop in name.split("+")], name


def load(folder):
    """Results as {(place, what): contents}, in the order of places. A run that has failed leaves an empty file."""
    results = {}
    files = [file.name.split(".", 2) for file in folder.glob("*.*.json")]
    for place, what, _ in sorted(files, key=lambda name: (place_order(name[0]), name[1])):
        if text := (folder / f"{place}.{what}.json").read_text():
            results[place, what] = json.loads(text)
    return results


def table(heads, rows):
    """A Markdown table of rows of texts; empty without rows. The first column is left-aligned, the others are right-aligned."""
    if not rows:
        return ""
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def table_of(columns, items):
    """A Markdown table of `items`. `columns` are pairs: the heading, and a function from an item to its cell."""
    return table([head for head, _ in columns], [[cell(item) for _, cell in columns] for item in items])


def gnuplot_text(text):
    """`text` as a text of gnuplot's."""
    return "'" + str(text).replace("'", "''") + "'"


def size_text(count):
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024 or unit == "GB":
            return f"{count:.4g} {unit}"
        count /= 1024


def time_text(microseconds):
    return f"{microseconds:.1f} us" if microseconds < 1e4 else f"{microseconds / 1e3:.1f} ms"


def rate_text(rate):
    number, unit = re.fullmatch(r"(\d+)([kmg])bit", rate).groups()
    return f"{number} {unit.upper() if unit != 'k' else unit}bit/s"


def place_text(place):
    kind, *parts = place.split("_")
    if kind == "cluster":
        nodes, per_node = parts[0].split("x")
        return f"{nodes} nodes x {per_node} ranks, {rate_text(parts[1])}"
    if kind == "sites":
        sites, nodes, per_node = parts[0].split("x")
        return (f"{sites} sites x {nodes} nodes x {per_node} ranks, {rate_text(parts[1])} a node, "
                f"{rate_text(parts[2])} a site")
    return place.replace("_", " ")


def collective_rows(results, collective):
    """Yields (place, chunks, row) for every row of a collective."""
    for (place, what), contents in results.items():
        if contents.get("program") == COLLECTIVES[collective] + "_perf":
            for row in contents["rows"]:
                yield place, contents.get("chunks", 1), row


def part(*keys, text=str):
    """A column's function: the text of a row's member, by `keys` from the outermost."""
    return lambda row: text(functools.reduce(lambda value, key: value[key], keys, row))


def number(digits):
    return lambda value: f"{value:.{digits}f}"


COLLECTIVE_COLUMNS = [
    ("where", lambda r: place_text(r["place"]) + (f", {r['chunks']} chunks" if r["chunks"] > 1 else "")),
    ("tensor", lambda r: f"{size_text(r['size'])} {r['type']}"),
    ("quantizer", part("quantizer")),
    ("time", part("out_of_place", "time_us", text=time_text)),
    ("p99", part("out_of_place", "p99_us", text=time_text)),
    ("busbw GB/s", part("out_of_place", "busbw_gbs", text=number(3))),
    ("SQNR dB", lambda r: sqnr_text(r["out_of_place"])),
    ("wire bytes intra-node", part("intra_node_wire_bytes", text=size_text)),
    ("inter-node", part("inter_node_wire_bytes", text=size_text)),
    ("ratio", lambda r: f"{r['compression_ratio'] or 1:.2f}"),
    ("native fp32", part("native_fp32", "time_us", text=time_text)),
    ("bf16", part("native_bf16", "time_us", text=time_text)),
    ("ours in bf16", part("ours_bf16", "time_us", text=time_text)),
    ("speed-up over native fp32", part("native_fp32", "speedup", text=number(2))),
    ("bf16", part("native_bf16", "speedup", text=number(2))),
    ("over ours in bf16", part("ours_bf16", "speedup", text=number(2))),
    ("bare exchange", part("bare_exchange", "time_us", text=time_text)),
    ("ours / bare", part("bare_exchange", "ours_over_bare", text=number(2))),
    ("processor, ours", part("processor_us", "ours", text=time_text)),
    ("bare", part("processor_us", "bare_exchange", text=time_text)),
    ("#wrong", lambda r: r["out_of_place"]["wrong"] + (r["in_place"] or {"wrong": 0})["wrong"]),
]

LEVELS_COLUMNS = [
    ("where", lambda r: f"{place_text(r['place'])}, {r['chunks']} chunks"),
    ("tensor", part("size", text=size_text)),
    ("topology", lambda r: f"`{r['topology']}`"),
    ("time", part("time_us", text=time_text)),
    ("p99", part("p99_us", text=time_text)),
    ("of three levels'", part("of_three_levels", text=number(2))),
    ("bare exchange of the slowest level", part("bare_us", text=time_text)),
    ("ours / bare", part("ours_over_bare", text=number(2))),
    ("wire bytes intra-node", part("intra_node_wire_bytes", text=size_text)),
    ("inter-node", part("inter_node_wire_bytes", text=size_text)),
    ("inter-site", part("inter_site_wire_bytes", text=size_text)),
    ("processor", part("processor_us", text=time_text)),
    ("#wrong", part("wrong")),
]

CODEC_COLUMNS = [
    ("tensor", lambda r: f"{size_text(r['size'])} {r['type']}"),
    ("quantizer", part("quantizer")),
    ("operation", part("operation")),
    ("ns an element", part("element_ns", text=number(3))),
    ("GB/s", part("speed_gbs", text=number(2))),
    ("plain loop GB/s", part("loop_speed_gbs", text=number(2))),
    ("codec / plain loop", part("fraction_of_loop", text=number(2))),
    ("{threads} threads, times as fast", lambda r: f"{r.get('threads_times', 1):.2f}"),
    ("the plain loop's", lambda r: f"{r.get('threads_loop_times', 1):.2f}"),
]


def sqnr_text(form):
    """The signal-to-noise ratio of a result; null stands for no errors."""
    sqnr = form.get("sqnr_db", "unknown")
    return "exact" if sqnr is None else sqnr if isinstance(sqnr, str) else f"{sqnr:.1f}"


def collective_table(results, collective):
    rows = [{**row, "place": place, "chunks": chunks} for place, chunks, row in collective_rows(results, collective)]
    rows.sort(key=lambda r: (place_order(r["place"]), r["chunks"], r["size"], quantizer_order(r["quantizer"])))
    return table_of(COLLECTIVE_COLUMNS, rows)


def levels_rows(results):
    """Rows of levels_perf, with their place and chunks."""
    return [{**row, "place": place, "chunks": contents["chunks"] if contents["chunks"] > 0 else "automatic"}
            for (place, what), contents in results.items() if what.startswith("levels") for row in contents["rows"]]


def algorithm_table(results):
    """A table of the fastest algorithms among those that MPI offers."""
    fastest = {}
    for collective in COLLECTIVES:
        for place, _, row in collective_rows(results, collective):
            for k, bits in (("native_fp32", "fp32"), ("native_bf16", "bf16")):
                if row[k]["algorithm"]:
                    fastest.setdefault((COLLECTIVES[collective], place, row["size"], bits), row[k]["algorithm"])
    return table_of([("beside", lambda r: r[0][0]), ("where", lambda r: place_text(r[0][1])),
                  ("tensor", lambda r: size_text(r[0][2])), ("format", lambda r: r[0][3]),
                  ("native algorithm", lambda r: r[1])], list(fastest.items()))


def codec_table(results):
    contents = results.get(("codec", "perf"), {"rows": []})
    columns = [(head.format(threads=contents.get("threads", 1)), cell) for head, cell in CODEC_COLUMNS]
    return table_of(columns, contents["rows"])


def training_runs(results):
    """Yields (place, run, baseline run) for every run of zero3_gpt on a cluster."""
    for (place, what), contents in results.items():
        if what == "zero3_gpt" and place != "local":
            for run in contents["runs"]:
                yield place, run, contents["runs"][0]


def training_table(results):
    local = results.get(("local", "zero3_gpt"))

    def share(r):
        """Of communication, in the baseline's step: the excess over a step without a network."""
        if not local or r["run"] is not r["baseline"]:
            return "-"
        return f"{1 - local['runs'][0]['step_seconds_median'] / r['run']['step_seconds_median']:.0%}"

    columns = [
        ("where", part("place", text=place_text)),
        ("run", part("run", "name")),
        ("step", lambda r: time_text(r["run"]["step_seconds_median"] * 1e6)),
        ("steps per second, of zero3's",
         lambda r: f"{r['baseline']['step_seconds_median'] / r['run']['step_seconds_median']:.2f}"),
        ("communication's share of zero3's step", share),
        ("training loss", part("run", "training_loss", text=number(4))),
        ("held-out loss", part("run", "held_out_loss", text=number(4))),
        ("across nodes per step", part("run", "inter_node_bytes_per_step", text=size_text)),
    ]
    return table_of(columns, [{"place": place, "run": run, "baseline": baseline}
                           for place, run, baseline in training_runs(results)])
