"""The package's declarations of C functions, beside the header that declares them, include/zeropp_c.h."""

import ctypes
import pathlib
import subprocess
import sys

import pycparser
import pytest
import torch
from pycparser import c_ast
from zeropp_torch import _library

HEADER = pathlib.Path(__file__).parents[2] / "include" / "zeropp_c.h"

CLASSES = {
    "zeropp_callbacks": _library.Callbacks,
    "zeropp_plan": _library.Plan,
    "zeropp_prediction": _library.Prediction,
    "zeropp_step": _library.Step,
    "zeropp_tensor": _library.TensorView,
}
NUMBERS = {
    "int": ctypes.c_int,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "size_t": ctypes.c_size_t,
    "uint64_t": ctypes.c_uint64,
    "zeropp_status": ctypes.c_int,
    "zeropp_element": ctypes.c_int,
}
HANDLES = ("zeropp_communicator", "zeropp_feedback", "zeropp_replica")
# Functions that this package does not call: it is installed with its library, has sites, and names algorithms.
NOT_CALLED = {"zeropp_c_version", "zeropp_communicator_create", "zeropp_traffic", "zeropp_predict", "zeropp_all_reduce"} | {
    f"zeropp_{name}_volume" for name in ("gather", "update", "replica", "reduce", "all_reduce")
}


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    """The header's declarations, by name."""
    folder = tmp_path_factory.mktemp("standard_headers")
    (folder / "stddef.h").write_text("typedef unsigned long size_t;\n")
    (folder / "stdint.h").write_text("typedef unsigned long uint64_t;\n")
    command = ["cc", "-E", "-P", "-nostdinc", "-I", folder, "-D__attribute__(x)=", HEADER]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {node.name: node.type for node in pycparser.CParser().parse(text).ext}


def as_ctypes(type):
    """The ctypes type of a declaration's C type."""
    if isinstance(type, c_ast.PtrDecl):
        to = type.type
        if isinstance(to, c_ast.FuncDecl):
            return ctypes.CFUNCTYPE(*signature(to))
        if isinstance(to, c_ast.PtrDecl):
            return ctypes.POINTER(as_ctypes(to))
        name = to.type.names[0]
        if name == "char":
            return ctypes.c_char_p
        # Of floats, a tensor's elements: an address.
        if name in ("void", "float") or name in HANDLES:
            return ctypes.c_void_p
        return ctypes.POINTER(as_ctypes(to))
    name = type.type.names[0]
    if name == "void":
        return None
    return CLASSES[name] if name in CLASSES else NUMBERS[name]


def signature(function):
    """The ctypes types of a function's result and arguments."""
    arguments = [as_ctypes(argument.type) for argument in function.args.params]
    return as_ctypes(function.type), *([] if arguments == [None] else arguments)


def test_functions_have_the_headers_signatures(header):
    functions = {name: type for name, type in header.items() if isinstance(type, c_ast.FuncDecl)}
    declared = {**_library._SIGNATURES, **_library._HOST}
    assert set(declared) == set(functions) - NOT_CALLED
    for name, (result, arguments) in declared.items():
        assert [result, *arguments] == list(signature(functions[name])), name


def test_structures_have_the_headers_members(header):
    structures = {
        name: type.type
        for name, type in header.items()
        if isinstance(type.type, c_ast.Struct) and type.type.decls is not None
    }
    assert set(CLASSES) == set(structures)
    for name, structure in structures.items():
        members = [(member.name, as_ctypes(member.type)) for member in structure.decls]
        assert members == list(CLASSES[name]._fields_), name


def test_constants_have_the_headers_values(header):
    values = {}
    for type in header.values():
        if isinstance(type.type, c_ast.Enum):
            values.update({each.name: int(each.value.value) for each in type.type.values.enumerators})
    assert values == {
        "zeropp_success": _library.SUCCESS,
        "zeropp_failure": _library.FAILURE,
        "zeropp_callback_failed": _library.CALLBACK_FAILED,
        "zeropp_float32": _library.ELEMENTS[torch.float32],
        "zeropp_float16": _library.ELEMENTS[torch.float16],
        "zeropp_bfloat16": _library.ELEMENTS[torch.bfloat16],
    }


def test_volumes_without_sites_are_those_of_one_site():
    library = _library.library("cpu")
    calls = {
        "gather": ("zeropp_all_gather", [b"int8:256:bf16"], []),
        "update": ("zeropp_update_gather", [b"int2:64:signed:bf16:h32", b"bf16"], []),
        "replica": ("zeropp_replica_gather", [b"bf16"], []),
        "reduce": ("zeropp_reduce_scatter", [b"int8:256:bf16", b"int4:128:signed:bf16"], []),
        "all_reduce": ("zeropp_all_reduce", [b"int8:256:bf16", b"int4:128:signed:bf16"], [0]),
    }
    for node_of_rank in ([-5, -5, 7, 7], [0, 0, 0, 3], [0, 0, 0, 0]):
        nodes = (ctypes.c_int * 4)(*node_of_rank)
        for name, (function, formats, two_shot) in calls.items():
            for rank in range(4):
                old, new = (ctypes.c_uint64 * 2)(), (ctypes.c_uint64 * 3)(9, 9, 9)
                outputs = ctypes.byref(old), ctypes.byref(old, 8)
                planned = getattr(library, f"zeropp_{name}_volume")
                assert planned(nodes, 4, rank, *formats, ctypes.c_size_t(100003), *two_shot, *outputs) == _library.SUCCESS
                given = [*formats, None][:2]
                status = library.zeropp_volume_in_sites(function.encode(), *given, 100003, 0, nodes, 0, 4, rank, new)
                assert status == _library.SUCCESS
                assert [*new] == [*old, 0], (name, rank)
    problems = {
        (b"zeropp_gather", 0, 0): "zeropp_volume_in_sites: expected the name of a collective, given zeropp_gather",
        (b"zeropp_all_gather", -1, 0): "zeropp_c: expected a number of nodes in each site, or 0 for one site, given -1",
        (b"zeropp_all_gather", 1, -1): "zeropp_c: expected numbers of nodes from 0, given -1",
    }
    for (function, per_site, first), words in problems.items():
        nodes = (ctypes.c_int * 2)(first, 1)
        assert library.zeropp_volume_in_sites(function, b"fp32", None, 8, 0, nodes, per_site, 2, 0, new) == _library.FAILURE
        assert library.zeropp_error().decode() == words
    two = {b"zeropp_update_gather": b"exact", b"zeropp_reduce_scatter": b"fp32", b"zeropp_all_reduce": b"fp32"}
    for function, first in two.items():
        assert library.zeropp_volume_in_sites(function, first, None, 8, 0, nodes, 0, 2, 0, new) == _library.FAILURE
        assert library.zeropp_error() == function + b": expected two formats, given one"
    for function in (b"zeropp_all_gather", b"zeropp_all_to_all", b"zeropp_all_reduce"):
        assert library.zeropp_volume_in_sites(function, b"fp32", b"fp32", 8, 0, nodes, 0, 2, 2, new) == _library.FAILURE
        assert library.zeropp_error().decode() == "volume: expected a rank from 0 to 1, given 2"


class Communicator:
    """The first of four ranks of two nodes, for calls that send nothing."""

    def __init__(self):
        self._library = _library.library("cpu")
        self._move, self._split = _library.MOVE(lambda *_: 1), _library.SPLIT(lambda *_: 1)
        callbacks = _library.Callbacks(None, self._move, self._move, self._split)
        self.handle = ctypes.c_void_p()
        status = self._library.zeropp_communicator_create_in_sites(
            (ctypes.c_int * 4)(0, 0, 1, 1), 0, 4, 0, callbacks, ctypes.byref(self.handle)
        )
        assert status == _library.SUCCESS

    def __del__(self):
        self._library.zeropp_communicator_destroy(self.handle)


def test_sizes_that_overflow_are_refused():
    library = _library.library("cpu")
    most, size = 2**61 - 1, ctypes.c_size_t()
    blocks = -(-most // 256)
    whole = {"fp32": 4 * most, "bf16": 2 * most, "int8:256:bf16": most + 2 * blocks, "mxfp4": (most + 1) // 2 + 8 * blocks}
    for format, expected in whole.items():
        assert library.zeropp_message_bytes(format.encode(), most, ctypes.byref(size)) == _library.SUCCESS
        assert size.value == -(-expected // 16) * 16, format
        for elements in (most + 1, 2**62 + 5, 2**64 - 1):
            assert library.zeropp_message_bytes(format.encode(), elements, ctypes.byref(size)) == _library.FAILURE
            words = f"zeropp_message_bytes: expected at most {most} elements, given {elements}"
            assert library.zeropp_error().decode() == words
    communicator, made = Communicator(), ctypes.c_void_p()
    # Shards of four ranks.
    for elements, wrong, most, shard in (
        ([2**56], 0, 2**54 - 1, 2**54),
        ([2**64 - 1], 0, 2**54 - 1, 2**62),
        ([2**55, 2**55], 1, 2**53 - 1, 2**53),
    ):
        fulls = (_library.TensorView * len(elements))(*((None, n, 1) for n in elements))
        last = fulls, len(elements), ctypes.byref(made)
        hops = b"int8:256:bf16", b"int8:256:bf16"
        for status in (
            library.zeropp_replica_create(communicator.handle, 2, *last),
            library.zeropp_feedback_create(communicator.handle, *hops, 0, *last),
            library.zeropp_all_reduce_feedback_create(communicator.handle, *hops, 0, *last),
        ):
            assert status == _library.FAILURE
            words = f"tensor_list: expected tensor {wrong} in shards of at most {most} elements, given {shard}"
            assert library.zeropp_error().decode() == words
    most, nodes, sent = 10**13, (ctypes.c_int * 2)(0, 1), (ctypes.c_uint64 * 3)()

    def volume(function, elements):
        return library.zeropp_volume_in_sites(function, b"fp32", b"fp32", elements, 1, nodes, 0, 2, 0, sent)

    for function in (b"zeropp_all_gather", b"zeropp_all_to_all", b"zeropp_reduce_scatter", b"zeropp_all_reduce"):
        assert volume(function, most) == _library.SUCCESS
        assert sent[1] == (2 if function == b"zeropp_all_reduce" else 1) * 4 * most // 2
        for elements in (most + 1, 2**63):
            assert volume(function, elements) == _library.FAILURE
            words = f"zeropp_volume_in_sites: expected at most {most} elements, given {elements}"
            assert library.zeropp_error().decode() == words


# A text of 64 MB, and memory for one more such text, or none: functions without a status and errors' texts must not end the
# process.
WITHOUT_MEMORY = """
import ctypes, resource, sys

library = ctypes.CDLL(sys.argv[1])
library.zeropp_error.restype = ctypes.c_char_p
move = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p, ctypes.c_int] + 3 * [ctypes.c_void_p], ctypes.c_size_t)
split = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int)

class Callbacks(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("all_gather", move), ("all_to_all", move), ("split", split)]

callbacks = Callbacks(None, move(lambda *_: 0), move(lambda *_: 0), split(lambda *_: 1))
communicator = ctypes.c_void_p()
assert library.zeropp_communicator_create((ctypes.c_int * 1)(0), 1, 0, callbacks, ctypes.byref(communicator)) == 0
words = ctypes.create_string_buffer(b"x" * (1 << 26))
for texts in (0, 1):
    pages = int(open("/proc/self/statm").read().split()[0])
    room = texts * len(words) + (1 << 24)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + room, resource.RLIM_INFINITY))
    library.zeropp_name(communicator, words)
    assert library.zeropp_refuse(communicator, b"a call", words, None) == 1
    print(library.zeropp_error().decode())
"""


def test_functions_without_memory_return():
    path = _library.library("cpu")._name
    run = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY, path], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "std::bad_alloc\nout of memory\n", "")
