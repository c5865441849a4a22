#!/usr/bin/env python3
"""What the host codec takes in the first-level cache beside what models of processors predict of the same instructions.

    codec_ports.py PROGRAM [--write] [--llvm FOLDER]

    PROGRAM        codec_perf, which measures tensors of 4096 elements and writes down the instructions that it executes
    --write        writes the table to bench/results/codec_ports.{json,md}
    --llvm FOLDER  where llvm-mca and llvm-objdump are (default: the newest of Debian's, or the PATH)

llvm-mca is given all instructions of a pass in the order in which they were executed, so nothing is assumed of loops. It
says how many cycles its model of a core takes for them, where every load is in the first-level cache, and how many its
execution ports or its front end alone would take: the bound. Code for AVX-512 is predicted for Sapphire Rapids and Zen 4,
code for AVX2 for Haswell. Nothing of that is measured; what is measured is this machine.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

RESULTS = pathlib.Path(__file__).resolve().parent / "results"
ELEMENTS = 4096
# What is predicted of the code for each target, as llvm names it.
CORES = {"avx512": {"sapphirerapids": "Sapphire Rapids", "znver4": "Zen 4"}, "avx2": {"haswell": "Haswell"}}
# Each in tensors of ELEMENTS.
CASES = {
    "float": (4, ["int8:256", "int4:128", "int4:128:signed:bf16:h32", "fp8_e4m3:128", "mxfp4"]),
    "bfloat16": (2, ["int8:256", "int4:128"]),
    "half": (2, ["int8:256", "int4:128"]),
}


def llvm(name, folder):
    """The path of one of LLVM's tools."""
    folders = [folder] if folder else [str(f) for f in sorted(pathlib.Path("/usr/lib").glob("llvm-*/bin"), reverse=True)]
    found = shutil.which(name, path=os.pathsep.join(folders + ([] if folder else [os.environ["PATH"]])))
    if not found:
        sys.exit(f"codec_ports.py: {name} is missing; on Debian it is in llvm-19")
    return found


def instructions_of(program, objdump):
    """The text of the program's instructions by address, as an assembler reads it."""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", program], check=True, capture_output=True, text=True).stdout
    instructions = {}
    for line in text.splitlines():
        if match := re.match(r"\s*([0-9a-f]+):\s+(.*)", line):
            # Names of where jumps go, and comments.
            instructions[int(match[1], 16)] = re.sub(r"\s*(<[^>]*>|#.*)", "", match[2])
    return instructions


def predicted(mca, core, lines):
    """Cycles that the model of a core takes for the instructions, and that its ports or its front end alone would."""
    run = subprocess.run([mca, f"-mcpu={core}", "-mtriple=x86_64", "-iterations=1", "-instruction-info=false",
                          "-resource-pressure=false", "-noalias"],
                         input="\n".join(lines), check=False, capture_output=True, text=True)
    figures = {name: float(value) for name, value in re.findall(r"^(.*?):\s+([\d.]+)$", run.stdout, re.M)}
    if run.returncode or "Total Cycles" not in figures:
        sys.exit(f"codec_ports.py: llvm-mca cannot read a trace: {run.stderr[:2000]}")
    return {"cycles": figures["Total Cycles"] / ELEMENTS, "bound": figures["Block RThroughput"] / ELEMENTS}


def measured(program, target, folder):
    """What codec_perf says, all of its rows with the file of their trace."""
    rows = []
    for datatype, (size, quantizers) in CASES.items():
        bytes_ = str(ELEMENTS * size)
        output = folder / f"{target}_{datatype}.json"
        traces = folder / f"{target}_{datatype}"
        subprocess.run([program, "-b", bytes_, "-e", bytes_, "-n", "2000", "-c", "0", "-d", datatype, "-q", ",".join(quantizers),
                        "--target", target, "--trace", traces, "-J", output], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(output.read_text())
        for row in report["rows"]:
            rows.append({"target": target, **{key: row[key] for key in ("type", "quantizer", "operation")},
                         "ns": row["element_ns"], "cycles": row["element_ns"] * report["clock (GHz)"],
                         "trace": traces / row["trace"]})
    return rows, {key: report[key] for key in ("processor", "family and model", "features", "clock (GHz)")}


NAMES = {"float": "fp32", "bfloat16": "bf16", "half": "fp16"}


def table(rows, target):
    """The rows of one target: predictions, and what was measured beside the best of them that fits this processor."""
    cores = CORES[target]
    lines = ["| tensor | quantizer | pass | instructions | " +
             " | ".join(f"{name}, predicted | its bound" for name in cores.values()) + " | measured here | ns |",
             "|---|---|---|---:|" + "---:|---:|" * len(cores) + "---:|---:|"]
    for row in rows:
        if row["target"] == target:
            cells = [NAMES[row["type"]], row["quantizer"], row["operation"].replace("_", " "), f"{row['instructions']:.2f}"]
            for core in cores:
                cells += [f"{row['predicted'][core]['cycles']:.2f}", f"{row['predicted'][core]['bound']:.2f}"]
            lines.append("| " + " | ".join(cells + [f"{row['cycles']:.2f}", f"{row['ns']:.3f}"]) + " |")
    return lines


def summary(rows, target, core):
    """What measurements make of one core's prediction and of its bound, in the median over all passes and at the least."""
    parts = []
    for what in ("cycles", "bound"):
        ratios = [row["predicted"][core][what] / row["cycles"] for row in rows if row["target"] == target]
        parts.append(f"{statistics.median(ratios):.2f} in the median of {len(ratios)} passes, {min(ratios):.2f} at the least")
    return parts


def page(rows, facts, version):
    """The whole of codec_ports.md."""
    predicted_share, bound_share = summary(rows, "avx512", "znver4")
    return "\n".join([
        "# The host codec and the ports of cores", "",
        "Made by `bench/codec_ports.py build/bench/codec_perf --write`: instructions and cycles for an element, tensors of "
        f"{ELEMENTS} elements in the first-level cache. Predicted columns are {version}'s, of the instructions that g++ made and this "
        "machine executed, in their order; nothing of them was measured. *Its bound* is what ports or front end alone would "
        "take, if nothing waited for anything. Measured columns are of this machine, one pass at a time by a clock of 10 ns, in turns "
        "with all others, so that what it reads comes from the second-level cache at first: "
        f"{facts['processor']}, family and model {facts['family and model']}, {facts['clock (GHz)']:.2f} GHz while this ran, on one thread.", "",
        "Of the model of Zen 4, which is this processor's core if it has AVX-512, the codec reaches, predicted by measured cycles, "
        f"{predicted_share}; of its bound {bound_share}. What lies between bound and prediction is waiting: the extremes of a block, "
        "a division and what follows from it, before its first element can be encoded.", "",
        "## Code for AVX-512", "", *table(rows, "avx512"), "",
        "## Code for AVX2", "",
        "Executed by the same machine, which has more ports for it than Haswell; Haswell's columns alone are of Haswell.", "",
        *table(rows, "avx2"), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--llvm")
    options = parser.parse_args()
    mca, objdump = llvm("llvm-mca", options.llvm), llvm("llvm-objdump", options.llvm)
    version = "llvm-mca " + re.search(r"LLVM version ([\d.]+)", subprocess.check_output([mca, "--version"], text=True))[1]
    instructions = instructions_of(options.program, objdump)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for target, cores in CORES.items():
            measured_rows, facts = measured(options.program.resolve(), target, pathlib.Path(folder))
            for row in measured_rows:
                addresses = [int(line, 16) for line in row.pop("trace").read_text().split()]
                lines = [instructions[address] for address in addresses]
                row["instructions"] = len(lines) / ELEMENTS
                row["predicted"] = {core: predicted(mca, core, lines) for core in cores}
                rows.append(row)
    text = page(rows, facts, version)
    if options.write:
        (RESULTS / "codec_ports.md").write_text(text)
        (RESULTS / "codec_ports.json").write_text(json.dumps({"facts": facts, "llvm": version, "rows": rows}, indent=1) + "\n")
    else:
        print(text)


if __name__ == "__main__":
    main()
