#!/usr/bin/env python3
"""Fails where C++ that pages show does not compile.

    docs/examples.py REPOSITORY

Every program in docs/programs is compiled. So is every ```cpp block of docs/**/*.md and README.md that has a main. Any
other block must be a piece of a file that something compiles: of docs/programs, examples, tests, bench or include,
whatever the spaces, line ends and comments. A line `...` stands for what a block leaves out.

What needs nvcc, MPI, NCCL or xxHash is left out, with a word, where the machine has none.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMPILED = ("docs/programs", "examples", "tests", "bench", "include")
SUFFIXES = {".cpp", ".cu", ".hpp", ".cuh", ".h", ".c"}


def squeezed(text):
    """C++ without comments and spaces, to be compared."""
    return re.sub(r"\s+", "", re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S))


def blocks(page):
    """The C++ blocks of a page, with the line that each begins in. Refuses those that it would not see."""
    text = page.read_text()
    for match in re.finditer(r"^[^\S\n]*(?:`{3,}|~{3,})[^\S\n]*(\S.*)", text, re.M):
        words = match[1].strip()
        if re.match(r"(c|cc|cpp|c\+\+|cxx|cuda|cu)\b|c\+\+|\{code", words, re.I) and words not in ("cpp", "c++", "cuda"):
            line = text.count("\n", 0, match.start()) + 1
            raise SystemExit(f"docs/examples.py: {page}:{line}: a fence for C++ is cpp, c++ or cuda, not {words}")
    for match in re.finditer(r"^( *)(`{3,}|~{3,})(?:cpp|c\+\+|cuda)\n(.*?)^\1\2", text, re.M | re.S):
        yield text.count("\n", 0, match.start(3)) + 1, match[3]


def has_header(name):
    command = ["g++", "-fsyntax-only", "-x", "c++", "-include", name, "/dev/null"]
    return subprocess.run(command, capture_output=True).returncode == 0


def compiler(text, suffix):
    """How to compile a program, or what this machine has not."""
    mpi, cuda = "mpi.h" in text, suffix == ".cu"
    needs = {"MPI": mpi and not shutil.which("mpicxx"), "nvcc": cuda and not shutil.which("nvcc"),
             "NCCL": "zeropp/nccl.hpp" in text and not has_header("nccl.h"),
             "xxHash": "zeropp/checksummed.hpp" in text and not has_header("xxhash.h")}
    missing = [need for need, absent in needs.items() if absent]
    # Open MPI's header has C++ of its own, which warns.
    host = ["mpicxx", "-DOMPI_SKIP_MPICXX"] if mpi else ["g++"]
    if cuda:
        return ["nvcc", "-ccbin", host[0], *host[1:], "-std=c++20", "-arch=sm_80", "--Werror=all-warnings", "-Iinclude",
                "--ptx", "-o", os.devnull], missing
    return [*host, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Iinclude"], missing


def compile_together(paths, unit):
    """True if programs compile in one translation unit, each in a namespace: what they include is read once."""
    includes = dict.fromkeys(line for path in paths for line in re.findall(r"^#include <.*", path.read_text(), re.M))
    bodies = (f'namespace program_{i} {{\n#include "{path.resolve()}"\n}}' for i, path in enumerate(paths))
    unit.write_text("\n".join([*includes, *bodies]) + "\n")
    # A main in a namespace has to return something.
    return subprocess.run([*compiler("", ".cpp")[0], "-Wno-return-type", str(unit)], capture_output=True).returncode == 0


def main(repository):
    os.chdir(repository)
    sources = [path for top in COMPILED for path in sorted(Path(top).rglob("*")) if path.suffix in SUFFIXES]
    files = {path: path.read_text() for path in sources}
    known = [squeezed(text) for text in files.values()]
    programs = {str(path): path for path in files if path.is_relative_to("docs/programs")}
    wrong, pieces = [], 0

    with tempfile.TemporaryDirectory() as folder:
        for page in [Path("README.md"), *sorted(Path("docs").rglob("*.md"))]:
            for line, text in blocks(page):
                parts = [squeezed(part) for part in re.split(r"^\s*(?://\s*)?\.\.\.\s*$", text, flags=re.M)]
                parts = [part for part in parts if part]
                if parts and any(all(part in file for part in parts) for file in known):
                    pieces += 1
                elif re.search(r"\bint main\(", text):
                    path = Path(folder, f"block{len(programs)}.cpp")
                    path.write_text(text)
                    programs[f"{page}:{line}"] = path
                else:
                    wrong.append(f"{page}:{line}: this C++ is neither a program nor a piece of a file that is compiled "
                                 f"(of {', '.join(COMPILED)})")

        def compile_one(name):
            path = programs[name]
            command, missing = compiler(path.read_text(), path.suffix)
            if missing:
                return f"left out: {name} needs {' and '.join(missing)}", ""
            result = subprocess.run([*command, str(path)], capture_output=True, text=True)
            return "", f"{name} does not compile:\n{result.stderr}" if result.returncode else ""

        # Those for the host alone first together. Only if that fails, one by one, to name the wrong ones.
        alike = [name for name, path in programs.items() if compiler(path.read_text(), path.suffix) == compiler("", ".cpp")]
        right = alike if compile_together([programs[name] for name in alike], Path(folder, "together.cpp")) else []
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(compile_one, [name for name in programs if name not in right]))
    left_out = [text for text, _ in results if text]
    wrong += [text for _, text in results if text]
    print(*left_out, sep="\n", end="\n" if left_out else "")
    print(f"examples: {len(programs) - len(left_out)} programs compiled; {pieces} blocks are pieces of compiled files")
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        raise SystemExit(f"docs/examples.py: {len(wrong)} examples are wrong")


if __name__ == "__main__":
    main(*sys.argv[1:])
