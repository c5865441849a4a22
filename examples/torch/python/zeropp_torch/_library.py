"""The C library of zeropp_c.h, with errors as exceptions."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import pathlib
import threading
from collections.abc import Sequence

import torch
from torch.distributed.tensor import DTensor
from torch.nn.parameter import is_lazy

MOVE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)
SPLIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.c_int)

SUCCESS, FAILURE, CALLBACK_FAILED = range(3)

ELEMENTS = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}


class Callbacks(ctypes.Structure):
    _fields_ = [("context", ctypes.c_void_p), ("all_gather", MOVE), ("all_to_all", MOVE), ("split", SPLIT)]


class TensorView(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("elements", ctypes.c_size_t), ("row", ctypes.c_size_t)]


#: Members of a plan that describe the machine.
MACHINE = (
    "intra_node_gbit", "inter_node_gbit", "intra_node_us", "inter_node_us", "codec_gb", "compute_ms", "memory_gb",
    "other_memory_gb",
)


class Plan(ctypes.Structure):
    _fields_ = (
        [("tensors", ctypes.POINTER(ctypes.c_size_t)), ("count", ctypes.c_size_t)]
        + [(name, ctypes.c_int) for name in ("nodes", "ranks_per_node", "secondary_group")]
        + [(name, ctypes.c_char_p) for name in ("plain", "plain_gradients", "weights", "differences", "intra_node", "inter_node")]
        + [("error_feedback", ctypes.c_int)]
        + [(name, ctypes.c_double) for name in MACHINE]
    )


class Step(ctypes.Structure):
    _fields_ = [
        ("inter_node", ctypes.c_uint64),
        ("seconds", ctypes.c_double),
        ("overlapped_seconds", ctypes.c_double),
        ("memory", ctypes.c_uint64),
    ]


class Prediction(ctypes.Structure):
    _fields_ = [
        ("before", Step),
        ("after", Step),
        ("gains", ctypes.c_int),
        ("advice", ctypes.c_char_p),
        ("report", ctypes.c_char_p),
    ]


class ZeroppError(RuntimeError):
    """A refused call; the text has the expected and the given value."""


# Of functions that have equal ones.
_GATHER = (
    ctypes.c_int,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int] + 2 * [ctypes.POINTER(TensorView)] + [ctypes.c_size_t, ctypes.c_void_p],
)
_FEEDBACK = (
    ctypes.c_int,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(TensorView)]
    + [ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)],
)
_MESSAGE = (ctypes.c_int, [ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t] + 2 * [ctypes.c_void_p])

_SIGNATURES = {
    "zeropp_version": (ctypes.c_char_p, []),
    "zeropp_device": (ctypes.c_char_p, []),
    "zeropp_error": (ctypes.c_char_p, []),
    "zeropp_gather_formats": (ctypes.c_char_p, []),
    "zeropp_difference_formats": (ctypes.c_char_p, []),
    "zeropp_reduce_formats": (ctypes.c_char_p, []),
    "zeropp_reduce_formats_in_sites": (ctypes.c_char_p, []),
    "zeropp_communicator_create_in_sites": (
        ctypes.c_int,
        [ctypes.POINTER(ctypes.c_int)] + 3 * [ctypes.c_int] + [Callbacks, ctypes.POINTER(ctypes.c_void_p)],
    ),
    "zeropp_communicator_destroy": (None, [ctypes.c_void_p]),
    "zeropp_compare": (None, [ctypes.c_void_p, ctypes.c_size_t]),
    "zeropp_name": (None, [ctypes.c_void_p, ctypes.c_char_p]),
    "zeropp_refuse": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p]),
    "zeropp_traffic_in_sites": (None, [ctypes.c_void_p] + 2 * [ctypes.POINTER(ctypes.c_uint64)]),
    "zeropp_all_gather": _GATHER,
    "zeropp_all_to_all": _GATHER,
    "zeropp_reduce_scatter": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(TensorView)]
        + [ctypes.POINTER(TensorView), ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "zeropp_all_reduce_with_algorithm": (
        ctypes.c_int,
        [ctypes.c_void_p] + 3 * [ctypes.c_char_p] + [ctypes.c_int, ctypes.POINTER(TensorView)]
        + [ctypes.POINTER(TensorView), ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "zeropp_feedback_create": _FEEDBACK,
    "zeropp_all_reduce_feedback_create": _FEEDBACK,
    "zeropp_feedback_destroy": (None, [ctypes.c_void_p]),
    "zeropp_feedback_reset": (None, [ctypes.c_void_p]),
    "zeropp_feedback_bytes": (ctypes.c_size_t, [ctypes.c_void_p]),
    "zeropp_replica_create": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(TensorView), ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)],
    ),
    "zeropp_replica_destroy": (None, [ctypes.c_void_p]),
    "zeropp_replica_bytes": (ctypes.c_size_t, [ctypes.c_void_p]),
    "zeropp_replica_invalidate": (None, [ctypes.c_void_p]),
    "zeropp_replica_unchanged": (None, [ctypes.c_void_p]),
    "zeropp_update_gather": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(TensorView), ctypes.POINTER(TensorView)]
        + [ctypes.c_size_t, ctypes.c_void_p],
    ),
    "zeropp_replica_gather": (
        ctypes.c_int,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(TensorView), ctypes.c_size_t, ctypes.c_void_p],
    ),
    "zeropp_message_bytes": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]),
    "zeropp_quantize": _MESSAGE,
    "zeropp_dequantize": _MESSAGE,
    "zeropp_outer_step": (
        ctypes.c_int,
        [ctypes.c_int] + 4 * [ctypes.c_void_p] + [ctypes.c_size_t] + 3 * [ctypes.c_float] + [ctypes.c_void_p],
    ),
}

# Functions that only the host's library has: threads, exact differences, and planning.
_HOST = {
    "zeropp_threads_create": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)]),
    "zeropp_exact_bytes": (ctypes.c_int, [ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t)]),
    "zeropp_encode_exact": (
        ctypes.c_int,
        2 * [ctypes.c_int, ctypes.c_void_p] + [ctypes.c_size_t, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        + [ctypes.c_void_p],
    ),
    "zeropp_decode_exact": (
        ctypes.c_int,
        [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p],
    ),
    "zeropp_volume_in_sites": (
        ctypes.c_int,
        3 * [ctypes.c_char_p] + [ctypes.c_size_t, ctypes.c_int, ctypes.POINTER(ctypes.c_int)] + 3 * [ctypes.c_int]
        + [ctypes.POINTER(ctypes.c_uint64)],
    ),
    "zeropp_predict_in_sites": (
        ctypes.c_int,
        [ctypes.POINTER(Plan), ctypes.c_int, ctypes.c_double, ctypes.c_double, ctypes.POINTER(Prediction)]
        + [ctypes.POINTER(ctypes.c_uint64)],
    ),
}


def _path(device_type: str) -> pathlib.Path:
    """The library's file for tensors on `device_type`; for CUDA, that of torch's major version of CUDA."""
    folder = pathlib.Path(__file__).parent
    if device_type == "cpu":
        path = folder / "libzeropp_c.so"
        if not path.exists():
            raise ZeroppError(f"zeropp_torch: {path} is missing; install the package again")
        return path
    if device_type != "cuda":
        raise ZeroppError(f"zeropp_torch: expected tensors on cpu or cuda, given {device_type}")
    if torch.version.cuda is None:
        raise ZeroppError("zeropp_torch: expected a PyTorch with CUDA, given one without")
    major = torch.version.cuda.split(".")[0]
    path = folder / f"libzeropp_c_cuda{major}.so"
    if not path.exists():
        others = ", ".join(sorted(other.name for other in folder.glob("libzeropp_c_cuda*.so")))
        raise ZeroppError(
            f"zeropp_torch: expected a library for CUDA {major}, as PyTorch has; this installation has "
            f"{others or 'no library for CUDA tensors'}; install a wheel of examples/torch/wheel.sh --cuda, or from source "
            f"with nvcc {major} on the PATH and pip install -C cmake.define.ZEROPP_TORCH_CUDA=ON"
        )
    return path


@functools.lru_cache(maxsize=None)
def library(device_type: str) -> ctypes.CDLL:
    """The library for tensors on `device_type`. Raises ZeroppError if it is not installed."""
    loaded = ctypes.CDLL(str(_path(device_type)))
    signatures = {**_SIGNATURES, **_HOST} if device_type == "cpu" else _SIGNATURES
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, name)
        function.restype = result
        function.argtypes = arguments
    return loaded


def require_success(loaded: ctypes.CDLL, status: int) -> None:
    """Raises ZeroppError unless `status` is success."""
    if status != SUCCESS:
        # A text that was cut, or that a peer sent, may be invalid UTF-8.
        raise ZeroppError(loaded.zeropp_error().decode(errors="replace"))


def text_of(words: str) -> bytes:
    """`words` as a text of the library. Raises ZeroppError for a zero, where the library would cut them."""
    if "\0" in words:
        raise ZeroppError(f"zeropp_torch: expected a text without zeros, given {words!r:.80}")
    # Lone surrogates are no UTF-8, but a text to compare, or a format that there is not.
    return words.encode(errors="surrogatepass")


def element_of(tensors: Sequence[torch.Tensor]) -> int:
    """The library's number of the tensors' element type; of no tensors, that of fp32."""
    dtype = tensors[0].dtype if tensors else torch.float32
    if dtype not in ELEMENTS:
        names = ", ".join(str(t) for t in ELEMENTS)
        raise ZeroppError(f"zeropp_torch: expected tensors of {names}, given {dtype}")
    return ELEMENTS[dtype]


def stream_of(device: torch.device) -> int | None:
    """CUDA's current stream on `device`; on the host, a pool of torch's number of threads."""
    if device.type == "cuda":
        return torch.cuda.current_stream(device).cuda_stream
    with _making_threads:
        return _threads(os.getpid(), torch.get_num_threads())


_making_threads = threading.Lock()


def _lock_again() -> None:
    global _making_threads
    _making_threads = threading.Lock()


# At the fork, a thread that the child does not have may have held the lock.
os.register_at_fork(after_in_child=_lock_again)


@functools.lru_cache(maxsize=None)
def _threads(_process: int, count: int) -> int | None:
    """A pool of `count` threads; None for 1. A forked child lacks its parent's threads."""
    if count == 1:
        return None
    handle = ctypes.c_void_p()
    loaded = library("cpu")
    require_success(loaded, loaded.zeropp_threads_create(count, ctypes.byref(handle)))
    return handle.value


_view_of_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


def memory(address: int, size: int) -> memoryview:
    """`size` bytes of host memory at `address`, which must outlive the view. ctypes would keep 3 KB for each size."""
    return _view_of_memory(address, size, 0x200)  # PyBUF_WRITE


def on_device(device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Context that makes `device` CUDA's current device, as the library requires."""
    return torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()


def require_tensor(tensor: object) -> None:
    """Raises ZeroppError unless `tensor` is contiguous, with its elements in memory: the library reads its address."""
    if not isinstance(tensor, torch.Tensor):
        raise ZeroppError(f"zeropp_torch: expected tensors, given {tensor!r:.80}")
    if isinstance(tensor, DTensor):
        raise ZeroppError("zeropp_torch: expected this rank's tensors, given a DTensor; pass its to_local()")
    if is_lazy(tensor) or tensor.layout != torch.strided or (tensor.numel() != 0 and tensor.data_ptr() == 0):
        kind = f"{type(tensor).__name__} of {tensor.layout} on {tensor.device}"
        raise ZeroppError(f"zeropp_torch: expected dense tensors with elements in memory, given a {kind}")
    if not tensor.is_contiguous():
        raise ZeroppError("zeropp_torch: expected contiguous tensors, given one of strides " + str(tensor.stride()))


def views_of(tensors: list[torch.Tensor], row: int = 1) -> ctypes.Array:
    """The library's views of `tensors` (require_tensor), which must outlive the views. Shards are whole rows of `row` elements."""
    views = (TensorView * len(tensors))()
    for view, tensor in zip(views, tensors):
        view.data = tensor.data_ptr()
        view.elements = tensor.numel()
        view.row = row
    return views
