#!/usr/bin/env python3
"""How long programs that use the library take to compile, beside <regex> and Eigen, in one run.

Compiles every program of this folder, in turns, and compares its processor time and memory with those of <regex>: the
ratios depend little on the machine. What is only read and never compiled (the umbrella, nothing used) is compared with
the standard headers that it includes, since one machine reads half as fast as another and compiles as fast. --check holds
the ratios against the table that is committed: one that has grown by more than 15 % fails. What the table does not know
(another compiler) is skipped with status 77.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))
import results_json  # noqa: E402

ALLOWED = 1.15
# Programs: text, and the target for compile time over the base's.
PROGRAMS = {
    "umbrella": ("`zeropp/zeropp.hpp`, nothing used", None),
    "all_gather": ("one all-gather between threads", 1.0),
    "reduce_scatter": ("one reduce-scatter between threads", 1.3),
    "three_primitives": ("all three primitives between threads", None),
    "all_gather_mpi": ("one all-gather over MPI", None),
    "codec_cuda": ("encode and decode on a GPU, by nvcc for sm_90", None),
    "standard_headers": ("the standard headers that `zeropp/zeropp.hpp` includes, nothing used", None),
    "regex": ("`<regex>`, one match", None),
    "eigen_qr": ("`<Eigen/Dense>`, one QR solve", None),
}
BASES = {"umbrella": "standard_headers"}
# Not checked: nvcc's time varies from 1.18 to 1.45 of <regex>'s, because it starts a dozen processes and writes files
# between them. Standard headers contain nothing of the library.
SHOWN_ONLY = {("codec_cuda", "of_base"), ("standard_headers", "of_base"), ("standard_headers", "memory_of_base")}


def base_of(name):
    """The program with which `name` is compared."""
    return BASES.get(name, "regex")


def line_of(command, line=0):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[line].strip()


def version_of_other(name, command):
    """Version of nvcc or MPI, if the program needs it."""
    if name == "codec_cuda":
        return line_of([command[0], "--version"], -1)
    return line_of(["mpirun", "--version"]) if name == "all_gather_mpi" else ""


def major(compiler):
    """The compiler and its major version, the key of a committed table."""
    version = line_of([compiler, "-dumpversion"])
    kind = "clang" if "clang" in line_of([compiler, "--version"]) else "g++"
    return f"{kind} {version.split('.')[0]}"


def compile_once(command):
    """Compiles once. Returns processor seconds, and MiB of the largest process."""
    before = os.times()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    problem = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    after = os.times()
    if process.returncode != 0:
        sys.exit(f"does not compile: {' '.join(command)}\n{problem}")
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, usage.ru_maxrss / 1024


class Measurement:
    def __init__(self, commands):
        self.commands = commands
        self.seconds = {name: [] for name in commands}
        self.memory = {name: [] for name in commands}

    def turns(self, n, names):
        for _ in range(n):
            for name in names:
                seconds, memory = compile_once(self.commands[name])
                self.seconds[name].append(seconds)
                self.memory[name].append(memory)

    def rows(self):
        # The lesser of two ratios: of the fastest turns, and the median over turns. An occasional disturbance raises the
        # first, a slow period the second. Real growth raises both.
        def ratio(samples, name):
            own, base = samples[name], samples[base_of(name)]
            return min(statistics.median(a / b for a, b in zip(own, base)), min(own) / min(base))

        return {name: {"seconds": round(statistics.median(self.seconds[name]), 3),
                       "of_base": round(ratio(self.seconds, name), 3),
                       "mib": round(statistics.median(self.memory[name])),
                       "memory_of_base": round(ratio(self.memory, name), 3),
                       "with": version_of_other(name, command)} for name, command in self.commands.items()}


def commands(arguments):
    include = ["-I", str(arguments.include), "-c", "-o", os.devnull]
    host = [arguments.cxx, "-std=c++20", "-O2", *include]
    found = {}
    for name in PROGRAMS:
        if name == "codec_cuda":
            if arguments.nvcc:
                found[name] = [arguments.nvcc, "-ccbin", arguments.cxx, "-std=c++20", "-O2", "-arch=sm_90", *include,
                               str(HERE / f"{name}.cu")]
        elif name == "eigen_qr":
            if arguments.eigen_include and not arguments.check:  # contains nothing of the library
                found[name] = [*host, "-isystem", arguments.eigen_include, str(HERE / f"{name}.cpp")]
        elif name == "all_gather_mpi":
            if arguments.mpi_include:
                found[name] = [*host, *[f"-isystem{folder}" for folder in arguments.mpi_include],
                               str(HERE / f"{name}.cpp")]
        else:
            found[name] = [*host, str(HERE / f"{name}.cpp")]
    return found


def write_table(path, table):
    lines = ["# How long it takes to compile", "",
             "Made by `bench/compile_time/run.sh`. Processor time and memory of one compilation (`-std=c++20 -O2 -c`), medians,",
             "and their ratios to those of a base: of the fastest turns, or the median over the turns where that is less.",
             "`--check` fails where a ratio has grown by more than 15 %, but for nvcc's time, which varies as much by itself.",
             "Where the time goes: [why_compile_time.md](why_compile_time.md).", ""]
    for compiler, entry in sorted(table.items()):
        lines += [f"## {compiler}", "", entry["machine"], "",
                  "| program | base | s | of base's | wanted | MiB | of base's |", "|---|---|---:|---:|---:|---:|---:|"]
        for name, row in entry["rows"].items():
            what, wanted = PROGRAMS[name]
            base = {"regex": "`<regex>`", "standard_headers": "standard headers"}[base_of(name)]
            lines.append(f"| {what} | {base} | {row['seconds']:.2f} | {row['of_base']:.2f} | {f'{wanted:.1f}' if wanted else ''} | "
                         f"{row['mib']} | {row['memory_of_base']:.2f} |")
        lines.append("")
    path.write_text("\n".join(lines).rstrip() + "\n")


def grown(rows, committed):
    """Programs that take more time or memory than committed and allowed, each with a text."""
    found = []
    for name, row in rows.items():
        if name not in committed or name == base_of(name) or row["with"] != committed[name]["with"]:
            continue
        for key, what in (("of_base", "processor time"), ("memory_of_base", "memory")):
            if (name, key) not in SHOWN_ONLY and row[key] > ALLOWED * committed[name][key]:
                found.append((name, f"{what} is {row[key]:.2f} of {base_of(name)}'s, and was {committed[name][key]:.2f}"))
    return found


def grown_in_turns(measurement, committed):
    """Measures all programs, and again those that seem to have grown: a busy machine is not a regression."""
    measurement.turns(3, measurement.commands)
    suspects = {name for name, _ in grown(measurement.rows(), committed)}
    measurement.turns(4, suspects | {base_of(name) for name in suspects})
    return [(name, text) for name, text in grown(measurement.rows(), committed) if name in suspects]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", default="g++", help="the compiler (default: %(default)s)")
    parser.add_argument("--include", type=pathlib.Path, default=HERE.parents[1] / "include", help="the library's headers")
    parser.add_argument("--mpi-include", action="append", metavar="DIR", help="folders with mpi.h and what it includes")
    parser.add_argument("--eigen-include", metavar="DIR", help="the folder with Eigen/Dense")
    parser.add_argument("--nvcc", help="nvcc, to compile the GPU's codec too")
    parser.add_argument("--turns", type=int, default=7, help="how often each is compiled (default: %(default)s)")
    parser.add_argument("--results", type=pathlib.Path, default=HERE.parent / "results",
                        help="where compile_time.json and .md are (default: bench/results)")
    parser.add_argument("--check", action="store_true", help="compare with the table in place of writing it")
    arguments = parser.parse_args()

    file = arguments.results / "compile_time.json"
    table = json.loads(file.read_text()) if file.exists() else {}
    compiler = major(arguments.cxx)
    if arguments.check and compiler not in table:
        print(f"skipped: {file} has no table of {compiler}")
        return 77

    measurement = Measurement(commands(arguments))
    if arguments.check:
        committed = table[compiler]["rows"]
        problems = grown_in_turns(measurement, committed)
        for name, row in measurement.rows().items():
            was = f", committed {committed[name]['of_base']:.2f}" if name in committed else ""
            print(f"{name:18} {row['seconds']:6.2f} s  {row['of_base']:5.2f} of {base_of(name)}{was}")
        print("\n".join(f"{name}: {text}" for name, text in problems))
        return 1 if problems else 0

    measurement.turns(arguments.turns, measurement.commands)
    processor = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    machine = f"{line_of([arguments.cxx, '--version'])}, {processor.group(1) if processor else 'unknown processor'}."
    table[compiler] = {"machine": machine, "rows": measurement.rows()}
    arguments.results.mkdir(parents=True, exist_ok=True)
    results_json.write(file, table)
    write_table(arguments.results / "compile_time.md", table)
    print((arguments.results / "compile_time.md").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
