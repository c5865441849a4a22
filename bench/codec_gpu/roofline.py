#!/usr/bin/env python3
"""The part of a copy's speed that the shipped kernels can reach, predicted from their machine code alone.

    roofline.py [--write [--measured] | --check] [--cubins DIR] [--nvcc PATH] [--nvdisasm PATH]

Compiles tests/simt/nvcc/*.cu, or takes the machine code that those tests have made in DIR, and reads it with nvdisasm, from
PyPI where there is none. For each kernel it takes the ordinary way round the main loop: of the ways whose loads are widest,
the shortest for a block of finite values. Comparisons with constants on it come out as for the value 1, so that neither the
way of a NaN nor of an exact division is taken. Loops that count to a constant are on it as often as they run.

Counts are of instructions that a thread executes for each byte that is loaded or stored there, parameters of blocks
left out. `predicted` makes a part of a copy's speed of them. Its constants are fitted to bench/results/gpu_*.codec.json.

    (nothing)   prints the tables
    --write     writes them to bench/results/roofline.{json,md}
    --measured  writes also that these are the kernels of gpu_*.codec.json: the page compares both from then on
    --check     fails where a count has grown by more than 3 % since, a loop has come to a main way, or fewer warps fit or
                bytes are in flight; 77 for another nvcc. In all generations of --architectures, fails where a product is
                added before it is rounded

Kernels are counted for sm_90, of which GPUs have been measured.
"""
import argparse
import concurrent.futures
import functools
import itertools
import json
import operator
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
from report_tables import table  # noqa: E402

RESULTS = ROOT / "bench/results"
# Without exact differences: a block without changes takes the shortest way, and no other way is ordinary.
SOURCES = sorted(set((ROOT / "tests/simt/nvcc").glob("*.cu")) - {ROOT / "tests/simt/nvcc/exact.cu"})
NVDISASM = "nvidia-cuda-nvdisasm==13.2.51"
ARCHITECTURE = 90
ALLOWED = 1.03

# Registers of a multiprocessor, the unit in which warps get them, warps, and shared memory with what each block has reserved.
REGISTERS, REGISTER_UNIT, MOST_WARPS, BLOCK_WARPS, SHARED, RESERVED = 65536, 256, 64, 8, 228 << 10, 1 << 10

# Pipes of instructions, and the threads that a multiprocessor starts in a clock, after CUDA's programming guide,
# "Arithmetic Instructions". Slower multiplications of integers and conversions are ignored. Instructions in no list are only
# issued: loads of constants (LDC) go to the ADU, after Nsight Compute's guide, "Pipelines".
PIPES = {
    "ALU": (64, r"LOP3|SHF|PRMT|I?MNMX|VIMNMX3?|FMNMX3?|FSETP|ISETP|PLOP3|F?SEL|IADD3|VIADD|VIADDMNMX|LEA|I2FP|F2FP|IABS|"
                r"BMSK|SGXT|HMNMX2|HSETP2"),
    "FMA": (128, r"FFMA2?|FMUL2?|FADD2?|IMAD|HADD2|HFMA2|HMUL2"),
    "XU": (16, r"I2F|F2I|F2F|MUFU|FRND|POPC|FLO"),
    "shuffles": (32, r"SHFL"),
    "tensor": (128, r"HMMA"),
    "LSU": (32, r"LDG?|STG?|LDS|STS|LDGSTS"),
}
ISSUED = 128
CLASSES = {name: re.compile(rf"({opcodes})$") for name, (_, opcodes) in PIPES.items()}

# Multiprocessors, GHz, TB/s of a copy (read and written).
GPUS = {"H100": (132, 1.75, 3.0), "H200": (132, 1.75, 4.3)}
# Fitted: sustained fraction of a pipe's rate, latency of loads from busy memory, best fraction of a copy's speed for a kernel
# with two streams, the exponent that combines limits, slots that an HMMA takes from others, and seconds that a launch of a
# kernel, and of a copy, takes beside its bytes.
SUSTAINED, LATENCY_NS, BEST, SHARPNESS, HMMA_SLOTS, LAUNCH, COPY = 0.92, 1000, 0.96, 3.5, 3.7, 3.7e-6, 2.7e-6

# Wanted fractions of a copy's speed for large tensors: kernel, H100, H200; and of 16 MB.
TARGETS = [(f"sum of {n} int4:128:signed:bf16 to int4:128:signed:bf16", *wanted)
           for n, *wanted in ((2, 0.88, 0.78), (4, 0.92, 0.86), (8, 0.92, 0.88))]
TARGETS += [(f"sum of {n} int8:256:bf16 to int8:256:bf16", 0.94, wanted) for n, wanted in ((2, 0.86), (4, 0.92), (8, 0.92))]
TARGETS += [("encode bf16 to int4:128:signed:bf16:h32", 0.90, 0.84), ("decode of 1 int4:128:signed:bf16:h32 to bf16", 0.92, 0.84)]
TARGETS += [(f"sum of {n} int6:128 to int6:128", 0.80, 0.60) for n in (2, 4, 8)]
WANTED_16_MB = 0.85, 0.80
TARGETS += [(f"encode bf16 to {format}", 0.96, 0.95) for format in ("int4:128:signed:bf16", "int8:256:bf16")]

INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z0-9_]+)([^;]*);")
LOADS, STORES = ("LDG", "LD", "LDGSTS"), ("STG", "ST")
LABEL = re.compile(r"^(\.L_x_\d+):")
REGISTER = re.compile(r"\bR(\d+)\b")
RELATIONS = {"EQ": operator.eq, "NE": operator.ne, "LT": operator.lt, "LE": operator.le, "GT": operator.gt, "GE": operator.ge}


class Instruction:
    def __init__(self, predicate, opcode, rest):
        self.predicate = (predicate or "").strip()
        self.opcode = opcode
        self.rest = rest
        self.modifiers = rest.partition(" ")[0]
        self.target = re.search(r"\.L_x_\d+", rest)[0] if opcode == "BRA" else None
        # A branch may have its predicate as an operand.
        if self.target and not self.predicate and len(self.operands) > 1:
            self.predicate = "@" + self.operands[0]

    @functools.cached_property
    def operands(self):
        return [operand.strip().removesuffix(".reuse") for operand in self.rest.partition(" ")[2].split(",")]

    @functools.cached_property
    def bits(self):
        wide = re.search(r"\.(64|128|U8|U16|S8|S16)\b", self.modifiers)
        return int(wide[1].lstrip("US")) if wide else 32

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
            code.append(Instruction(match[1], match[2], match[3]))
    return kernels


def constant(text):
    """The number that an operand stands for; None for a register."""
    if text in ("RZ", "URZ"):
        return 0
    try:
        return int(text, 0) if "0x" in text else float(text)
    except ValueError:
        return None


def compared(i, left, right):
    """The result of a comparison of two numbers. None if one of them is."""
    relation = RELATIONS.get(i.modifiers.split(".")[1].removesuffix("U"))
    return relation(left, right) if relation and None not in (left, right) else None


def as_for_one(code, n, predicate):
    """The value of a predicate before code[n], if it compares a value with a constant: that for the value 1. Else None."""
    if predicate.startswith("!"):
        value = as_for_one(code, n, predicate[1:])
        return None if value is None else not value
    if predicate == "PT":
        return True
    at = next((m for m in range(n - 1, -1, -1) if predicate in code[m].operands[:3]), None)
    i = code[at] if at is not None else None
    if i is None or i.predicate or i.opcode not in ("FSETP", "ISETP") or i.operands[0] != predicate or ".EX" in i.modifiers:
        return None
    limit = constant(i.operands[3])
    if i.opcode == "ISETP":
        # A limit so large is of a float's bits, which a rotation for a sign does not shrink.
        limit = limit % (1 << 32) if limit and ".U32" in i.modifiers else limit
        own = compared(i, 0x3f800000, limit if limit and limit >= 1 << 23 else None)
    else:
        own = compared(i, -1 if i.operands[2].startswith("-") else 1, limit)
    both = own, as_for_one(code, at, i.operands[4])
    decides = i.modifiers.endswith(".OR")
    return decides if decides in both else None if None in both else not decides


def successors(code, labels):
    """For each instruction, the positions that may follow it for a block of finite values: of a branch, first its target."""
    following = []
    for n, i in enumerate(code):
        taken = as_for_one(code, n, i.predicate.lstrip("@")) if i.target and i.predicate else None
        positions = [labels[i.target]] if i.target and taken is not False else []
        if n + 1 != len(code) and taken is not True and (i.predicate or i.opcode not in ("BRA", "EXIT", "RET")):
            positions.append(n + 1)
        following.append(positions)
    return following


def follow(known, i):
    """Keeps `known`, the registers and predicates that have constants, through an instruction."""
    sources = [known.get(operand) if constant(operand) is None else constant(operand) for operand in i.operands[1:]]
    result = None
    if i.opcode in ("ISETP", "UISETP") and ".EX" not in i.modifiers and i.operands[4].endswith("PT"):
        result = compared(i, *sources[1:3])
    elif i.opcode in ("MOV", "UMOV") or i.opcode == "IMAD" and ".MOV" in i.modifiers:
        result = sources[-1]
    elif i.opcode in ("VIADD", "IADD3", "UIADD3") and len(sources) <= 3 and None not in sources and ".X" not in i.modifiers:
        result = sum(sources)
    lost = [operand for operand in i.operands[:3] if re.match(r"U?P\d", operand)]
    if first := re.match(r"(U?R)(\d+)$", i.operands[0]):
        wide = i.bits > 32 or ".WIDE" in i.modifiers or i.opcode in ("CS2R", "HMMA")
        lost += [f"{first[1]}{int(first[2]) + k}" for k in range(4 if wide else 1)]
    for name in lost:
        known.pop(name, None)
    if result is not None and not i.predicate:
        known[i.operands[0]] = result


def way_round(code, following, before, start):
    """Positions of the shortest way from a load in a loop back to it; empty if there is none."""
    distance, frontier = {start: 0}, [start]
    for n in frontier:
        for p in before[n]:
            if p not in distance:
                distance[p] = distance[n] + 1
                frontier.append(p)
    way, known = [start], {}
    while len(way) == 1 or way[-1] != start:
        i, ahead = code[way[-1]], following[way[-1]]
        follow(known, i)
        value = known.get(i.predicate.lstrip("@!"))
        if value is not None and len(ahead) == 2:
            ahead = [ahead[0 if value != ("!" in i.predicate) else 1]]
        ahead = [s for s in ahead if s in distance]
        if not ahead or len(way) > 20 * len(code):
            return []
        way.append(min(ahead, key=distance.get))
    return way[:-1]


def loops_on(way, following):
    """Number of loops on a way round the main loop, which begin at a place on it."""
    main = min(s for n, s in zip(way, way[1:] + way[:1]) if s <= n)
    heads = {s for n, positions in enumerate(following) for s in positions if s <= n} & set(way) - {main}

    def comes_back(head):
        reached, frontier = {main}, [head]
        for n in frontier:
            frontier += set(following[n]) - reached
            reached.update(following[n])
        return head in reached

    return sum(map(comes_back, heads))


def is_parameter(i, summing):
    """True for loads of block parameters: unlike codes, they do not use the read-only cache, or copy words to shared memory."""
    return summing and i.opcode in LOADS and (i.bits == 32 if i.opcode == "LDGSTS" else "CONSTANT" not in i.modifiers)


def without_narrow(way):
    """`way` without the narrower loads of two alternatives under opposite values of one predicate."""
    written, keys, widest = {}, [], {}
    for i in way:
        name = i.predicate.lstrip("@!")
        keys.append((name, written.get(name, 0), "!" in i.predicate) if i.opcode in LOADS and name else None)
        widest[keys[-1]] = max(widest.get(keys[-1], 0), i.bits)
        for operand in i.operands[:3]:
            written[operand] = written.get(operand, 0) + 1
    return [i for i, key in zip(way, keys) if not key or widest[key] >= widest.get((*key[:2], not key[2]), 0)]


def in_flight(way, summing):
    """Most bytes that a thread loads before it uses the first. Copies to shared memory are used when it has waited for their group."""
    copied = sum(i.bits // 8 for i in way if i.opcode == "LDGSTS" and not is_parameter(i, summing))
    groups = 1 + max((int(i.operands[1], 0) for i in way if i.opcode == "DEPBAR" and i.operands[0] == "SB0"), default=0)
    most = total = 0
    pending = set()
    for i in way:
        used = i.operands if i.opcode in (*STORES, "BRA", "EXIT") else i.operands[1:]
        if pending & i.registers_of(used):
            total = 0
            pending = set()
        if i.opcode in ("LDG", "LD"):
            first = min(i.registers_of(i.operands[:1]))
            pending |= set(range(first, first + max(1, i.bits // 32)))
            if not is_parameter(i, summing):
                total += i.bits // 8
        most = max(most, total)
    return max(most, groups * copied)


def is_fused(code):
    """True if an instruction multiplies two elements and adds to the products, which PTX does not show."""
    return any(i.opcode == "FFMA2" and not i.operands[-1].startswith("RZ") for i in code)


def has_exact_products(kernel):
    """True if scales of the messages that `kernel` sums have 16 bits: a product with a code is exact, fused or not."""
    return bool(re.match(r"(sum|decode) of \w+ int\d:\d+(:signed)?:(fp16|bf16)\b", kernel))


def widths(instructions):
    found = {}
    for i in instructions:
        found[i.bits] = found.get(i.bits, 0) + 1
    return ", ".join(f"{n} x {bits}" for bits, n in sorted(found.items(), reverse=True)) or "-"


def resident_warps(registers, shared=0):
    """Warps on a multiprocessor, for threads with `registers` registers in blocks with `shared` bytes of shared memory."""
    of_warp = -(-registers * 32 // REGISTER_UNIT) * REGISTER_UNIT
    return min(MOST_WARPS // BLOCK_WARPS, REGISTERS // of_warp // BLOCK_WARPS, SHARED // (shared + RESERVED)) * BLOCK_WARPS


def counted(name, code, labels, registers, shared=0):
    """The row of a kernel, with all inputs of the model."""
    summing = "sum_source" in name
    warps = resident_warps(registers, shared)
    following, ends = successors(code, labels), set(labels.values())
    before = [[] for _ in code]
    for n, positions in enumerate(following):
        for s in positions:
            before[s].append(n)

    def facts(positions):
        way = [code[n] for n in positions]
        wide = without_narrow(way)
        loads = [i for i in wide if i.opcode in LOADS and not is_parameter(i, summing)]
        return way, loads, [i for i in way if i.opcode in STORES and not i.predicate], in_flight(wide, summing)

    def rank(positions):
        way, loads, stores, flying = facts(positions)
        return bool(loads and stores), min((i.bits for i in loads), default=0), flying, -len(way)

    # Loads without a label or branch between them have one way round.
    first, begin = {}, 0
    for n, i in enumerate(code):
        if n in ends or n and code[n - 1].target:
            begin = n
        if i.opcode in LOADS:
            first.setdefault(begin, n)
    best, reached = [], rank([])
    for start in sorted(first.values(), key=lambda n: -code[n].bits):
        # A way with a narrower load is never better than one of which all are wider.
        if not reached[0] or reached[1] <= code[start].bits:
            reached, best = max((reached, best), *((rank(way), way) for way in [way_round(code, following, before, start)]))
    way, loads, stores, flying = facts(best)
    read = sum(i.bits for i in loads) / 8
    moved = read + sum(i.bits for i in stores) / 8
    row = {"registers": registers, "warps": warps, "loops": loops_on(best, following) if best else 0, "loads": widths(loads),
           "stores": widths(stores), "read": read / moved if moved else 0, "in_flight_kib": flying * warps * 32 / 1024}
    if moved:
        row["issue"] = len(way) / moved
        for pipe, opcodes in CLASSES.items():
            # An access of 16 bytes takes as long as four of 4.
            row[pipe] = sum(max(1, i.bits // 32) if pipe == "LSU" else 1 for i in way if opcodes.match(i.opcode)) / moved
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in row.items()}


def predicted(row, gpu):
    """The fraction of a copy's speed, and the name of the binding limit.

    Limits are the instructions of each pipe, memory, and loads in flight (Little's law). They overlap, and the longest
    binds. Limits of similar length delay each other, so times are combined by a sum of powers.
    """
    multiprocessors, ghz, terabytes = GPUS[gpu]
    clocks_for_byte = multiprocessors * ghz / (terabytes * 1e3)
    times = {"memory": 1.0,
             "in flight": row["read"] * terabytes * 1e3 / multiprocessors * LATENCY_NS / (row["in_flight_kib"] * 1024)}
    for pipe, (rate, _) in PIPES.items():
        times[pipe] = row[pipe] / (rate * SUSTAINED * clocks_for_byte)
    times["issue"] = (row["issue"] + HMMA_SLOTS * row["tensor"]) / (ISSUED * SUSTAINED * clocks_for_byte)
    # The slower of the two is the limit of memory.
    del times[min("memory", "in flight", key=times.get)]
    return BEST / sum(time ** SHARPNESS for time in times.values()) ** (1 / SHARPNESS), max(times, key=times.get)


def predicted_of(name, row, gpu, tensor):
    """The fraction of a copy's speed for a tensor of 16-bit elements of `tensor` bytes, launches included."""
    if name.startswith("sum"):
        moved = tensor * int(re.search(r" int(\d)", name)[1]) / 16 / row["read"]
    else:
        moved = tensor / (row["read"] if name.startswith("encode") else 1 - row["read"])
    copy = moved / (GPUS[gpu][2] * 1e12)
    return (copy + COPY) / (copy / predicted(row, gpu)[0] + LAUNCH)


# Types of kernels, from the inside to the outside, and their names on the page.
NAMES = [
    (r"zeropp::|detail::| const", ""), (r" >", ">"), (r"\bbfloat16\b", "bf16"), (r"\bhalf\b", "fp16"), (r"\bfloat\b", "fp32"),
    (r"block_integer<(\d), (\d+), (\w+), (\w+)>", r"int\1:\2:\3:\4"), (r":symmetric\b|:fp32\b|_absmax\b", ""),
    (r"lloyd_max<(\d), (\d+), (\w+)>", r"lloyd\1:\2:\3"), (r":least_error", ""), (r"cast_to<(\w+)>", r"\1"),
    (r"stochastic<([^<>]+)>", r"\1:stochastic"), (r"hadamard<([^<>]+), (\d+)>", r"\1:h\2"),
    (r"tensor_source<(\w+), (?:\w+\*|tensor_table<\w+>)>", r"\1"), (r"difference_source<([^<>]+), ([^<>]+)>", r"\1 less \2"),
    (r"sum_source<([^<>]+), (\d+)>", r"\2 \1"), (r"\b0 (?=[a-z])", "any "),
    (r", kernel_residuals<(?:none|feedback<([^<>]+)>)>", lambda m: f"; residuals in {m[1]}" if m[1] else ""),
    (r", packed_slices<(\w+)>", r", \1; packed"), (r", list_slices", "; of a list"), (r", slices", ""),
    (r"encode_kernel<([^,]+), ((?:any|\d+) [^;>]+)(.*)>", r"sum of \2 to \1\3"),
    (r"encode_kernel<([^,]+), ([^;>]+)(.*)>", r"encode \2 to \1\3"),
    (r"decode_kernel<([^,]+), (\w+)(.*), [^,]+>", r"decode of \1 to \2\3"), (r";", ","),
]


def renamed(function):
    """The name of a kernel on the page."""
    kernel = re.search(r"run<(.*?) ?>\(", function)[1]
    for pattern, replacement in NAMES:
        kernel = re.sub(pattern, replacement, kernel)
    return kernel


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
    def compiled(source):
        output = folder / f"{source.stem}.sm_{ARCHITECTURE}"
        made = subprocess.run([nvcc, "-std=c++20", "-O3", f"-arch=sm_{ARCHITECTURE}", "-cubin", "-Xptxas", "-v", "-I",
                               ROOT / "include", source, "-o", f"{output}.cubin"], capture_output=True, text=True)
        pathlib.Path(f"{output}.txt").write_text(made.stderr)
        return made

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for made in pool.map(compiled, SOURCES):
            if made.returncode != 0:
                sys.exit(made.stderr)


def measured(folder, architectures, nvdisasm):
    """Rows of the compiled kernels: {kernel: row}."""
    rows = {}
    for architecture, source in itertools.product(architectures, SOURCES):
        cubin = folder / f"{source.stem}.sm_{architecture}.cubin"
        resources = {symbol: (int(registers), int(shared or 0)) for symbol, registers, shared in
                     re.findall(r"Compiling entry function '([^']*)'.*?Used (\d+) registers(?:[^\n]*?(\d+) bytes smem)?",
                                cubin.with_suffix(".txt").read_text(), re.DOTALL)}
        kernels = kernels_of(subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout)
        functions = subprocess.run(["c++filt", *kernels], check=True, capture_output=True, text=True).stdout.splitlines()
        for (symbol, (code, labels)), name in zip(kernels.items(), map(renamed, functions)):
            assert has_exact_products(name) or not is_fused(code), f"{name}: a product is added before it is rounded"
            if architecture == ARCHITECTURE:
                row = counted(symbol, code, labels, *resources[symbol])
                # Several files may instantiate one kernel.
                assert rows.setdefault(name, row) == row, f"two kernels have the name {name}"
    return dict(sorted(rows.items()))


def kernel_of(row):
    """The name here of the kernel of a row of codec_gpu; None for reorder_encode, which is the kernel of encode."""
    quantizer, kernel, element = row["quantizer"], row["kernel"], row["element"]
    operation, _, contributors = kernel.rpartition("_")
    if operation == "reduce_encode":
        unrotated = re.sub(r":h\d+$", "", quantizer)  # what is summed and encoded with equal windows stays rotated
        return f"sum of {contributors} {unrotated} to {unrotated}"
    return {"encode": f"encode {element} to {quantizer}", "decode": f"decode of 1 {quantizer} to {element}",
            "reduce_decode": f"decode of {contributors} {quantizer} to {element}"}.get(operation or kernel)


def comparison(kernels, *megabytes):
    """Pairs of what is predicted and what was measured: tensors of bf16 on all GPUs."""
    for gpu in GPUS:
        for row in json.loads((RESULTS / f"gpu_{gpu.lower()}.codec.json").read_text())["rows"]:
            name, size = kernel_of(row), row["tensor_bytes"]
            if name in kernels and row["element"] == "bf16" and size >> 20 in megabytes:
                yield predicted_of(name, kernels[name], gpu, size), row["fraction_of_copy"]


def rms(pairs):
    """Root of the mean square of relative errors, and their number."""
    errors = [prediction / measurement - 1 for prediction, measurement in pairs]
    return (sum(error ** 2 for error in errors) / len(errors)) ** 0.5, len(errors)


def page(found, version, ran):
    """The text of roofline.md."""
    (error, rows), (small_error, _) = rms(comparison(ran, 256, 1024)), rms(comparison(ran, 16))

    def wanted():
        for name, *targets in TARGETS:
            cells = [name]
            for gpu, target, target_16_mb in zip(GPUS, targets, WANTED_16_MB):
                for size, least in ((256 << 20, target), (16 << 20, target_16_mb)):
                    fraction = predicted_of(name, found[name], gpu, size)
                    cells += [f"{fraction:.2f}" if round(fraction, 2) >= least else f"**{fraction:.2f}**", f"{least:.2f}"]
            yield [*cells, predicted(found[name], "H200")[1], f"{found[name]['issue']:.2f}"]

    # As many messages as are told at run time are a loop, of which only a part is on the way.
    counts = [[name, *(f"{predicted(row, gpu)[0]:.2f}" for gpu in GPUS), predicted(row, "H200")[1],
               *(f"{row[key]:.2f}" for key in ("issue", *PIPES)),
               *(f"{row[key]:.0f}" for key in ("registers", "warps", "loops", "in_flight_kib")), row["loads"], row["stores"]]
              for name, row in found.items() if row["stores"] != "-" and " any " not in name]
    heads = [head for gpu in GPUS for head in (gpu, "wanted", f"{gpu}, 16 MB", "wanted")]
    return f"""# The shipped kernels by their machine code

Predicted by `bench/codec_gpu/roofline.py --write` from the output of nvcc {version} for sm_{ARCHITECTURE} alone: parts of a device copy's
speed, and instructions of a thread for each byte loaded or stored on the ordinary way round the main loop, which is that of a block
of finite values. Parameters of blocks are left out. `tests/ptx/run.sh` fails where a count has grown by more than 3 %, a loop has come
to a main way, or fewer warps fit or bytes are in flight.

The model's constants are fitted to measurements on two GPUs ([H100](gpu_h100.md), [H200](gpu_h200.md)). Of {rows} of tensors of 256 and
1024 MB, it is {100 * error:.1f} % off (root of the mean square), of 16 MB {100 * small_error:.1f} %. {SUSTAINED} of each pipe's rate is sustained,
loads take {LATENCY_NS} ns, {BEST} of a copy's speed is the best of a kernel with two streams, times are combined by a sum of powers of
{SHARPNESS}, an HMMA takes {1 + HMMA_SLOTS} slots, and a launch {LAUNCH * 1e6:.1f} us, of a copy {COPY * 1e6:.1f} us.

## Targets

Predicted for these kernels, of 256 and 16 MB of bf16. A sum of rotated messages that is encoded with windows of the same size stays
rotated: its kernel is that of the formats without rotation.

{table(["kernel", *heads, "binds, H200", "instructions for a byte"], list(wanted()))}
## Counts

For a byte, in words of 32 bits for the LSU; predictions of large tensors:

{table(["kernel", *GPUS, "binds", "issue", *PIPES, "registers", "warps", "loops", "KiB in flight", "loads", "stores"], counts)}"""


def grown(now, committed):
    """Texts for kernels that need more than `committed`, are new, or are gone."""
    problems = [f"{name}: in the table and not in the code" for name in committed if name not in now]
    problems += [f"{name}: in the code and not in the table" for name in now if name not in committed]
    for name in committed.keys() & now.keys():
        was, row = committed[name], now[name]
        problems += [f"{name}: {key} is {row.get(key, 0)} for a byte, and was {was[key]}"
                     for key in ("issue", *PIPES) if key in was and row.get(key, 1e9) > ALLOWED * was[key] + 0.002]
        if row["loops"] > was["loops"]:
            problems.append(f"{name}: {row['loops']} loops are on the main way, and {was['loops']} were")
        if row["warps"] < was["warps"]:
            problems.append(f"{name}: {row['warps']} warps fit, and {was['warps']} did")
        if row["in_flight_kib"] * ALLOWED < was["in_flight_kib"]:
            problems.append(f"{name}: {row['in_flight_kib']} KiB are in flight, and {was['in_flight_kib']} were")
    return sorted(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--write", action="store_true")
    action.add_argument("--check", action="store_true")
    parser.add_argument("--measured", action="store_true", help="with --write: these are the kernels of gpu_*.codec.json")
    parser.add_argument("--cubins", type=pathlib.Path, help="what the tests nvcc.* have made (default: compiles)")
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm")
    parser.add_argument("--architectures", type=int, nargs="+", default=[ARCHITECTURE], help="generations in --cubins")
    arguments = parser.parse_args()

    version = re.search(r"V([0-9.]+)", subprocess.run([arguments.nvcc, "--version"], check=True, capture_output=True,
                                                      text=True).stdout)[1]
    file = RESULTS / "roofline.json"
    committed = json.loads(file.read_text())
    if arguments.check and committed["nvcc"] != version:
        print(f"skipped: {file} is of nvcc {committed['nvcc']}, not {version}")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.cubins or pathlib.Path(scratch)
        if not arguments.cubins:
            compile_all(arguments.nvcc, folder)
        found = measured(folder, arguments.architectures, find_nvdisasm(arguments.nvdisasm, arguments.nvcc, folder))
    if arguments.check:
        problems = grown(found, committed["kernels"]) if ARCHITECTURE in arguments.architectures else []
        print("\n".join(problems) or f"{len(found)} kernels: none has grown")
        return 1 if problems else 0
    ran = found if arguments.measured else committed["measured"]
    text = page(found, version, ran)
    if arguments.write:
        names = {name for name in ran if any(comparison({name: ran[name]}, 256))}
        results_json.write(file, {"nvcc": version, "kernels": found, "measured": {name: ran[name] for name in sorted(names)}})
        file.with_suffix(".md").write_text(text)
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
