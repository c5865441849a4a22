#!/usr/bin/env python3
"""The tables and the plot of bench/accuracy/run.sh.

report.py RESULTS

Reads accuracy.json and entropy.json in RESULTS, as `accuracy --json` and `entropy --json` write them, and writes accuracy.md and accuracy.png (with gnuplot).
"""

import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
from report_tables import gnuplot_text, table  # noqa: E402

WORTH_A_CODER = 1.25  # times the bits of an ideal coder
SAMPLES = {
    "gauss": "Gaussian",
    "t3": "Student's t with 3 degrees of freedom: heavy tails",
    "uniform": "uniform over (-1, 1)",
    "sparse": "90 % zeros, the others Gaussian",
    "gradients": "rank 0's gradients of step 200 of zero3_gpt, before they are reduced",
    "weights": "the weights of that step",
}


def decibels(row):
    return "exact" if row["sqnr_db"] is None else f"{row['sqnr_db']:.2f}"


def by_format(rows):
    """Rows as {format: {sample: row}}, in their order."""
    formats = {}
    for row in rows:
        formats.setdefault(row["format"], {})[row["sample"]] = row
    return formats


def overview(formats, samples):
    heads = ["format", "#", "block", "bits per element"] + samples
    rows = []
    for number, (name, of) in enumerate(formats.items(), 1):
        first = of[samples[0]]
        rows.append([f"`{name}`", number, first["block_size"], f"{first['bits_per_element']:.3f}"] +
                    [decibels(of[s]) for s in samples])
    return table(heads, rows)


def sample_table(formats, sample):
    heads = ["format", "SQNR dB", "relative L2 error", "worst error / step", "worst error / absmax", "bits per element"]
    rows = []
    for name, of in formats.items():
        row = of[sample]
        step = row["worst_over_step"]
        rows.append([f"`{name}`", decibels(row), f"{row['relative_l2']:.6f}", "-" if step is None else f"{step:.3f}",
                     f"{row['worst_over_absmax']:.5f}", f"{row['bits_per_element']:.3f}"])
    return table(heads, rows)


def block_size_table(rows):
    formats = by_format(rows)
    samples = list(dict.fromkeys(row["sample"] for row in rows))
    return table(["format", "bits per element"] + samples, [
        [f"`{name}`", f"{of[samples[0]]['bits_per_element']:.3f}"] + [decibels(of[s]) for s in samples]
        for name, of in formats.items()
    ])


def sums_table(rows):
    sums = {}
    for row in rows:
        place = f"{row['nodes']}x{row['ranks_per_node']} {row['sample']}"
        sums.setdefault((row["intra_node"], row["inter_node"]), {})[place] = row
    places = list(dict.fromkeys(place for of in sums.values() for place in of))
    heads = ["intra_node"] + ["inter_node"] + [f"{p}, {hops}" for p in places for hops in ("one hop", "two hops")]
    return table(heads, [
        [f"`{intra_node}`", f"`{inter_node}`"] +
        [f"{of[p][key]:.4f}" for p in places for key in ("relative_l2_one_hop", "relative_l2_two_hops")]
        for (intra_node, inter_node), of in sums.items()
    ])


def sixteen_bits_table(rows):
    return table(["numbers", "ranks", "a sum in bfloat16", "sums in float, bf16 on the wire"], [[
        row["sample"], f"{row['nodes']}x{row['ranks_per_node']}", f"{row['relative_l2_bfloat16_sum']:.5f}",
        f"{row['relative_l2_float_sums']:.5f}"
    ] for row in rows])


def feedback_table(rows, steps):
    heads = ["numbers", "format", "method", "after 1 step", f"after {steps} steps", "residuals, bytes per element"]
    return table(heads, [[
        row["sample"], f"`{row['format']}`", row["method"], f"{row['relative_l2_first_step']:.4f}",
        f"{row['relative_l2_all_steps']:.5f}", f"{row['residual_bytes_per_element']:.3f}"
    ] for row in rows])


def entropy_table(rows):
    """Bits of an element as sent and with an ideal coder, and their ratio."""
    samples = list(dict.fromkeys(row["sample"] for row in rows))
    heads = ["format", "bits sent"] + [f"{s}, {what}" for s in samples for what in ("ideal", "sent / ideal")]
    lines = []
    for name, of in by_format(rows).items():
        sent = of[samples[0]]["code_bits"] + of[samples[0]]["parameter_bits"]
        ideal = [of[s]["entropy_bits"] + of[s]["parameter_bits"] for s in samples]
        lines.append([f"`{name}`", f"{sent:.3f}"] + [cell for bits in ideal for cell in (f"{bits:.3f}", f"{sent / bits:.2f}x")])
    return table(heads, lines)


def plot(formats, samples, image):
    """SQNR against bits per element: one panel for each sample, one numbered point for each format of fewer than 16 bits."""
    with tempfile.TemporaryDirectory() as folder:
        for sample in samples:
            lines = []
            for number, of in enumerate(formats.values(), 1):
                row = of[sample]
                if row["sqnr_db"] is not None and row["bits_per_element"] < 15:
                    lines.append(f"{row['bits_per_element']:.4f} {row['sqnr_db']:.3f} {number}")
            (pathlib.Path(folder) / f"{sample}.dat").write_text("\n".join(lines) + "\n")
        settings = f"folder={gnuplot_text(folder)}; samples='{' '.join(samples)}'; image={gnuplot_text(image)}"
        subprocess.run(["gnuplot", "-e", settings, str(pathlib.Path(__file__).parent / "points.gnuplot")], check=True)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    results = pathlib.Path(sys.argv[1])
    contents = json.loads((results / "accuracy.json").read_text())
    entropy = json.loads((results / "entropy.json").read_text())["entropy"]
    saved = {}
    for row in entropy:
        ratio = (row["code_bits"] + row["parameter_bits"]) / (row["entropy_bits"] + row["parameter_bits"])
        saved[row["format"]] = max(ratio, saved.get(row["format"], 1))
    best, three = max(saved.values()), saved["lloyd3:128:h128"]
    conclusion = (f": more than the {WORTH_A_CODER:g} times that would be worth a coder" if best > WORTH_A_CODER
                  else f", so no coder is built: that would take more than {WORTH_A_CODER:g} times")
    formats = by_format(contents["formats"])
    samples = list(dict.fromkeys(row["sample"] for row in contents["formats"]))
    plot(formats, samples, results / "accuracy.png")
    noise = f"{contents['fresh_noise']:.0%}"
    text = f"""# Accuracy of the formats

Made by `bench/accuracy/run.sh`. The figures are of numbers alone. The training depends on the machine's licence texts, and by
rounding on its OpenBLAS; figures of generated numbers depend on no machine.

{table(["numbers", ""], [[f"*{s}*", SAMPLES[s]] for s in samples])}
{contents['elements']} elements of each that is generated; the real ones are a message for each layer of a model of a million
parameters, with weights in fp32.

Bits per element are those of whole messages: codes, scales and padding, `8 * wire_bytes(q, n) / n`.

## All formats: SQNR in dB

{overview(formats, samples)}
![SQNR against bits per element](accuracy.png)

Numbers beside the points are those of the table; formats of 16 and 32 bits are left out of the plot.

## What blocks, schemes and rotation do: SQNR in dB

Scales in fp32 where the name does not say; the last three are those of the [trainings](convergence.md).

{block_size_table(contents['block_sizes'])}
## Sums over ranks: relative L2 error

Through `hierarchical_quantized_reduce_scatter` on threads; {contents['slice']} elements for each rank, every rank's
numbers its own. One hop: all ranks in one node, so that only the quantizer *inside* is used.

{sums_table(contents['sums'])}
## 16 bits on the wire: relative L2 error of an all-reduce

`quantized_all_reduce` of bfloat16 tensors with `cast_to<bfloat16>` on every hop, whose sums are in float, beside a sum that
is rounded to bfloat16 after each rank's addition, as a ring of bfloat16 does it.

{sixteen_bits_table(contents['sixteen_bits'])}
## Error feedback: relative L2 error of the sum over steps

Through `hierarchical_quantized_reduce_scatter` on 2x2 ranks that are threads, {16 * contents['slice']} elements, the format
on both hops. Every rank's gradient is the same tensor in all steps plus fresh noise of {noise} of its standard deviation in each:
what rounding to nearest loses of it, it loses in every step alike.

{feedback_table(contents['feedback'], contents['steps'])}
## What an ideal coder would save: bits of an element

Codes of that training; *differences* are of its weights of steps 199 and 200. An ideal coder sends each
code in as many bits as minus the binary logarithm of its share of all codes, and parameters as they are.

{entropy_table(entropy)}
At most {best:.2f} times the bits of an ideal coder are sent{conclusion}. Three levels,
five to a byte, take {three:.2f} times the bits.
"""
    for sample in samples:
        text += f"""
## In full: {sample}

Worst error / step: the largest error of an element in steps of its block, where the format has one step for a whole block (of
the rotated elements, where it rotates). Worst error / absmax: the same over the largest magnitude in the block.

{sample_table(formats, sample)}"""
    (results / "accuracy.md").write_text(text)


if __name__ == "__main__":
    main()
