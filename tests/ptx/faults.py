#!/usr/bin/env python3
"""Plants faults in the interpreter or in PTX, one at a time, and says which the tests notice.

    faults.py mistakes PROGRAM...
    faults.py mutants [--count N] [--seed N] PROGRAM...

mistakes   the interpreter executes an instruction wrongly, in each way that faults.cpp has. A program must notice: a
           comparison must fail, because a fault that the interpreter reports by itself proves nothing about the tests
mutants    a PTX instruction is replaced or removed, N of those that the programs execute, drawn at random. Each is run in
           its own program. Noticed are failed comparisons, faults that the interpreter reports (addresses, lanes that never
           arrive), crashes, and kernels without an end. Others are listed

Exit status: 0, 1 a mistake was not noticed, 2 the arguments are wrong, or a program fails without faults.
"""
import argparse
import collections
import os
import random
import re
import subprocess
import sys
import tempfile

MISTAKES = ["rounding", "denormals", "division", "bfloat16", "nan", "lop3", "prmt", "shuffle", "mma", "barrier",
            "copy"]
# f32x2 is an instruction of sm_100.
MISTAKES_OF_100 = ["pair"]

OPPOSITES = {"add": "sub", "sub": "add", "mul": "add", "shl": "shr", "shr": "shl", "and": "or", "or": "and", "xor": "or",
             "min": "max", "max": "min", "eq": "ne", "ne": "eq", "lt": "le", "le": "lt", "gt": "ge", "ge": "gt",
             "ltu": "leu", "leu": "ltu", "gtu": "geu", "geu": "gtu", "nan": "num", "num": "nan", "bfly": "down",
             "NaN": "", "l": "r", "r": "l"}


def ending(program, limit=600, **environment):
    """The way that a run of the program ends: passed, comparison, fault, invalid (PTX), crash or endless."""
    try:
        run = subprocess.run([program, "--abort"], env={**os.environ, **environment}, timeout=limit,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return "endless"
    if run.returncode == 0:
        return "passed"
    if "supported" in run.stdout and "fault in the PTX" in run.stdout:
        return "invalid"
    if "fault in " in run.stdout:
        return "endless" if "does not end" in run.stdout else "fault"
    return "crash" if run.returncode < 0 or "SIG" in run.stdout else "comparison"


def mistakes(programs):
    names = MISTAKES + (MISTAKES_OF_100 if int(os.environ.get("PTX_ARCH", 90)) >= 100 else [])
    unnoticed = 0
    for name in names:
        endings = []
        for program in programs:
            endings.append(ending(program, PTX_MISTAKE=name))
            if endings[-1] == "comparison":
                break
        noticed = endings[-1] == "comparison"
        unnoticed += not noticed
        where = os.path.basename(programs[len(endings) - 1]) if noticed else "NOT NOTICED: " + ", ".join(endings)
        print(f"{name:10} {where}", flush=True)
    return 1 if unnoticed else 0


def mutants_of(text):
    """All statements that stand for `text` with one fault."""
    guard, opcode, operands = re.fullmatch(r"(@!?\S+\s+)?(\S+)\s*(.*)", text, re.S).groups(default="")
    yield ""
    if guard:
        yield (guard.replace("@!", "@") if "!" in guard else guard.replace("@", "@!")) + f"{opcode} {operands}"
        yield f"{opcode} {operands}"
    parts = opcode.split(".")
    for i, part in enumerate(parts):
        if part in OPPOSITES:
            changed = parts[:i] + [OPPOSITES[part]] + parts[i + 1:]
            name = ".".join(p for p in changed if p)
            # Left shifts know no sign.
            yield guard + (re.sub(r"[us](?=\d+$)", "b", name) if part == "shr" else name) + " " + operands
    for number in re.finditer(r"(?<=[ ,+])-?\d+(?=\s*[,;\]]|$)", operands):
        changed = int(number[0]) + (8 if "[" in operands else 1)
        yield f"{guard}{opcode} {operands[:number.start()]}{changed}{operands[number.end():]}"
    if parts[0] in ("sub", "div", "selp") or opcode.startswith(("setp.l", "setp.g")):
        result, first, second, *rest = [operand.strip() for operand in operands.split(",")]
        if first != second:
            yield f"{guard}{opcode} {', '.join([result, second, first, *rest])}"


def reached(program, folder):
    """Line and text of each instruction that the program executes."""
    path = os.path.join(folder, "reached")
    if ending(program, PTX_REACHED=path) != "passed":
        sys.exit(f"{program} fails without a fault")
    with open(path) as lines:
        found = [(int(line), text) for line, _, text in (each.rstrip("\n").split(" ", 2) for each in lines)]
    times = collections.Counter(line for line, _ in found)
    return [(line, text) for line, text in found if times[line] == 1]


def mutants(programs, count, seed):
    chance = random.Random(seed)
    endings = collections.Counter()
    with tempfile.TemporaryDirectory() as folder:
        instructions = [reached(program, folder) for program in programs]
    done = 0
    while done != count:
        which = done % len(programs)
        line, text = chance.choice(instructions[which])
        mutant = chance.choice(list(mutants_of(text)))
        end = ending(programs[which], PTX_MUTANT=f"{line} {mutant}")
        if end == "invalid":
            continue
        done += 1
        endings[end] += 1
        print(f"{'SURVIVED' if end == 'passed' else end:10} {os.path.basename(programs[which])} line {line}: `{text}` -> "
              f"`{mutant}`", flush=True)
    noticed = count - endings["passed"]
    print(f"{noticed} of {count} mutants are noticed: " + ", ".join(f"{n} {end}" for end, n in endings.most_common()))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["mistakes", "mutants"])
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.what == "mistakes":
        return mistakes(given.programs)
    return mutants(given.programs, given.count, given.seed)


if __name__ == "__main__":
    sys.exit(main())
