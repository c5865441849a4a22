#!/usr/bin/env python3
"""Writes a page of a run on a GPU: predictions and measurements of each kernel.

    report.py RESULTS

RESULTS has summary.txt, the end of each step of tests/gpu.sh. It may have deepspeed.json, and codec_gpu.json or
codec_gpu_quick.json. Writes report.md there, and prints it.
"""
import json
import pathlib
import sys

sys.dont_write_bytecode = True
from roofline import GPUS, RESULTS, predicted

# Megabytes of the table that has all kernels.
SIZE = 256
ELEMENTS = {"bf16": "bfloat16", "fp16": "half", "fp32": "float"}


def kernel_of(row):
    """The row's name in the predictions; None for reorder_encode, which is the kernel of encode."""
    quantizer, kernel, element = row["quantizer"], row["kernel"], ELEMENTS[row["element"]]
    operation, _, contributors = kernel.rpartition("_")
    if kernel == "encode":
        return f"encode {element} to {quantizer}"
    if kernel == "decode":
        return f"decode of 1 {quantizer} to {element}"
    if operation == "reduce_encode":
        return f"sum of {contributors} {quantizer} to {quantizer}"
    return f"decode of {contributors} {quantizer} to {element}" if operation == "reduce_decode" else None


def gpu_of(device):
    """The name in GPUS of a device; None if it has no predictions."""
    found = [name for name in GPUS if name in device["name"]]
    return found[0] if found else None


def table(columns, rows):
    yield f"| {' | '.join(map(str, columns))} |"
    yield "|---|---|" + "---:|" * (len(columns) - 2)
    for row in rows:
        yield f"| {' | '.join(row)} |"


def lines_of(measured, predictions):
    """A table of all kernels at one size, beside the predictions for bf16, and one of bf16 at all sizes."""
    device = measured["device"]
    gpu = gpu_of(device)
    kernels = predictions["kernels"].get(str(GPUS[gpu][0]), {}) if gpu else {}
    fractions, named = {}, {}
    for row in measured["rows"]:
        fractions[row["quantizer"], row["kernel"], row["element"], row["tensor_bytes"] >> 20] = row["fraction_of_copy"]
        named.setdefault((row["quantizer"], row["kernel"]), row)
    sizes = sorted({size for *_, size in fractions})
    size = SIZE if SIZE in sizes else sizes[-1]

    def text(*case):
        return f"{fractions[case]:.2f}" if case in fractions else "-"

    def beside_predictions():
        for case, row in named.items():
            prediction = kernels.get(kernel_of(row | {"element": "bf16"}))
            expected = predicted(prediction, gpu)[0] if prediction and prediction["stores"] != "-" else None
            given = fractions.get((*case, "bf16", size))
            yield [*case, *(text(*case, element, size) for element in ELEMENTS), f"{expected:.2f}" if expected else "-",
                   f"{given / expected:.2f}" if given and expected else "-"]

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
    yield from table(["quantizer", "kernel", *ELEMENTS, "predicted", "measured / predicted"], beside_predictions())
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
        page += ["## Kernels", "", *lines_of(json.loads(measurement.read_text()), predictions), ""]
    deepspeed = folder / "deepspeed.log"
    if (folder / "deepspeed.json").exists():
        page += ["## Beside DeepSpeed", "", "```", deepspeed.read_text().rstrip(), "```", ""]
    (folder / "report.md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    main()
