#!/usr/bin/env python3
"""Writes a page of a run on a GPU: predictions and measurements of each kernel.

    report.py RESULTS

RESULTS has summary.txt, the end of each step of tests/gpu.sh. It may have deepspeed.json, codec_gpu.json or
codec_gpu_quick.json, codec_gpu_old.json of a program built before a change, and ncu_*.log. Writes report.md there, and prints it.
"""
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from roofline import GPUS, RESULTS, kernel_of, predicted

# Megabytes of the table that has all kernels.
SIZE = 256
ELEMENTS = ("bf16", "fp16", "fp32")


# Counters of ncu, as its raw page names them; and stalls, of which the longest three are shown.
COUNTERS = {"time": "gpu__time_duration.sum", "clock": "smsp__cycles_elapsed.avg.per_second", "instructions": "smsp__inst_executed.sum",
            "issue active, %": "smsp__issue_active.avg.pct_of_peak_sustained_active",
            "memory, %": "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"}
STALL = re.compile(r"smsp__average_warps_issue_stalled_(\w+)_per_issue_active\.ratio")


def counters_of(log):
    """Cells of a kernel that ncu has counted."""
    found = {name: (value, unit) for name, unit, value in re.findall(r"^ +(\S+) +(\S*) +([\d.,]+)$", log, re.MULTILINE)}
    stalls = sorted(((float(value), match[1]) for name, (value, _) in found.items() if (match := STALL.fullmatch(name))), reverse=True)
    return [*(" ".join(found.get(name, "-")).strip() for name in COUNTERS.values()),
            ", ".join(f"{name} {ratio:.1f}" for ratio, name in stalls[:3]) or "-"]


def gpu_of(device):
    """The name in GPUS of a device; None if it has no predictions."""
    found = [name for name in GPUS if name in device["name"]]
    return found[0] if found else None


def table(columns, rows):
    yield f"| {' | '.join(map(str, columns))} |"
    yield "|---|---|" + "---:|" * (len(columns) - 2)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def fractions_of(measured):
    return {(row["quantizer"], row["kernel"], row["element"], row["tensor_bytes"] >> 20): row["fraction_of_copy"]
            for row in measured["rows"]}


def lines_of(measured, predictions, old=None):
    """A table of all kernels at one size, beside the predictions for bf16, and one of bf16 at all sizes. `old`: measurements of
    the kernels before a change."""
    device = measured["device"]
    gpu = gpu_of(device)
    kernels = predictions["kernels"] if gpu else {}
    fractions, before = fractions_of(measured), fractions_of(old) if old else {}
    named = {(row["quantizer"], row["kernel"]): row for row in measured["rows"]}
    sizes = sorted({size for *_, size in fractions})
    size = SIZE if SIZE in sizes else sizes[-1]

    def text(*case):
        return f"{fractions[case]:.2f}" if case in fractions else "-"

    def beside_predictions():
        for case, row in named.items():
            prediction = kernels.get(kernel_of(row | {"element": "bf16"}))
            expected = predicted(prediction, gpu)[0] if prediction and prediction["stores"] != "-" else None
            given = fractions.get((*case, "bf16", size))
            line = [*case, *(text(*case, element, size) for element in ELEMENTS), f"{expected:.2f}" if expected else "-",
                    f"{given / expected:.2f}" if given and expected else "-"]
            if old:
                was = before.get((*case, "bf16", size))
                line += [f"{was:.2f}", f"{given / was:.2f}"] if given and was else ["-", "-"]
            yield line

    yield f"{device['name']}, {device['multiprocessors']} multiprocessors, CUDA {device['cuda_runtime_version'] // 1000}."
    if not measured["complete"]:
        yield "The measurements were cut short."
    if not gpu:
        yield f"Predictions are for {', '.join(GPUS)} alone."
    yield ""
    yield (f"Speed as a fraction of that of a device-to-device copy of as many bytes, which takes turns with the kernel; {size} MB of "
           "elements. Predictions, from machine code, are for bf16. *reorder_encode* encodes in the order of the first hop of 2 nodes "
           "x 4 ranks; *reduce_encode_N* sums N messages and encodes the sum, *reduce_decode_N* sums N messages and writes elements. "
           "Above 1.05, the copy was slow, not the kernel fast:")
    yield ""
    columns = ["quantizer", "kernel", *ELEMENTS, "predicted", "measured / predicted"]
    yield from table(columns + (["old, bf16", "new / old"] if old else []), beside_predictions())
    if len(sizes) > 1:
        yield ""
        yield "The same for bf16, by megabytes of elements:"
        yield ""
        yield from table(["quantizer", "kernel", *sizes],
                         ([*case, *(text(*case, "bf16", each) for each in sizes)] for case in named))


def main():
    folder = pathlib.Path(sys.argv[1])
    page = ["# The kernels on one GPU", "", "Made by `tests/gpu.sh`:", "", "```", (folder / "summary.txt").read_text().rstrip(), "```", ""]
    measurements = [folder / name for name in ("codec_gpu.json", "codec_gpu_quick.json")]
    measurement = next((m for m in measurements if m.exists()), None)
    if measurement:
        predictions = json.loads((RESULTS / "roofline.json").read_text())
        old = folder / "codec_gpu_old.json"
        old = json.loads(old.read_text()) if old.exists() else None
        page += ["## Kernels", "", *lines_of(json.loads(measurement.read_text()), predictions, old), ""]
    if logs := sorted(folder.glob("ncu_*.log")):
        rows = ([log.stem.removeprefix("ncu_"), *counters_of(log.read_text())] for log in logs)
        page += ["## Counters of ncu", "", *table(["kernel", *COUNTERS, "warps stalled for each issue"], rows), ""]
    deepspeed = folder / "deepspeed.log"
    if (folder / "deepspeed.json").exists():
        page += ["## Beside DeepSpeed", "", "```", deepspeed.read_text().rstrip(), "```", ""]
    (folder / "report.md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    main()
