#!/usr/bin/env python3
"""The codec's kernels beside DeepSpeed's quantizer ops, on the same tensors and in one run.

    compare_deepspeed.py [RESULTS.json] [--quantizer NAME]... [--size-mb N]... [--repetitions N]

    kernel           DeepSpeed's op         what it does
    reorder_encode   swizzle_quant          quantizes in the order of qgZ's first hop, for 2 nodes of 8 GPUs
    reduce_encode_8  quantized_reduction    sums the messages of 8 GPUs and quantizes the sum
    encode           quantize
    decode           dequantize

Tensors are fp16, which is what DeepSpeed's ops take, of normal random numbers; quantization is symmetric, with the same
blocks (DeepSpeed's groups) on both sides. DeepSpeed's scales have 32 bits; ours have 16 in the formats that it is compared with
first. The columns of the table, which the JSON file has as well:

    MB       of the tensor; for reduce_encode_8, of the tensors of all contributors together
    GB/s     bytes that each reads + writes, scales included, over the median time of a launch between two CUDA events
    of copy  the same as a fraction of the speed of a device-to-device copy; all three take turns
    bits     of an element in a message, scales included
    ratio    DeepSpeed's time over ours
    SQNR dB  of what is decoded in the end, against the tensor, or against the sum of the tensors in float; a dash
             (null in JSON) where that is not finite

Buffers rotate where a launch moves less than four L2 caches. DeepSpeed's ops allocate their results, from PyTorch's
cache: at these sizes the GPU takes longer than that, and is never idle.

Needs PyTorch with CUDA, deepspeed (its ops as of 0.19.8) and ninja from the package registry, and nvcc, which compiles
both sides; DeepSpeed keeps what it has built. Exit status: 0, 77 where one of these or a GPU is missing or DeepSpeed
cannot build its ops, with a line that says which, 1 if something failed.
"""
import argparse
import collections
import ctypes
import importlib
import itertools
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import results_json

try:
    import torch.cuda  # not just torch: the folder beside this file has that name too
except (ImportError, OSError):  # OSError: without the libraries that it was built with
    torch = None

ROOT = pathlib.Path(__file__).resolve().parents[1]
# name: bits, elements of a block, bytes of its scale. DeepSpeed gives half a warp to small blocks in most of its kernels.
QUANTIZERS = {"int8:256:bf16": (8, 256, 2), "int4:128:signed:bf16": (4, 128, 2), "int8:256": (8, 256, 4), "int4:128": (4, 128, 4)}
DEEPSPEED_SCALE = 4
NODES, DEVICES = 2, 8  # both sides have special kernels for sums of 8
WARM_UP = 2
SKIPPED = 77

# ours(s) and theirs(s) enqueue on the s-th set of buffers. decoded(result of theirs(0)) has both decoded results of set 0.
Operation = collections.namedtuple("Operation", "kernel deepspeed_op read written deepspeed_moved ours theirs decoded exact")


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def load_deepspeed():
    """DeepSpeed's version and quantizer ops. Builds the ops if necessary."""
    try:
        version = importlib.import_module("deepspeed").__version__
        return version, importlib.import_module("deepspeed.ops.op_builder").QuantizerBuilder().load()
    except Exception as e:  # of many types; lines after the first are a compiler's output
        skip(f"deepspeed's quantizer ops cannot be loaded: {type(e).__name__}: {e}".splitlines()[0])


def build_kernels(nvcc, architecture, library):
    """Compiles kernels.cu to a shared library that contains the CUDA runtime."""
    command = [nvcc, "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-shared", "-Xcompiler", "-fPIC"]
    command += ["-I", ROOT / "include", pathlib.Path(__file__).with_suffix("") / "kernels.cu", "-o", library]
    compiled = subprocess.run(command, capture_output=True, text=True)
    if compiled.returncode != 0:
        sys.exit(compiled.stderr)


class Kernels:
    """Functions of kernels.cu on PyTorch's tensors and current stream."""

    def __init__(self, library):
        self.library = ctypes.CDLL(str(library))
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.declare("zeropp_encode", pointer, size, number, number, pointer)
        self.declare("zeropp_decode", pointer, size, number, number, pointer)
        self.declare("zeropp_reduce_encode", pointer, size, number, pointer)

    def declare(self, name, *arguments):
        function = getattr(self.library, name)
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, *arguments]
        function.restype = ctypes.c_char_p

    def call(self, name, quantizer, *arguments):
        pointers = [a.data_ptr() if isinstance(a, torch.Tensor) else a for a in arguments]
        stream = torch.cuda.current_stream().cuda_stream
        if problem := getattr(self.library, name)(quantizer.encode(), stream, *pointers):
            raise RuntimeError(f"{name}: {problem.decode()}")


def message_bytes(bits, block, scale, n):
    """Bytes of codes and scales of n elements, a multiple of all blocks."""
    return n * bits // 8 + n // block * scale


def operations(kernels, deepspeed, quantizer, n, l2_bytes):
    """The number of buffer sets, and the operations on them, for tensors of n elements."""
    bits, block, scale = QUANTIZERS[quantizer]
    groups, part = n // block, n // DEVICES
    format_of = (bits, deepspeed.Symmetric)
    message, sum_message = (message_bytes(bits, block, scale, size) for size in (n, part))
    their_message, their_sum = (message_bytes(bits, block, DEEPSPEED_SCALE, size) for size in (n, part))
    sets = 4 * l2_bytes // (message + sum_message) + 1  # enough for the operation that moves fewest bytes

    def buffers(size, dtype):
        return [torch.empty(size, dtype=dtype) for _ in range(sets)]

    tensors, outputs = buffers(n, torch.half), buffers(n, torch.half)
    messages, parts, sums = (buffers(size, torch.uint8) for size in (message, message, sum_message))
    for s in range(sets):
        tensors[s].normal_()
        kernels.call("zeropp_encode", quantizer, tensors[s], n, 1, 1, messages[s])
        # The eighths of a tensor are eight contributors' tensors.
        kernels.call("zeropp_encode", quantizer, tensors[s], n, 1, DEVICES, parts[s])
    quantized = [deepspeed.quantize(t, groups, *format_of) for t in tensors]
    reordered = buffers(message, torch.uint8)

    def ours(name, sources, destinations, *shape):
        return lambda s: kernels.call(name, quantizer, sources[s], *shape, destinations[s])

    def decoded(sources, count, nodes=1, devices=1):
        kernels.call("zeropp_decode", quantizer, sources[0], count, nodes, devices, outputs[0])
        return outputs[0][:count]

    def dequantized(result):
        return deepspeed.dequantize(*result, result[1].numel(), *format_of)

    def in_order(tensor):
        """Undoes the order of swizzle_quant, which makes the GPU the first index and the node the second."""
        return tensor.view(DEVICES, NODES, -1).transpose(0, 1).reshape(-1)

    return sets, [
        Operation("reorder_encode", "swizzle_quant", 2 * n, message, 2 * n + their_message,
                  ours("zeropp_encode", tensors, reordered, n, NODES, DEVICES),
                  lambda s: deepspeed.swizzle_quant(tensors[s], groups, *format_of, 1, NODES, DEVICES),
                  lambda r: (decoded(reordered, n, NODES, DEVICES), in_order(dequantized(r))), lambda: tensors[0]),
        Operation("reduce_encode_8", "quantized_reduction", message, sum_message, their_message + their_sum,
                  ours("zeropp_reduce_encode", parts, sums, part, DEVICES),
                  lambda s: deepspeed.quantized_reduction(*quantized[s], groups, groups // DEVICES, *format_of,
                                                          DEVICES),
                  lambda r: (decoded(sums, part), dequantized(r)),
                  lambda: tensors[0].view(DEVICES, -1).sum(0, dtype=torch.float32)),
        Operation("encode", "quantize", 2 * n, message, 2 * n + their_message,
                  ours("zeropp_encode", tensors, messages, n, 1, 1),
                  lambda s: deepspeed.quantize(tensors[s], groups, *format_of),
                  lambda r: (decoded(messages, n), dequantized(r)), lambda: tensors[0]),
        Operation("decode", "dequantize", message, 2 * n, their_message + 2 * n,
                  ours("zeropp_decode", messages, outputs, n, 1, 1),
                  lambda s: dequantized(quantized[s]),
                  lambda r: (outputs[0], r), lambda: tensors[0]),
    ]


def copier(sets, size):
    """Returns copy(s), which enqueues a device-to-device copy of `size` bytes in separate buffer set s."""
    pairs = [(torch.empty(size, dtype=torch.uint8), torch.zeros(size, dtype=torch.uint8)) for _ in range(sets)]
    return lambda s: pairs[s][0].copy_(pairs[s][1])


def median_seconds(contestants, sets, launches, repetitions):
    """Median seconds of one launch of each contestant. Contestants alternate, so that all see equal clocks."""
    # Keeps a set's result until the next, so that DeepSpeed's results rotate too.
    kept = [[None] * sets for _ in contestants]
    events = [[] for _ in contestants]
    turn = itertools.count()
    for _ in range(WARM_UP + repetitions):
        for contestant, results, marks in zip(contestants, kept, events):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(launches):
                s = next(turn) % sets
                results[s] = contestant(s)
            end.record()
            marks.append((begin, end))
    torch.cuda.synchronize()
    return [statistics.median(b.elapsed_time(e) for b, e in m[WARM_UP:]) * 1e-3 / launches for m in events]


def sqnr_db(exact, decoded):
    """Signal to quantization noise in dB; None if not finite. In pieces, because doubles take four times the memory."""
    signal = noise = 0.0
    for x, y in zip(exact.split(1 << 24), decoded.split(1 << 24)):
        x = x.double()
        signal += x.square().sum().item()
        noise += (y.double() - x).square().sum().item()
    finite = signal > 0 and noise > 0 and math.isfinite(noise)
    return 10 * math.log10(signal / noise) if finite else None


def measure(operation, quantizer, n, sets, repetitions):
    """Measures an operation, and returns its row of the results."""
    operation.ours(0)
    errors = [sqnr_db(operation.exact(), y) for y in operation.decoded(operation.theirs(0))]
    moved = operation.read + operation.written
    launches = max(1, min(32, (1 << 30) // moved))
    contestants = [operation.ours, operation.theirs, copier(sets, moved // 2)]
    ours, theirs, copy = median_seconds(contestants, sets, launches, repetitions)
    bits, block, scale = QUANTIZERS[quantizer]
    speed, their_speed, copy_speed = moved / ours, operation.deepspeed_moved / theirs, moved // 2 * 2 / copy
    return {
        "quantizer": quantizer, "kernel": operation.kernel, "deepspeed_op": operation.deepspeed_op, "element": "fp16",
        "tensor_bytes": 2 * n, "bytes_read": operation.read, "bytes_written": operation.written,
        "deepspeed_bytes_moved": operation.deepspeed_moved, "bits": bits + 8 * scale / block,
        "deepspeed_bits": bits + 8 * DEEPSPEED_SCALE / block, "launches": launches,
        "seconds_median": ours, "deepspeed_seconds_median": theirs, "copy_seconds_median": copy,
        "gigabytes_per_second": speed * 1e-9, "deepspeed_gigabytes_per_second": their_speed * 1e-9,
        "copy_gigabytes_per_second": copy_speed * 1e-9, "fraction_of_copy": speed / copy_speed,
        "deepspeed_fraction_of_copy": their_speed / copy_speed, "ratio": theirs / ours,
        "sqnr_db": errors[0], "deepspeed_sqnr_db": errors[1],
    }


def measure_all(kernels, deepspeed, quantizer, n, l2_bytes, repetitions):
    sets, measured = operations(kernels, deepspeed, quantizer, n, l2_bytes)
    for operation in measured:
        yield measure(operation, quantizer, n, sets, repetitions)


def table_head():
    ours = f"{'GB/s':>7} {'of copy':>8} {'bits':>6} {'SQNR dB':>8}"
    return (f"{'':64}{'ours':^32}   {'DeepSpeed':^32}\n"
            f"{'quantizer':20} {'kernel':16} {'beside':20} {'MB':>5} {ours}   {ours}   {'ratio':>5}")


def table_row(r):
    def side(prefix):
        error = r[prefix + "sqnr_db"]
        return (f"{r[prefix + 'gigabytes_per_second']:7.1f} {r[prefix + 'fraction_of_copy']:8.1%} {r[prefix + 'bits']:6.3f} "
                + ("-" if error is None else f"{error:.2f}").rjust(8))

    return (f"{r['quantizer']:20} {r['kernel']:16} {r['deepspeed_op']:20} {r['tensor_bytes'] >> 20:5} {side('')}   "
            f"{side('deepspeed_')}   {r['ratio']:5.2f}")


def number(least, most):
    def parse(text):
        if not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text} is not from {least} to {most}")
        return int(text)

    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=pathlib.Path, help="JSON file to write")
    parser.add_argument("--quantizer", action="append", choices=QUANTIZERS, help="default: all four")
    # Smaller sizes end before PyTorch's next launch. DeepSpeed counts elements with 32 bits.
    parser.add_argument("--size-mb", action="append", type=number(256, 4095), help="default: 256 and 1024")
    parser.add_argument("--repetitions", type=number(1, 1000), default=21, help="of which the median is taken")
    arguments = parser.parse_args()

    if torch is None:
        skip("PyTorch is not installed, or cannot be imported")
    if torch.version.cuda is None or not torch.cuda.is_available():
        skip("no GPU here, or PyTorch without CUDA")
    cuda_home = importlib.import_module("torch.utils.cpp_extension").CUDA_HOME
    nvcc = pathlib.Path(cuda_home or "") / "bin/nvcc"
    if not os.access(nvcc, os.X_OK):
        skip("no CUDA toolkit with nvcc here; CUDA_HOME can say where it is")
    version, deepspeed = load_deepspeed()
    device = torch.cuda.get_device_properties(0)
    torch.set_default_device("cuda")
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as scratch:
        library = pathlib.Path(scratch) / "libkernels.so"
        build_kernels(nvcc, f"{device.major}{device.minor}", library)
        kernels = Kernels(library)

    results = {"device": device.name, "torch": torch.__version__, "cuda": torch.version.cuda, "deepspeed": version,
               "nodes": NODES, "devices_per_node": DEVICES, "repetitions": arguments.repetitions, "rows": []}
    print(f"{device.name}, PyTorch {torch.__version__}, deepspeed {version}\n{table_head()}")
    for quantizer in arguments.quantizer or QUANTIZERS:
        for megabytes in arguments.size_mb or [256, 1024]:
            n = (megabytes << 20) // 2
            for row in measure_all(kernels, deepspeed, quantizer, n, device.L2_cache_size, arguments.repetitions):
                results["rows"].append(row)
                print(table_row(row), flush=True)
            # Results survive a run that is cut short.
            if arguments.results:
                results_json.write(arguments.results, results)


if __name__ == "__main__":
    main()
