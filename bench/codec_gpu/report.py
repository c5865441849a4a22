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


def lines_of(measured, predictions):
    device = measured["device"]
    gpu = gpu_of(device)
    kernels = predictions["kernels"].get(str(GPUS[gpu][0]), {}) if gpu else {}
    yield f"{device['name']}, {device['multiprocessors']} multiprocessors, CUDA {device['cuda_runtime_version'] // 1000}."
    if not measured["complete"]:
        yield "The measurements were cut short."
    if not gpu:
        yield f"Predictions are for {', '.join(GPUS)} alone."
    yield ""
    yield "| kernel | quantizer | element | MB | GB/s | of a copy, measured | predicted | measured / predicted |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for row in measured["rows"]:
        fraction = row["fraction_of_copy"]
        prediction = kernels.get(kernel_of(row))
        expected = predicted(prediction, gpu)[0] if prediction and prediction["stores"] != "-" else None
        yield (f"| {row['kernel']} | {row['quantizer']} | {row['element']} | {row['tensor_bytes'] >> 20} | "
               f"{row['gigabytes_per_second']:.0f} | {fraction:.2f} | "
               + (f"{expected:.2f} | {fraction / expected:.2f} |" if expected else "- | - |"))


def main():
    folder = pathlib.Path(sys.argv[1])
    page = ["# A run on a GPU", "", "```", (folder / "summary.txt").read_text().rstrip(), "```", ""]
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
