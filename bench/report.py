#!/usr/bin/env python3
"""Tables and plots from the results of bench/run.sh.

report.py RESULTS

Reads every *.json in RESULTS (a file is called PLACE.WHAT.json, and PLACE is codec, local, threads_NxR,
cluster_NxR_RATE or sites_SxNxR_RATE_SITERATE), writes README.md there with all tables, and plots with gnuplot. The reasons
why targets are missed are kept beside them in why_*.md, written by hand, and become a section.
"""

import json
import pathlib
import sys

from report_plots import plot_codec, plot_collective, plot_training
from report_tables import (COLLECTIVES, LEVELS_COLUMNS, algorithm_table, codec_table, collective_rows, collective_table,
                           levels_rows, load, place_text, size_text, table, table_of, training_runs, training_table)


def sites_ignored(row):
    """Whether a row of levels_perf has the real nodes, in no sites."""
    sites, nodes, per_node = map(int, row["place"].split("_")[1].split("x"))
    return row["topology"] == f"two_level({sites * nodes}, {per_node})"


def targets(results):
    """Rows of the project's targets: text, measured value, limit, met."""
    rows = []

    def judge(text, value, limit, at_most):
        rows.append((text, value, f"{'at most' if at_most else 'at least'} {limit}",
                     value <= limit if at_most else value >= limit))

    codec = results.get(("codec", "perf"), {"rows": []})
    largest = max((r["size"] for r in codec["rows"]), default=0)
    for r in codec["rows"]:
        if r["size"] == largest and r["quantizer"] in ("int8:256", "int4:128") and not r["operation"].endswith(("_2", "_8")):
            judge(f"codec, {r['operation']} {r['quantizer']}, {size_text(largest)} of {r['type']}, of the plain loop",
                  r["fraction_of_loop"], 0.9, False)
    for collective in ("all_gather", "reduce_scatter", "secondary"):
        of_cluster = [x for x in collective_rows(results, collective) if x[0].startswith("cluster")]
        largest = max((row["size"] for _, _, row in of_cluster), default=0)
        for place, chunks, row in of_cluster:
            if row["size"] != largest:
                continue
            where = (f"{place_text(place)}, {COLLECTIVES[collective]}, {row['quantizer']}"
                     f"{f', {chunks} chunks' if chunks > 1 else ''}, {size_text(largest)}")
            inter_node = row["quantizer"].split("+")[-1]
            if not inter_node.startswith("int"):
                continue
            judge(f"{where}: time of the bare exchange", row["bare_exchange"]["ours_over_bare"],
                  1.15 if place.endswith("_200mbit") else 1.3, True)
            # This target is about slow links between nodes, which the secondary gather does not use.
            if collective != "secondary":
                factor = 4 if inter_node.startswith("int4") else 2
                judge(f"{where}: speed-up over native bf16", row["native_bf16"]["speedup"], factor, False)
                judge(f"{where}: speed-up over native fp32", row["native_fp32"]["speedup"], 2 * factor, False)
    for collective in ("all_gather", "reduce_scatter", "secondary"):
        for place, _, row in collective_rows(results, collective):
            if place.startswith("threads") and row["size"] == 4096:
                judge(f"{place_text(place)}, {COLLECTIVES[collective]}, {row['quantizer']}, 4 KB: time of lossless",
                      1 / row["native_fp32"]["speedup"], 2, True)
    for place, run, baseline in training_runs(results):
        if run["name"] == "zeropp":
            judge(f"{place_text(place)}, zero3_gpt with all of ZeRO++: steps per second, of ZeRO-3's",
                  baseline["step_seconds_median"] / run["step_seconds_median"], 2.3, False)
            zeropp = run
        if run["name"] == "differences" and place.endswith("_50mbit"):
            judge(f"{place_text(place)}, zero3_gpt with differences: steps per second, of all of ZeRO++'s",
                  zeropp["step_seconds_median"] / run["step_seconds_median"], 1.7, False)
    for row in levels_rows(results):
        where = f"{place_text(row['place'])}, {row['chunks']} chunks, reduce-scatter, {size_text(row['size'])}"
        if row["topology"].startswith("three_level"):
            judge(f"{where}, over three levels: time of its slowest level's bare exchange", row["ours_over_bare"], 1.15, True)
        elif sites_ignored(row):
            judge(f"{where}, with sites ignored: time, of three levels'", row["of_three_levels"], 1.8, False)
    return table_of([("target", lambda r: r[0]), ("measured", lambda r: f"{r[1]:.2f}"), ("wanted", lambda r: r[2]),
                  ("met", lambda r: "yes" if r[3] else "**no**")], rows)


def why(folder):
    return "\n".join(file.read_text() for file in sorted(folder.glob("why_*.md")))


def write(folder):
    """Writes README.md and the plots into the folder of results."""
    results = load(folder)
    machine = json.loads((folder / "machine.json").read_text())
    sections = [("Targets", targets(results)), ("Why targets are missed", why(folder)),
                ("Host codec", plot_codec(results, folder) + "\n" + codec_table(results))]
    sections += [(name, plot_collective(results, folder, key) + "\n" + collective_table(results, key))
                 for key, name in COLLECTIVES.items()]
    sections.append(("Sites: hierarchical_quantized_reduce_scatter over three levels",
                     table_of(LEVELS_COLUMNS, levels_rows(results))))
    sections.append(("Native algorithms", algorithm_table(results)))
    sections.append(("Training: zero3_gpt", plot_training(results, folder) + "\n" + training_table(results)))

    text = "# Results\n\nMade by `" + machine.pop("command") + "`.\n\n"
    text += table_of([("machine", lambda r: r[0]), ("", lambda r: r[1])], machine.items()) + """
Times are medians over iterations of the slowest rank's time; the contestants of a row took turns. Native is MPI's own
collective by the fastest of its algorithms (a trial of each came first), or on threads the library's with elements as
they are. *Ours in bf16* is the library's own collective, hops and chunks as in the row, without quantization: a gain
over it comes from the bits, at most 2x for 8 bits and 4x for 4. The rest of a gain over native comes from a route that
crosses each link once. Wire bytes are those of all ranks in one call. The bare
exchange moves them between the same ranks and does nothing else; over MPI it waits in MPI_Waitall or as the library does,
whichever is faster. Processor is the time that the ranks' processes have spent in one call, all together; waiting may spend
it too, and the network's part in the kernel is only in it where it ran in a rank's name.

What the formats lose, which no machine changes, has pages of its own: [accuracy](accuracy.md), made by
`bench/accuracy/run.sh`, [convergence](convergence.md), made by `bench/convergence/run.sh`, [recovery](recovery.md) after a rank has
died, made by `bench/recovery/run.sh`, and of fewer and fewer bits and local steps
[pareto](pareto.md), [the largest model](pareto_largest.md), [fine-tuning](fine_tuning.md) and [losses by size](loss_by_size.md), made by
`bench/pareto/run.sh`. Kernels were measured on an
[H100](gpu_h100.md) and an [H200](gpu_h200.md) by `tests/gpu.sh`, and are predicted from their machine code in [roofline](roofline.md)
by `bench/codec_gpu/roofline.py --write`.
"""
    for name, body in sections:
        if body.strip():
            text += f"\n## {name}\n\n{body.strip()}\n"
    (folder / "README.md").write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(pathlib.Path(sys.argv[1]))
