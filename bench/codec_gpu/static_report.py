#!/usr/bin/env python3
"""What can be told of the shipped kernels without a GPU, from the compiler's output: a Markdown table.

    static_report.py [--architectures 90,100] [--nvcc PATH] [--cuobjdump PATH] [--include DIR]... [--files NAME]...

Compiles tests/simt/nvcc/*.cu and reads the machine code. For each kernel:

    registers      of each thread
    warps          resident on a multiprocessor, by calculation, of 64: the occupancy
    loads, stores  on the shortest way round the main loop, as number x bits; those of block parameters left out
    in flight      bytes that the resident threads have asked for before the first of them waits, parameters left out
    instructions   on that way, for each byte that is loaded or stored on it; in brackets those of the pipe of integers,
                   comparisons and conversions, which starts one warp in two cycles and not one in each. Too few where
                   the ordinary way takes a branch that is longer: the shortest leaves out divisions by a scale

Needs nvcc, cuobjdump and c++filt.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK_THREADS = 256
# The same from sm_80 to sm_100: registers and threads of a multiprocessor; registers are given to warps in units.
REGISTERS = 65536
MOST_WARPS = 64
REGISTER_UNIT = 256
# Opcodes of the pipe that is half as wide as the multiprocessor issues.
HALF_RATE = re.compile(
    r"(LOP3|SHF|PRMT|I?MNMX|VIMNMX3?|FMNMX|FSETP|ISETP|PLOP3|F?SEL|IADD3|VIADD|VIADDMNMX|LEA|I2FP|F2FP|I2F|F2I|IABS|BMSK|SGXT)\b")

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_]+)([^;]*);")
REGISTER = re.compile(r"\bR(\d+)\b")


class Instruction:
    def __init__(self, address, predicated, opcode, rest):
        self.address = address
        self.predicated = predicated
        self.opcode = opcode
        modifiers, _, operands = rest.partition(" ")
        self.modifiers = modifiers
        self.operands = operands.split(",")
        if opcode in ("LDG", "STG"):
            wide = re.search(r"\.(64|128|U8|U16|S8|S16)\b", modifiers)
            self.bits = int(wide.group(1).lstrip("US")) if wide else 32
        self.target = None
        if opcode == "BRA":
            self.target = int(re.findall(r"0x[0-9a-f]+", operands)[-1], 16)
            # A branch on a predicate as an operand, or on the predicate of the instruction.
            self.predicated |= len(self.operands) > 1

    def registers_of(self, operands):
        return {int(r) for o in operands for r in REGISTER.findall(o)}


def instructions_by_kernel(cuobjdump, cubin):
    kernels = {}
    current = None
    for line in subprocess.run([cuobjdump, "-sass", cubin], check=True, capture_output=True, text=True).stdout.splitlines():
        if "Function :" in line:
            current = kernels.setdefault(line.split(":", 1)[1].strip(), [])
        elif (match := INSTRUCTION.match(line)) and current is not None:
            current.append(Instruction(int(match[1], 16), bool(match[2]), match[3], match[4]))
    return kernels


def registers_by_kernel(report):
    found = {}
    kernel = None
    for line in report.splitlines():
        if match := re.search(r"Compiling entry function '([^']*)'", line):
            kernel = match[1]
        elif match := re.search(r"Used (\d+) registers", line):
            found[kernel] = int(match[1])
    return found


def is_parameter(instruction, summing):
    """Messages' codes are read through the read-only cache, their parameters are not; what is written singly is one."""
    return summing and instruction.opcode == "LDG" and "CONSTANT" not in instruction.modifiers


def ways_round(code):
    """For each load, the shortest way from it back to it."""
    index = {i.address: n for n, i in enumerate(code)}

    def successors(n):
        i = code[n]
        if i.opcode == "BRA":
            yield index[i.target]
        if n + 1 != len(code) and (i.predicated or i.opcode not in ("BRA", "EXIT", "RET")):
            yield n + 1

    for start, i in enumerate(code):
        if i.opcode != "LDG":
            continue
        came_from = {}
        frontier = [start]
        while frontier and start not in came_from:
            reached = []
            for n in frontier:
                for s in successors(n):
                    if s not in came_from:
                        came_from[s] = n
                        reached.append(s)
            frontier = reached
        if start in came_from:
            way = [came_from[start]]
            while way[-1] != start:
                way.append(came_from[way[-1]])
            yield [code[n] for n in reversed(way)]


def in_flight(way, summing):
    """Most bytes that a thread has asked for before it needs the first."""
    most = total = 0
    pending = set()
    for i in way:
        used = i.operands if i.opcode in ("STG", "BRA", "EXIT") else i.operands[1:]
        if pending & i.registers_of(used):
            total = 0
            pending = set()
        if i.opcode == "LDG":
            first = min(i.registers_of(i.operands[:1]))
            pending |= set(range(first, first + max(1, i.bits // 32)))
            if not is_parameter(i, summing):
                total += i.bits // 8
        most = max(most, total)
    return most


def counts(instructions):
    widths = {}
    for i in instructions:
        widths[i.bits] = widths.get(i.bits, 0) + 1
    return ", ".join(f"{n} x {bits}" for bits, n in sorted(widths.items(), reverse=True)) or "-"


def row(name, code, registers):
    summing = "sum_source" in name
    # The main loop's ordinary way is the one whose narrowest load is the widest, and that has the most in flight.
    def rank(way):
        bits = (i.bits for i in way if i.opcode == "LDG" and not is_parameter(i, summing))
        return min(bits, default=0), in_flight(way, summing), -len(way)

    way = max(ways_round(code), key=rank, default=[])
    loads = [i for i in way if i.opcode == "LDG" and not is_parameter(i, summing)]
    stores = [i for i in way if i.opcode == "STG" and not i.predicated]
    moved = sum(i.bits for i in loads + stores) / 8
    half_rate = sum(1 for i in way if HALF_RATE.match(i.opcode))
    for_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    blocks = min(MOST_WARPS * 32 // BLOCK_THREADS, REGISTERS // for_warp // (BLOCK_THREADS // 32))
    warps = blocks * BLOCK_THREADS // 32
    flying = in_flight(way, summing) * blocks * BLOCK_THREADS / 1024
    per_byte = f"{len(way) / moved:.1f} ({half_rate / moved:.1f})" if moved else "-"
    return [str(registers), f"{warps} ({100 * warps // MOST_WARPS} %)", counts(loads), counts(stores), f"{flying:.0f} KiB", per_byte]


def short_name(mangled):
    name = subprocess.run(["c++filt", mangled], check=True, capture_output=True, text=True).stdout
    name = re.sub(r"zeropp::(detail::)?", "", name).split(">(")[0].removeprefix("void run<").strip()
    name = re.sub(r"block_integer<(\d+), (\d+), symmetric, float>", r"int\1:\2", name)
    name = re.sub(r", kernel_residuals<no_feedback> ?", "", name)
    name = re.sub(r"hadamard<(\S+), (\d+)>", r"\1:h\2", name)
    if match := re.search(r", kernel_residuals<feedback<(.*?)[ >]*$", name):
        storage = match[1] + ">" * match[1].count("<")
        return f"{kernel_name(name[:match.start()])}, residuals in {storage}"
    return kernel_name(name)


def kernel_name(name):
    if match := re.match(r"encode_kernel<(.*), tensor_source<(.*)> ?", name):
        return f"encode {match[2].rstrip('> ')} to {match[1]}"
    if match := re.match(r"encode_kernel<(.*), sum_source<(.*), (\d+)> ?", name):
        return f"sum of {match[3].replace('0', 'any')} {match[2]} to {match[1]}"
    if match := re.match(r"decode_kernel<sum_source<(.*), (\d+)>, (\w+)> ?", name):
        return f"decode of {match[2].replace('0', 'any')} {match[1]} to {match[3]}"
    if match := re.match(r"encode_kernel<(.*), difference_source<(.*), (.*)> ?", name):
        return f"encode {match[2]} less {match[3].rstrip('> ')} to {match[1]}"
    return name


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", default="90,100")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--cuobjdump", default="cuobjdump")
    parser.add_argument("--include", action="append", default=[], help="searched before the library's own include/")
    parser.add_argument("--files", action="append", help="only these of tests/simt/nvcc, without .cu")
    arguments = parser.parse_args()
    sources = sorted((ROOT / "tests/simt/nvcc").glob("*.cu"))
    if arguments.files:
        sources = [s for s in sources if s.stem in arguments.files]
    version = subprocess.run([arguments.nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    print("# The shipped kernels in machine code\n")
    print(f"From the output of nvcc {re.search(r'V([0-9.]+)', version)[1]} alone: nothing here was measured on a GPU.")
    print(f"`bench/codec_gpu/static_report.py --architectures {arguments.architectures}` made this page and says what"
          " its columns mean; `instructions` is a lower bound.")
    with tempfile.TemporaryDirectory() as scratch:
        for architecture in arguments.architectures.split(","):
            print(f"\n## sm_{architecture}\n")
            print("| kernel | registers | warps | loads | stores | in flight | instructions |\n|---|---|---|---|---|---|---|")
            rows = {}
            for source in sources:
                cubin = pathlib.Path(scratch) / "kernels.cubin"
                command = [arguments.nvcc, "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-cubin", "-Xptxas", "-v"]
                for include in arguments.include + [ROOT / "include"]:
                    command += ["-I", str(include)]
                compiled = subprocess.run(command + [str(source), "-o", str(cubin)], capture_output=True, text=True)
                if compiled.returncode != 0:
                    sys.exit(compiled.stderr)
                registers = registers_by_kernel(compiled.stderr)
                for name, code in instructions_by_kernel(arguments.cuobjdump, str(cubin)).items():
                    rows[short_name(name)] = row(name, code, registers[name])
            for name in sorted(rows):
                print(f"| {name} | {' | '.join(rows[name])} |", flush=True)


if __name__ == "__main__":
    main()
