#!/usr/bin/env python3
"""DeepSpeed's quantizer kernels by the counts of roofline.py, beside ours.

    roofline_deepspeed.py CSRC [--nvcc PATH] [--nvdisasm PATH]

CSRC is the folder csrc/ of DeepSpeed's source distribution on PyPI (0.19.8 made the page). Compiles four of its files for
sm_90 with DeepSpeed's own flags and writes bench/results/roofline_deepspeed.md.

Its kernels have no loop to measure: a thread does its part and ends. So the whole way from entry to end is counted, with
every guarded load made, of the instance that takes least for a byte; what a thread reads and writes follows from the
instance's chunks of eight elements. Scales are left out on both sides. All of it is predicted, as there.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
from roofline import CLASSES, PIPES, RESULTS, find_nvdisasm, in_flight, kernels_of, predicted, registers_of, resident_warps

FLAGS = ["-std=c++17", "-O3", "--use_fast_math", "-DBF16_AVAILABLE", "-arch=sm_90", "-cubin", "-Xptxas", "-v"]
SYMMETRIC = r"\(quantize::Type\)0"
# The operation; DeepSpeed's kernel, with its chunks as a group; the bits that a thread reads and writes for an element, by
# the bits of a code; our kernel.
PAIRS = [
    ("encode, reordered", r"swizzled_quant_kernel<{bits}, (?P<chunks>\d+), \d+, " + SYMMETRIC, lambda b: (16, b),
     "encode half to {ours}"),
    ("encode", r"cached_quantization<{bits}, " + SYMMETRIC + r", (?P<chunks>\d+), (?P<steps>\d+), \d+, \d+", lambda b: (16, b),
     "encode half to {ours}"),
    ("sum of 8", r"dequant_reduce<{bits}, 8, (?P<chunks>\d+), " + SYMMETRIC, lambda b: (8 * b, b), "sum of 8 {ours} to {ours}"),
    ("decode", r"dequantize_kernel<__half, {bits}, " + SYMMETRIC + r", (?P<chunks>\d+), \d+", lambda b: (b, 16),
     "decode of 1 {ours} to half"),
]
OURS = {8: "int8:256", 4: "int4:128"}


def way_through(code, labels):
    """Instructions from entry to end. Guards are passed, and loops run once."""
    way, n, seen = [], 0, set()
    while n < len(code) and n not in seen:
        seen.add(n)
        way.append(code[n])
        if code[n].opcode in ("EXIT", "RET") and not code[n].predicated:
            break
        n = labels[code[n].target] if code[n].opcode == "BRA" and not code[n].predicated else n + 1
    return way


def row_of(code, labels, registers, elements, bits):
    way = way_through(code, labels)
    read, written = (elements * b / 8 for b in bits)
    moved = read + written
    warps = resident_warps(registers)
    row = {"issue": len(way) / moved, "read": read / moved, "warps": warps, "registers": registers,
           "in_flight_kib": in_flight(way, False) * warps * 32 / 1024}
    for pipe, opcodes in CLASSES.items():
        row[pipe] = sum(max(1, i.bits // 32) if pipe == "LSU" else 1 for i in way if opcodes.match(i.opcode)) / moved
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csrc", type=pathlib.Path)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm")
    arguments = parser.parse_args()
    kernels = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        nvdisasm = find_nvdisasm(arguments.nvdisasm, arguments.nvcc, folder)
        for name in ("swizzled_quantize", "quantize", "quant_reduce", "dequantize"):
            cubin = folder / f"{name}.cubin"
            report = subprocess.run([arguments.nvcc, *FLAGS, "-I", arguments.csrc / "includes",
                                     arguments.csrc / f"quantization/{name}.cu", "-o", cubin], check=True, capture_output=True,
                                    text=True).stderr
            listing = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
            found = kernels_of(listing)
            names = subprocess.run(["c++filt", *found], check=True, capture_output=True, text=True).stdout.splitlines()
            for (mangled, (code, labels)), readable in zip(found.items(), names):
                kernels[readable] = (code, labels, registers_of(report)[mangled])

    ours = json.loads((RESULTS / "roofline.json").read_text())["kernels"]["90"]
    lines = ["# DeepSpeed's kernels by their machine code, beside ours", "",
             "Predicted by `bench/codec_gpu/roofline_deepspeed.py` for sm_90 on an H200: nothing here was measured on a GPU.",
             "Of each of DeepSpeed's kernels (0.19.8, fp16, symmetric) the instance that takes least for a byte; of ours, fp16",
             "too. DeepSpeed adds up in fp16, we do in floats. Counts are instructions of a thread for a byte.",
             "", "| kernel | bits | theirs: issue | ALU | XU | of a copy | ours: issue | ALU | XU | of a copy | ratio |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for what, pattern, bits_of, our_name in PAIRS:
        for bits, quantizer in OURS.items():
            rows = []
            for name, (code, labels, registers) in kernels.items():
                if match := re.search(pattern.format(bits=bits), name):
                    chunks = int(match["chunks"]) * int(match.groupdict().get("steps") or 1)
                    rows.append(row_of(code, labels, registers, 8 * chunks, bits_of(bits)))
            theirs = min(rows, key=lambda row: row["issue"])
            mine = ours[our_name.format(ours=quantizer)]
            fractions = [predicted(row, "H200")[0] for row in (theirs, mine)]
            cells = [f"{row[pipe]:.2f}" for row in (theirs, mine) for pipe in ("issue", "ALU", "XU")]
            lines.append(f"| {what} | {bits} | {' | '.join(cells[:3])} | {fractions[0]:.2f} | {' | '.join(cells[3:])} | "
                         f"{fractions[1]:.2f} | {fractions[1] / fractions[0]:.2f} |")
    (RESULTS / "roofline_deepspeed.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
