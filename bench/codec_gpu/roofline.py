#!/usr/bin/env python3
"""What the shipped kernels can be expected to reach of a copy's speed, predicted from their machine code alone.

    roofline.py [--write | --check] [--cubins DIR] [--nvcc PATH] [--nvdisasm PATH]

Compiles tests/simt/nvcc/*.cu, or takes what those tests have made of them in DIR, and reads the machine code with
nvdisasm, which it gets from PyPI where there is none. For each kernel it takes the ordinary way round the main loop:
the shortest on which all loads are as wide as they get. Slow ways (a NaN, a tile cut short) are not on it.

Counts are of instructions that a thread executes for each byte that is loaded or stored there, parameters of blocks
left out. What they make of a copy's speed is the model of `predicted`, calibrated on the figures that another model, of a
review before this script, had for 18 kernels (.03 off in the mean). bench/results/gpu_h200.md has measurements beside it.

    (nothing)  prints the tables
    --write    writes them to bench/results/roofline.{json,md}
    --check    fails where a count has grown by more than 3 % since, or fewer warps fit or bytes are in flight, in the
               generations of --architectures; 77 for another nvcc
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))
import results_json  # noqa: E402

RESULTS = ROOT / "bench/results"
SOURCES = sorted((ROOT / "tests/simt/nvcc").glob("*.cu"))
NVDISASM = "nvidia-cuda-nvdisasm==13.2.51"
ARCHITECTURES = (80, 90, 100)
ALLOWED = 1.03

# From sm_80 to sm_100: registers of a multiprocessor, the unit in which warps get them, and warps.
REGISTERS, REGISTER_UNIT, MOST_WARPS, BLOCK_WARPS = 65536, 256, 64, 8

# Pipes of instructions, and the threads that a multiprocessor starts in a clock, after CUDA's programming guide,
# "Arithmetic Instructions". Slower multiplications of integers and conversions are ignored. Tensor cores have a quarter
# of sm_90's datasheet rate, a guess for synchronous instructions. Instructions in no list are only issued: loads of
# constants (LDC) go to the ADU, after Nsight Compute's guide, "Pipelines".
PIPES = {
    "ALU": (64, r"LOP3|SHF|PRMT|I?MNMX|VIMNMX3?|FMNMX3?|FSETP|ISETP|PLOP3|F?SEL|IADD3|VIADD|VIADDMNMX|LEA|I2FP|F2FP|IABS|"
                r"BMSK|SGXT|HMNMX2|HSETP2"),
    "FMA": (128, r"FFMA2?|FMUL2?|FADD2?|IMAD|HADD2|HFMA2|HMUL2"),
    "XU": (16, r"I2F|F2I|F2F|MUFU|FRND|POPC|FLO"),
    "shuffles": (32, r"SHFL"),
    "tensor": (16, r"HMMA"),
    "LSU": (32, r"LDG?|STG?|LDS|STS"),
}
ISSUED = 128
CLASSES = {name: re.compile(rf"({opcodes})$") for name, (_, opcodes) in PIPES.items()}

# Architecture, multiprocessors, GHz, TB/s of a copy (read and written): 90 % of the datasheet's rate.
GPUS = {"H100": (90, 132, 1.75, 3.0), "H200": (90, 132, 1.75, 4.3), "B200": (100, 148, 1.85, 7.2)}
# Sustained fraction of a pipe's rate, latency of loads from busy memory, best fraction of a copy's speed for a kernel with
# two streams, and the exponent that combines limits.
SUSTAINED, LATENCY_NS, BEST, SHARPNESS = 0.87, 700, 0.93, 6

# Fractions on an H200: the target, and the prediction before integers had short paths and codes had 16-byte loads.
TARGETS = {
    "encode bfloat16 to int8:256": (0.93, 0.91),
    "encode bfloat16 to int4:128": (0.92, 0.84),
    "decode of 1 int8:256 to bfloat16": (0.93, 0.93),
    "decode of 1 int4:128 to bfloat16": (0.93, 0.91),
    "sum of 4 int8:256 to int4:128": (0.87, 0.49),
    "sum of 8 int8:256 to int4:128": (0.90, 0.70),
    "sum of 4 int4:128 to int4:128": (0.80, 0.33),
    "sum of 8 int4:128 to int4:128": (0.80, 0.32),
    "sum of 4 int4:128:bfloat16 to int4:128:bfloat16": (0.80, 0.74),
    "sum of 8 int4:128:bfloat16 to int4:128:bfloat16": (0.80, 0.77),
    "decode of 8 int4:128 to bfloat16": (0.87, 0.55),
}
# Target for unaligned shards, as a fraction of the speed of shards aligned to 16 bytes.
UNALIGNED = ", unaligned"
WANTED_UNALIGNED = 0.85

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_]+)([^;]*);")
LOADS, STORES = ("LDG", "LD"), ("STG", "ST")
LABEL = re.compile(r"^(\.L_x_\d+):")
REGISTER = re.compile(r"\bR(\d+)\b")


class Instruction:
    def __init__(self, predicate, opcode, rest):
        self.predicate = (predicate or "").strip()
        self.predicated = bool(predicate)
        self.opcode = opcode
        self.modifiers, _, operands = rest.partition(" ")
        self.operands = operands.split(",")
        wide = re.search(r"\.(64|128|U8|U16|S8|S16)\b", self.modifiers)
        self.bits = int(wide.group(1).lstrip("US")) if wide else 32
        self.target = None
        if opcode == "BRA":
            self.target = re.search(r"\.L_x_\d+", rest)[0]
            # A branch may have its predicate as an operand, or before the instruction.
            self.predicated |= len(self.operands) > 1

    def registers_of(self, operands):
        return {int(r) for o in operands for r in REGISTER.findall(o)}


def kernels_of(listing):
    """The instructions of each kernel, and the positions of its labels."""
    kernels = {}
    code = labels = None
    for line in listing.splitlines():
        if line.startswith(".text."):
            code, labels = kernels.setdefault(line[len(".text."):].rstrip(":"), ([], {}))
        elif code is None:
            continue
        elif match := LABEL.match(line):
            labels[match[1]] = len(code)
        elif match := INSTRUCTION.match(line):
            code.append(Instruction(match[2], match[3], match[4]))
    return kernels


def is_parameter(instruction, summing):
    """True for loads of block parameters: unlike codes, they do not use the read-only cache."""
    return summing and instruction.opcode in LOADS and "CONSTANT" not in instruction.modifiers


def ways_round(code, labels):
    """For each load in a loop, the shortest path from it back to it."""
    def successors(n):
        i = code[n]
        if i.target:
            yield labels[i.target]
        if n + 1 != len(code) and (i.predicated or i.opcode not in ("BRA", "EXIT", "RET")):
            yield n + 1

    for start, i in enumerate(code):
        if i.opcode not in LOADS:
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


def taken(way, which):
    """`way` without the loads of one of two alternatives under opposite predicates. `which` is max to keep the wider
    loads, min to keep the narrower ones."""
    widest = {}
    for i in way:
        if i.opcode in LOADS and i.predicate:
            widest[i.predicate] = max(widest.get(i.predicate, 0), i.bits)

    def is_left_out(i):
        if i.opcode not in LOADS or not i.predicate:
            return False
        opposite = i.predicate.replace("@!", "@") if "!" in i.predicate else i.predicate.replace("@", "@!")
        return opposite in widest and which(widest[i.predicate], widest[opposite]) != widest[i.predicate]

    return [i for i in way if not is_left_out(i)]


def in_flight(way, summing):
    """Most bytes that a thread loads before it uses the first."""
    most = total = 0
    pending = set()
    for i in way:
        used = i.operands if i.opcode in (*STORES, "BRA", "EXIT") else i.operands[1:]
        if pending & i.registers_of(used):
            total = 0
            pending = set()
        if i.opcode in LOADS:
            first = min(i.registers_of(i.operands[:1]))
            pending |= set(range(first, first + max(1, i.bits // 32)))
            if not is_parameter(i, summing):
                total += i.bits // 8
        most = max(most, total)
    return most


def is_fused(code):
    """True if an instruction multiplies two elements and adds to the products, which PTX does not show."""
    return any(i.opcode == "FFMA2" and not i.operands[-1].strip().startswith("RZ") for i in code)


def has_exact_products(kernel):
    """True if scales of the messages that `kernel` sums have 16 bits: a product with a code is exact, fused or not."""
    return bool(re.match(r"(sum|decode) of \w+ int\d:\d+(:signed)?:(half|bfloat16)\b", kernel))


def widths(instructions):
    found = {}
    for i in instructions:
        found[i.bits] = found.get(i.bits, 0) + 1
    return ", ".join(f"{n} x {bits}" for bits, n in sorted(found.items(), reverse=True)) or "-"


def resident_warps(registers):
    """Warps on a multiprocessor, for threads with `registers` registers."""
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    return min(MOST_WARPS // BLOCK_WARPS, REGISTERS // of_warp // BLOCK_WARPS) * BLOCK_WARPS


def counted(name, code, labels, registers):
    """Rows of a kernel with all inputs of the model: "" for the ordinary path, and UNALIGNED for the path of unaligned
    tensors, if there is one."""
    summing = "sum_source" in name
    warps = resident_warps(registers)

    def loads_of(way):
        return [i for i in way if i.opcode in LOADS and not is_parameter(i, summing)]

    def stores_of(way):
        return [i for i in way if i.opcode in STORES and not i.predicated]

    def rank(way):
        loads = loads_of(taken(way, max))
        return bool(loads and stores_of(way)), min((i.bits for i in loads), default=0), in_flight(taken(way, max), summing), -len(way)

    def row_of(way, which, read, moved):
        row = {"registers": registers, "warps": warps, "loads": widths(loads_of(taken(way, which))),
               "stores": widths(stores_of(way)), "read": read / moved if moved else 0,
               "in_flight_kib": in_flight(taken(way, which), summing) * warps * 32 / 1024}
        if moved:
            row["issue"] = len(way) / moved
            for pipe, opcodes in CLASSES.items():
                # An access of 16 bytes takes as long as four of 4.
                row[pipe] = sum(max(1, i.bits // 32) if pipe == "LSU" else 1 for i in way
                                if opcodes.match(i.opcode)) / moved
        return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}

    ways = list(ways_round(code, labels))
    way = max(ways, key=rank, default=[])
    wide = loads_of(taken(way, max))
    read = sum(i.bits for i in wide) / 8
    moved = read + sum(i.bits for i in stores_of(way)) / 8
    rows = {"": row_of(way, max, read, moved)}

    def is_narrow(way):
        loads = loads_of(taken(way, min))
        return (bool(stores_of(way)) and widths(stores_of(way)) == rows[""]["stores"] and all(i.bits <= 32 for i in loads) and
                sum(i.bits for i in loads) / 8 == read)

    # The unaligned path has equal stores, and loads equally many bytes in narrower words.
    narrow = [w for w in ways if is_narrow(w)]
    if not summing and narrow and max(i.bits for i in wide) == 128:
        rows[UNALIGNED] = row_of(max(narrow, key=lambda w: (in_flight(taken(w, min), summing), -len(w))), min, read, moved)
    return rows


def predicted(row, gpu):
    """The fraction of a copy's speed, and the name of the binding limit.

    Limits are the instructions of each pipe, memory, and loads in flight (Little's law). They overlap, and the longest
    binds. Limits of similar length delay each other, so times are combined by a sum of sixth powers.
    """
    _, multiprocessors, ghz, terabytes = GPUS[gpu]
    clocks_for_byte = multiprocessors * ghz / (terabytes * 1e3)
    times = {"memory": 1.0,
             "in flight": row["read"] * terabytes * 1e3 / multiprocessors * LATENCY_NS / (row["in_flight_kib"] * 1024)}
    for pipe, rate in {"issue": ISSUED, **{name: rate for name, (rate, _) in PIPES.items()}}.items():
        times[pipe] = row[pipe] / (rate * SUSTAINED * clocks_for_byte)
    # The slower of the two is the limit of memory.
    del times[min("memory", "in flight", key=times.get)]
    return BEST / sum(time ** SHARPNESS for time in times.values()) ** (1 / SHARPNESS), max(times, key=times.get)


def parsed(text):
    """A type's name as a tree: [name, argument...], with arguments as trees."""
    def one(at):
        begin = at
        while at < len(text) and text[at] not in "<,>":
            at += 1
        tree = [text[begin:at].strip()]
        if at < len(text) and text[at] == "<":
            while text[at] != ">":
                argument, at = one(at + 1)
                tree.append(argument)
            at += 1
            while at < len(text) and text[at] not in ",>":
                at += 1
        return tree, at

    return one(0)[0]


def shown(tree):
    """The name of a type on the pages."""
    name, *arguments = tree
    if name == "block_integer":
        bits, block, scheme, scale = (shown(a) for a in arguments)
        options = {"symmetric": "", "signed_absmax": ":signed"}.get(scheme, f":{scheme}")
        options += "" if scale == "float" else f":{scale}"
        return f"int{bits}:{block}{options}"
    if name == "hadamard":
        return f"{shown(arguments[0])}:h{shown(arguments[1])}"
    if name == "stochastic":
        return f"{shown(arguments[0])}:stochastic"
    if name == "tensor_source":
        return shown(arguments[0])
    if name == "difference_source":
        return f"{shown(arguments[0])} less {shown(arguments[1])}"
    if name == "sum_source":
        return f"{shown(arguments[1]).replace('0', 'any')} {shown(arguments[0])}"
    return f"{name}<{', '.join(shown(a) for a in arguments)}>" if arguments else name


def demangled(names):
    if not names:
        return {}
    text = subprocess.run(["c++filt", *names], check=True, capture_output=True, text=True).stdout
    return dict(zip(names, text.splitlines()))


def short_name(text):
    text = re.sub(r"zeropp::(detail::)?", "", text)
    kernel, *arguments = parsed(text[text.index("run<") + len("run<"):])
    if kernel == "encode_kernel":
        quantizer, source, residuals, where = arguments
        name = f"{'sum of' if 'sum_source' in text else 'encode'} {shown(source)} to {shown(quantizer)}"
        if shown(residuals) != "kernel_residuals<none>":
            name += f", residuals in {shown(residuals[1][1])}"
    elif kernel == "decode_kernel":
        source, element, where, _ = arguments
        name = f"decode of {shown(source)} to {shown(element)}"
    else:
        return shown([kernel, *arguments])
    return name + {"slices": "", "list_slices": ", of a list", "packed_slices<slices>": ", packed",
                   "packed_slices<list_slices>": ", of a list, packed"}[shown(where)]


def find_nvdisasm(given, nvcc, folder):
    """The path of nvdisasm: given, beside nvcc, or downloaded from PyPI."""
    if given:
        return given
    neighbour = pathlib.Path(shutil.which(nvcc) or nvcc).resolve().parent / "nvdisasm"
    if neighbour.exists():
        return neighbour
    program = folder / "nvidia/cu13/bin/nvdisasm"
    if not os.access(program, os.X_OK):
        fetched = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:",
                                  "--dest", folder, NVDISASM])
        if fetched.returncode != 0:
            print(f"skipped: no nvdisasm here, and {NVDISASM} cannot be had from PyPI")
            sys.exit(77)
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
        program.chmod(0o755)
    return program


def compile_all(nvcc, folder):
    for source in SOURCES:
        for architecture in ARCHITECTURES:
            output = folder / f"{source.stem}.sm_{architecture}"
            made = subprocess.run([nvcc, "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-cubin", "-Xptxas", "-v", "-I",
                                   ROOT / "include", source, "-o", f"{output}.cubin"], capture_output=True, text=True)
            if made.returncode != 0:
                sys.exit(made.stderr)
            pathlib.Path(f"{output}.txt").write_text(made.stderr)


def registers_of(report):
    return {kernel: int(n) for kernel, n in
            re.findall(r"Compiling entry function '([^']*)'.*?Used (\d+) registers", report, re.DOTALL)}


def measured(folder, architectures, nvdisasm):
    """Rows of the compiled kernels: {architecture: {kernel: row}}."""
    found = {}
    for architecture in architectures:
        rows = found[str(architecture)] = {}
        for source in SOURCES:
            cubin = folder / f"{source.stem}.sm_{architecture}.cubin"
            registers = registers_of(cubin.with_suffix(".txt").read_text())
            listing = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
            kernels = kernels_of(listing)
            names = demangled(kernels)
            for name, (code, labels) in kernels.items():
                shortened = short_name(names[name])
                assert has_exact_products(shortened) or not is_fused(code), f"{shortened}: a product is added before it is rounded"
                for what, row in counted(name, code, labels, registers[name]).items():
                    # Several files may instantiate one kernel.
                    assert rows.setdefault(shortened + what, row) == row, f"two kernels have the name {shortened + what}"
    return {architecture: dict(sorted(rows.items())) for architecture, rows in found.items()}


def unaligned_fractions(rows):
    """Speed of unaligned shards as a fraction of aligned ones, on an H200, for each kernel with both paths."""
    return [predicted(row, "H200")[0] / predicted(rows[name.removesuffix(UNALIGNED)], "H200")[0]
            for name, row in rows.items() if name.endswith(UNALIGNED)]


def tables(found, version):
    lines = ["# The shipped kernels by their machine code", "",
             f"Predicted by `bench/codec_gpu/roofline.py --write` from the output of nvcc {version} alone. Measurements are in",
             "[gpu_h100.md](gpu_h100.md) and [gpu_h200.md](gpu_h200.md), beside these predictions.",
             "What a multiprocessor starts in a clock, what the GPUs do, and the model that makes fractions",
             "of a copy's speed from counts are in the script, each with its source. Counts are instructions of a thread for",
             "each byte loaded or stored on the ordinary way round the main loop; parameters of blocks are left out. Where no",
             "store is on that way (as many messages as are told at run time), it is only a part of the work: nothing is predicted",
             "there, and the counts are for the test alone.", "",
             "`tests/ptx/run.sh` fails where a count has grown by more than 3 %, or fewer warps fit or bytes are in flight."]
    lines += ["", "## Targets", "", "Fractions of a copy's speed on an H200, predicted:", "",
              "| kernel | before | now | wanted | met | binds | instructions for a byte |", "|---|---:|---:|---:|---|---|---:|"]
    for name, (wanted, before) in TARGETS.items():
        row = found["90"][name]
        fraction, binds = predicted(row, "H200")
        met = "yes" if round(fraction, 2) >= wanted else "**no**"
        lines.append(f"| {name} | {before:.2f} | {fraction:.2f} | {wanted:.2f} | {met} | {binds} | {row['issue']:.2f} |")
    lines += ["", "A sum of rotated messages that is encoded with windows of the same size stays rotated. Its kernel is that of the",
              "formats without rotation: `sum of 4 int4:128:h32 to int4:128:h32` is `sum of 4 int4:128 to int4:128`."]
    unaligned = unaligned_fractions(found["90"])
    lines += ["", "Encoding of slices that do not begin at 16 bytes, as parts of the speed of those that do, predicted (wanted: "
              f"{WANTED_UNALIGNED}; the least of the {len(unaligned)} kernels of which that way is found: {min(unaligned):.2f}):", "",
              "| kernel | of aligned | binds | instructions for a byte |", "|---|---:|---|---:|"]
    for name in TARGETS:
        if row := found["90"].get(name + UNALIGNED):
            fraction, binds = predicted(row, "H200")
            lines.append(f"| {name} | {fraction / predicted(found['90'][name], 'H200')[0]:.2f} | {binds} | {row['issue']:.2f} |")
    for architecture, rows in found.items():
        gpus = [name for name, gpu in GPUS.items() if gpu[0] == int(architecture)]
        heading = [*(f"of a copy, {gpu} (predicted)" for gpu in gpus), *(f"binds, {gpu}" for gpu in gpus[-1:])]
        columns = ["kernel", *heading, "issue", *PIPES, "registers", "warps", "KiB in flight", "loads", "stores"]
        lines += ["", f"## sm_{architecture}", "", f"| {' | '.join(columns)} |",
                  "|---|" + "---:|" * len(gpus) + ("---|" if gpus else "") + "---:|" * (len(PIPES) + 4) + "---|---|"]
        for name, row in rows.items():
            cells = [name]
            if "issue" not in row:
                cells += ["-"] * (len(columns) - 1)
            else:
                whole = row["stores"] != "-"
                cells += [f"{predicted(row, gpu)[0]:.2f}" if whole else "-" for gpu in gpus]
                cells += [predicted(row, gpu)[1] if whole else "-" for gpu in gpus[-1:]]
                cells += [f"{row[pipe]:.2f}" for pipe in ("issue", *PIPES)]
                cells += [str(row["registers"]), str(row["warps"]), f"{row['in_flight_kib']:.0f}", row["loads"], row["stores"]]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def grown(found, committed):
    """Texts for kernels that need more than `committed`, are new, or are gone."""
    problems = []
    for architecture, now in found.items():
        rows = committed[architecture]
        problems += [f"sm_{architecture}, {name}: in the table and not in the code" for name in rows if name not in now]
        problems += [f"sm_{architecture}, {name}: in the code and not in the table" for name in now if name not in rows]
        for name in rows.keys() & now.keys():
            was, row = rows[name], now[name]
            problems += [f"sm_{architecture}, {name}: {key} is {row.get(key, 0)} for a byte, and was {was[key]}"
                         for key in ("issue", *PIPES) if key in was and row.get(key, 1e9) > ALLOWED * was[key] + 0.002]
            if row["warps"] < was["warps"]:
                problems.append(f"sm_{architecture}, {name}: {row['warps']} warps fit, and {was['warps']} did")
            if row["in_flight_kib"] * ALLOWED < was["in_flight_kib"]:
                problems.append(f"sm_{architecture}, {name}: {row['in_flight_kib']} KiB are in flight, and "
                                f"{was['in_flight_kib']} were")
    return sorted(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    parser.add_argument("--cubins", type=pathlib.Path, help="what the tests nvcc.* have made (default: compiles)")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm")
    parser.add_argument("--architectures", type=int, nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES,
                        help="generations to check (default: all)")
    arguments = parser.parse_args()
    if arguments.write and set(arguments.architectures) != set(ARCHITECTURES):
        parser.error("--write is for all generations")

    version = re.search(r"V([0-9.]+)", subprocess.run([arguments.nvcc, "--version"], check=True, capture_output=True,
                                                      text=True).stdout)[1]
    file = RESULTS / "roofline.json"
    committed = json.loads(file.read_text()) if file.exists() else {}
    if arguments.check and committed.get("nvcc") != version:
        print(f"skipped: {file} is of nvcc {committed.get('nvcc')}, not {version}")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.cubins or pathlib.Path(scratch)
        if not arguments.cubins:
            compile_all(arguments.nvcc, folder)
        found = measured(folder, arguments.architectures, find_nvdisasm(arguments.nvdisasm, arguments.nvcc, folder))
    if arguments.check:
        problems = grown(found, committed["kernels"])
        print("\n".join(problems) or f"{sum(map(len, found.values()))} kernels: none has grown")
        return 1 if problems else 0
    if arguments.write:
        results_json.write(file, {"nvcc": version, "kernels": found})
        file.with_suffix(".md").write_text(tables(found, version))
    else:
        print(tables(found, version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
