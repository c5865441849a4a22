#!/usr/bin/env python3
"""What the host codec takes in the first-level cache beside what models of processors predict of the same instructions.

    codec_ports.py PROGRAM [--arm PROGRAM] [--write] [--llvm FOLDER]

    PROGRAM        codec_perf, which measures tensors of 4096 elements and writes down the instructions that it executes
    --arm PROGRAM  codec_perf for 64-bit Arm, linked statically and at fixed addresses, which qemu-aarch64 runs
    --write        writes the table to bench/results/codec_ports.md
    --llvm FOLDER  where llvm-mca and llvm-objdump are (default: the newest of Debian's, or the PATH)

llvm-mca is given all instructions of a pass in the order in which they were executed, so nothing is assumed of loops. It
says how many cycles its model of a core takes for them, where every load is in the first-level cache, and how many its
execution ports or its front end alone would take: the bound. Code for AVX-512 is predicted for Sapphire Rapids and Zen 4,
code for AVX2 for Haswell, code for Arm for Grace. Nothing of that is measured; what is measured is this machine.

Made for Arm with a cross compiler, where codec_perf does without MPI:

    aarch64-linux-gnu-g++ -std=c++20 -O3 -DNDEBUG -static -no-pie -I include -I bench bench/codec_perf.cpp \\
        bench/support/{collective_rows,launch_threads,options,report}.cpp -o codec_perf_arm
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
# Cores for which each target's code is predicted, by LLVM's names.
CORES = {"avx512": {"sapphirerapids": "Sapphire Rapids", "znver4": "Zen 4"}, "avx2": {"haswell": "Haswell"},
         "arm": {"neoverse-v2": "Grace (Neoverse V2)"}}
# Element types: their bytes, and quantizers.
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
    """The program's instructions as assembler text by address, and its functions' addresses by name."""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", program], check=True, capture_output=True, text=True).stdout
    instructions, functions = {}, {}
    for line in text.splitlines():
        if match := re.match(r"\s*([0-9a-f]+):\s+(.*)", line):
            # Without comments and names of jump targets. Arm's jumps are short, so they get the target `.`.
            plain = re.sub(r"\s*(<[^>]*>|//.*|# .*)", "", match[2])
            instructions[int(match[1], 16)] = re.sub(r"^(b|bl|b\.\w+|cbn?z|tbn?z)(\s.*?)0x[0-9a-f]+$", r"\1\2.", plain)
        elif match := re.match(r"([0-9a-f]+) <(.*)>:", line):
            functions[match[2]] = int(match[1], 16)
    return instructions, functions


def predicted(mca, triple, core, lines):
    """Predicted cycles for each element on a core, and the bound of its ports or front end alone."""
    run = subprocess.run([mca, f"-mcpu={core}", f"-mtriple={triple}", "-iterations=1", "-instruction-info=false",
                          "-resource-pressure=false", "-noalias"],
                         input="\n".join(lines), check=False, capture_output=True, text=True)
    figures = {name: float(value) for name, value in re.findall(r"^(.*?):\s+([\d.]+)$", run.stdout, re.M)}
    if run.returncode or "Total Cycles" not in figures:
        sys.exit(f"codec_ports.py: llvm-mca cannot read a trace: {run.stderr[:2000]}")
    return {"cycles": figures["Total Cycles"] / ELEMENTS, "bound": figures["Block RThroughput"] / ELEMENTS}


def explained(row, instructions, triple, mca):
    """The row with the number of instructions and predictions in place of addresses."""
    lines = [instructions[address] for address in row.pop("addresses")]
    cores = CORES[row["target"]]
    return {**row, "instructions": len(lines) / ELEMENTS,
            "predicted": {core: predicted(mca, triple, core, lines) for core in cores}}


def what_runs(program, datatype, folder):
    """The command that measures and traces the cases of a type, and the file of its report."""
    size, quantizers = CASES[datatype]
    bytes_ = str(ELEMENTS * size)
    output = folder / f"{datatype}.json"
    return [program, "-b", bytes_, "-e", bytes_, "-c", "0", "-d", datatype, "-q", ",".join(quantizers), "--trace", folder / datatype,
            "-J", output], output


def case(target, row):
    """Target, type, quantizer and operation of a row."""
    return {"target": target, **{key: row[key] for key in ("type", "quantizer", "operation")}}


def measured(program, target, folder):
    """Rows of codec_perf with the addresses of executed instructions, and facts about the processor."""
    rows = []
    for datatype in CASES:
        command, output = what_runs(program, datatype, folder)
        subprocess.run([*command, "-n", "2000", "--target", target], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(output.read_text())
        for row in report["rows"]:
            trace = (folder / datatype / row["trace"]).read_text()
            rows.append({**case(target, row), "ns": row["element_ns"], "cycles": row["element_ns"] * report["clock (GHz)"],
                         "addresses": [int(line, 16) for line in trace.split()]})
    return rows, {key: report[key] for key in ("processor", "family and model", "features", "clock (GHz)")}


def emulated(program, mark, folder):
    """Rows of codec_perf for Arm, with the addresses that the emulator executes between two calls of `mark`."""
    rows = []
    for datatype in CASES:
        command, output = what_runs(program, datatype, folder)
        with subprocess.Popen(["qemu-aarch64", "-singlestep", "-d", "exec,nochain", *command, "-n", "1", "-w", "0"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
            passes, inside = [], False
            for line in run.stderr:
                address = int(line.split("/", 2)[1], 16) if line.startswith("Trace ") else None
                if address == mark:
                    inside = not inside
                    if inside:
                        passes.append([])
                elif inside and address is not None:
                    passes[-1].append(address)
        if run.returncode:
            sys.exit(f"codec_ports.py: {program} ended with {run.returncode} in qemu-aarch64")
        report = json.loads(output.read_text())
        rows += [{**case("arm", row), "addresses": addresses}
                 for row, addresses in zip(report["rows"], passes, strict=True)]
    return rows


NAMES = {"float": "fp32", "bfloat16": "bf16", "half": "fp16"}


def table(rows, target):
    """A table of one target's rows: predictions and, if there are any, measurements."""
    cores = CORES[target]
    own = [row for row in rows if row["target"] == target]
    heads = ["tensor", "quantizer", "pass", "instructions", *(f"{name}, predicted | its bound" for name in cores.values())]
    heads += ["measured here", "ns"] if "ns" in own[0] else []
    lines = ["| " + " | ".join(heads) + " |", "|---|---|---|---:|" + "---:|---:|" * (len(cores) + ("ns" in own[0]))]
    for row in own:
        cells = [NAMES[row["type"]], row["quantizer"], row["operation"].replace("_", " "), f"{row['instructions']:.2f}"]
        for core in cores:
            cells += [f"{row['predicted'][core]['cycles']:.2f}", f"{row['predicted'][core]['bound']:.2f}"]
        if "ns" in row:
            cells += [f"{row['cycles']:.2f}", f"{row['ns']:.3f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def summary(rows, target, core):
    """Predicted by measured cycles for a core's prediction and its bound: median and least over all passes."""
    parts = []
    for what in ("cycles", "bound"):
        ratios = [row["predicted"][core][what] / row["cycles"] for row in rows if row["target"] == target]
        parts.append(f"{statistics.median(ratios):.2f} in the median of {len(ratios)} passes, {min(ratios):.2f} at the least")
    return parts


def page(rows, facts, version):
    """The text of codec_ports.md."""
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
        *table(rows, "avx2"), "",
        *arm_section(rows)])


def arm_section(rows):
    """Lines on Arm; empty without --arm."""
    if not any(row["target"] == "arm" for row in rows):
        return []
    return ["## Code for 64-bit Arm", "",
            "Of what g++ makes by itself for every such processor with NEON (`-O3`), executed by qemu-aarch64 (`--arm PROGRAM`): all of it is predicted, "
            "nothing was measured, and no processor of this kind has been met.", "", *table(rows, "arm"), ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--arm", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--llvm")
    options = parser.parse_args()
    mca, objdump = llvm("llvm-mca", options.llvm), llvm("llvm-objdump", options.llvm)
    version = "llvm-mca " + re.search(r"LLVM version ([\d.]+)", subprocess.check_output([mca, "--version"], text=True))[1]
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        instructions, _ = instructions_of(options.program, objdump)
        for target in "avx512", "avx2":
            measured_rows, facts = measured(options.program.resolve(), target, folder)
            rows += [explained(row, instructions, "x86_64", mca) for row in measured_rows]
        if options.arm:
            instructions, functions = instructions_of(options.arm, objdump)
            rows += [explained(row, instructions, "aarch64", mca)
                     for row in emulated(options.arm.resolve(), functions["zeropp_bench_trace_mark"], folder)]
    text = page(rows, facts, version)
    if options.write:
        (RESULTS / "codec_ports.md").write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
