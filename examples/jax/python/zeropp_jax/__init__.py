"""zeropp's collectives in JAX programs, on CPU processes with one device each, started by mpirun.

Functions run inside jax.shard_map(..., check_vma=False) over the mesh of their Communicator, and inside jax.jit. Each takes
a token and returns the next: XLA runs calls without a data dependency in any order, which may differ between ranks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import pathlib
import socket
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

# MPI finds its own parts among the process's names.
_library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "libzeropp_jax.so"), mode=ctypes.RTLD_GLOBAL)
_library.zeropp_jax_error.restype = ctypes.c_char_p
_library.zeropp_jax_token.restype = ctypes.c_float
_library.zeropp_jax_broadcast.restype = None
_library.zeropp_jax_communicator.argtypes = [ctypes.POINTER(ctypes.c_int), *3 * [ctypes.c_int], ctypes.c_double]
_library.zeropp_jax_replica.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_size_t]

for _name in ("all_gather", "reduce_scatter", "all_reduce", "update_gather", "replica_gather"):
    _handler = getattr(_library, f"zeropp_jax_{_name}")
    jax.ffi.register_ffi_target(f"zeropp_jax_{_name}", jax.ffi.pycapsule(_handler), platform="cpu")

# zeropp_element of zeropp_c.h.
_ELEMENTS = {"float32": 0, "float16": 1, "bfloat16": 2}


class ZeroppError(RuntimeError):
    """A refused call. Errors within a compiled program are JAX's, with zeropp's text."""


class Formats(NamedTuple):
    """Formats of messages: of gathered weights, and of reduced gradients within nodes, between nodes, and between sites; None
    there is `inter_node`."""

    weights: str = "int8:256:bf16"
    intra_node: str = "int8:256:bf16"
    inter_node: str = "int4:128:signed:bf16"
    inter_site: str | None = None

    @classmethod
    def lossless(cls) -> Formats:
        """Formats that change nothing, for float32."""
        return cls("fp32", "fp32", "fp32")

    def of_reduction(self, comm: Communicator) -> dict[str, str]:
        """The handlers' attributes."""
        if self.inter_site is not None and not comm.has_sites:
            raise ZeroppError(f"zeropp_jax: expected nodes_per_site with a format between sites, given {self.inter_site} without it")
        beyond = self.inter_node if self.inter_site is None else f"{self.inter_node} + {self.inter_site}"
        return {"intra_node": self.intra_node, "inter_node": beyond}


class Traffic(NamedTuple):
    """Bytes that a rank has sent within its node, to other nodes of its site and to other sites, and its number of calls."""

    intra_node: int
    inter_node: int
    inter_site: int
    calls: int


def _number(result: int) -> int:
    if result < 0:
        raise ZeroppError(_library.zeropp_jax_error().decode(errors="replace"))
    return result


def initialize(coordinator: str | None = None) -> None:
    """Starts MPI and jax.distributed with the ranks of mpirun. `coordinator` is rank 0's host:port; by default a free port of
    this machine, for ranks on one machine."""
    rank, size = ctypes.c_int(), ctypes.c_int()
    _number(_library.zeropp_jax_start(ctypes.byref(rank), ctypes.byref(size)))
    if coordinator is None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = ctypes.create_string_buffer(f"127.0.0.1:{free.getsockname()[1]}".encode(), 64)
        _library.zeropp_jax_broadcast(address, len(address))
        coordinator = address.value.decode()
    # Before JAX's own exit function, behind which a rank may be gone.
    jax.distributed.initialize(coordinator, size.value, rank.value)
    atexit.register(_stop)


def _stop() -> None:
    """Ends MPI, after computations that the program has not waited for. Other ranks may wait for their calls."""
    for array in jax.live_arrays():
        with contextlib.suppress(Exception):  # an error of a result that the program has not used
            array.block_until_ready()
    _library.zeropp_jax_stop()


class Communicator:
    """All ranks, on nodes of `ranks_per_node` consecutive ones, in sites of `nodes_per_site` nodes; by default one site.
    Collective. Inside shard_map the ranks are the axis `axis`. A call that has waited for other ranks for `seconds` fails, and
    so do all later ones."""

    def __init__(
        self, ranks_per_node: int, *, nodes_per_site: int | None = None, axis: str = "ranks", seconds: float = 300.0
    ):
        self.size = jax.process_count()
        self.axis = axis
        self.has_sites = nodes_per_site is not None
        if jax.local_device_count() != 1 or jax.default_backend() != "cpu":
            raise ZeroppError(
                f"zeropp_jax: expected one CPU device in each process, given {jax.local_device_count()} of {jax.default_backend()}"
            )
        if ranks_per_node < 1 or self.size % ranks_per_node != 0:
            raise ZeroppError(f"zeropp_jax: expected nodes of a divisor of {self.size} ranks, given {ranks_per_node}")
        node_count = self.size // ranks_per_node
        per_site = node_count if nodes_per_site is None else nodes_per_site
        if per_site < 1 or node_count % per_site != 0:
            raise ZeroppError(f"zeropp_jax: expected sites of a divisor of {node_count} nodes, given {nodes_per_site}")
        if not seconds > 0:
            raise ZeroppError(f"zeropp_jax: expected seconds above 0, given {seconds}")
        nodes = (ctypes.c_int * self.size)(*(rank // ranks_per_node for rank in range(self.size)))
        self.number = _number(_library.zeropp_jax_communicator(nodes, per_site, self.size, jax.process_index(), seconds))

    def mesh(self) -> jax.sharding.Mesh:
        """The ranks in order, as a mesh of one axis."""
        return jax.sharding.Mesh(sorted(jax.devices(), key=lambda each: each.process_index), (self.axis,))

    def token(self) -> jax.Array:
        """The next call's token, when all calls so far are complete. A program's calls pass it on."""
        return jnp.float32(_library.zeropp_jax_token(self.number))

    def traffic(self) -> Traffic:
        """Bytes and calls of this rank so far."""
        sent, calls = (ctypes.c_uint64 * 3)(), ctypes.c_uint64()
        _library.zeropp_jax_traffic(self.number, sent, ctypes.byref(calls))
        return Traffic(*sent, calls.value)

    def call(self, name: str, results: list[jax.ShapeDtypeStruct], operand: jax.Array, token: jax.Array, **attributes):
        """The results of the handler `name`, and the next token."""
        try:
            given = jax.lax.axis_size(self.axis)
        except NameError:
            raise ZeroppError(f"zeropp_jax: expected a call inside jax.shard_map over the axis {self.axis}, given one outside") from None
        if given != self.size:
            raise ZeroppError(f"zeropp_jax: expected an axis {self.axis} of {self.size} ranks, given one of {given}")
        after = jax.ShapeDtypeStruct((), jnp.float32)
        called = jax.ffi.ffi_call(f"zeropp_jax_{name}", [*results, after])
        return tuple(called(operand, token, communicator=np.int64(self.number), **attributes))


def _require_elements(array: jax.Array | jax.ShapeDtypeStruct) -> None:
    if array.dtype.name not in _ELEMENTS:
        raise ZeroppError(f"zeropp_jax: expected an array of {', '.join(_ELEMENTS)}, given {array.dtype.name}")


def _full(comm: Communicator, shard: jax.Array | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    _require_elements(shard)
    if not shard.shape:
        raise ZeroppError("zeropp_jax: expected an array with a first axis, given a scalar")
    return jax.ShapeDtypeStruct((comm.size * shard.shape[0], *shard.shape[1:]), shard.dtype)


def _gather(comm: Communicator, shard: jax.Array, token: jax.Array, weights: str):
    return comm.call("all_gather", [_full(comm, shard)], shard, token, format=weights)


def _reduce_scatter(comm: Communicator, full: jax.Array, token: jax.Array, formats: Formats, mean: bool):
    _require_elements(full)
    if not full.shape or full.shape[0] % comm.size != 0:
        raise ZeroppError(f"zeropp_jax: expected a first axis of a multiple of {comm.size}, given the shape {full.shape}")
    shard = jax.ShapeDtypeStruct((full.shape[0] // comm.size, *full.shape[1:]), full.dtype)
    return comm.call("reduce_scatter", [shard], full, token, mean=np.bool_(mean), **formats.of_reduction(comm))


def _backward_token(after: jax.Array, cotangent: jax.Array) -> jax.Array:
    """The token of a call's backward: `cotangent`, from the call behind it; the first one in backward follows all of forward,
    which ended with its own token `after`."""
    return jnp.where(cotangent == 0, after, cotangent)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def all_gather(comm: Communicator, shard: jax.Array, token: jax.Array, formats: Formats = Formats()):
    """All ranks' shards along the first axis, and the next token (qwZ). Backward is reduce_scatter (qgZ); its last token is the
    gradient of the first call's token."""
    return _gather(comm, shard, token, formats.weights)


def _all_gather_forward(comm, shard, token, formats):
    full, after = _gather(comm, shard, token, formats.weights)
    return (full, after), after


def _all_gather_backward(comm, formats, after, cotangents):
    return _reduce_scatter(comm, cotangents[0], _backward_token(after, cotangents[1]), formats, False)


all_gather.defvjp(_all_gather_forward, _all_gather_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 3))
def reduce_scatter(comm: Communicator, full: jax.Array, token: jax.Array, formats: Formats = Formats()):
    """This rank's part along the first axis of the sum of all ranks' `full`, and the next token (qgZ). Backward is all_gather."""
    return _reduce_scatter(comm, full, token, formats, False)


def _reduce_scatter_forward(comm, full, token, formats):
    shard, after = _reduce_scatter(comm, full, token, formats, False)
    return (shard, after), after


def _reduce_scatter_backward(comm, formats, after, cotangents):
    return _gather(comm, cotangents[0], _backward_token(after, cotangents[1]), formats.weights)


reduce_scatter.defvjp(_reduce_scatter_forward, _reduce_scatter_backward)


def all_reduce(comm: Communicator, tensor: jax.Array, token: jax.Array, formats: Formats = Formats(), *, mean: bool = False):
    """The sum, or mean, of all ranks' `tensor`, and the next token. All ranks get equal bits. It has no gradient."""
    _require_elements(tensor)
    result = jax.ShapeDtypeStruct(tensor.shape, tensor.dtype)
    return comm.call("all_reduce", [result], tensor, token, mean=np.bool_(mean), **formats.of_reduction(comm))


class Replica:
    """A node's copy of one array, divided over its ranks (hpZ): `shape` and `dtype` are those of this rank's shard."""

    def __init__(self, comm: Communicator, shape: tuple[int, ...], dtype=jnp.float32):
        shard = jax.ShapeDtypeStruct(shape, dtype)
        self.comm = comm
        self.full = _full(comm, shard)
        element = _ELEMENTS[shard.dtype.name]
        self.number = _number(_library.zeropp_jax_replica(comm.number, element, int(np.prod(self.full.shape))))

    def update_gather(self, shard: jax.Array, token: jax.Array, differences: str = "int4:128:signed:bf16:h32"):
        """All ranks' shards along the first axis, the copy's version, and the next token. Differences to the last call's
        shards travel between nodes in the format `differences`; in the first call, whole shards."""
        if _full(self.comm, shard) != self.full:
            raise ZeroppError(f"zeropp_jax: expected shards of {self.full} for this replica, given {shard.shape} of {shard.dtype}")
        made = jax.ShapeDtypeStruct((), jnp.int32)
        given = {"replica": np.int64(self.number), "differences": differences}
        return self.comm.call("update_gather", [self.full, made], shard, token, **given)

    def gather(self, version: jax.Array, token: jax.Array):
        """The result of the update_gather of `version` once more, by messages within the node, and the next token. An error if
        the copy has been updated since."""
        return self.comm.call("replica_gather", [self.full], version, token, replica=np.int64(self.number))


def unit(comm: Communicator, function: Callable, formats: Formats = Formats(), replica: Replica | None = None) -> Callable:
    """A function of (shard, token, *inputs) that returns `function(full, *inputs)` and the next token: a unit of ZeRO-3.

    Neither `full` nor what `function` computes is kept for backward, which gathers again, from the node's `replica` if there is
    one, computes `function` again and reduce-scatters the gradient of `full`. With a `replica`, weights move by the default
    differences of its update_gather, not in `formats.weights`.
    """

    def forward(shard, token, *inputs):
        if replica is None:
            full, after = _gather(comm, shard, token, formats.weights)
            kept = shard
        else:
            full, kept, after = replica.update_gather(shard, token)
        return (function(full, *inputs), after), (kept, after, inputs)

    def backward(saved, cotangents):
        kept, after, inputs = saved
        token = _backward_token(after, cotangents[1])
        if replica is None:
            full, token = _gather(comm, kept, token, formats.weights)
        else:
            full, token = replica.gather(kept, token)
        of_full, *of_inputs = jax.vjp(function, full, *inputs)[1](cotangents[0])
        of_shard, token = _reduce_scatter(comm, of_full, token, formats, False)
        return of_shard, token, *of_inputs

    called = jax.custom_vjp(lambda shard, token, *inputs: forward(shard, token, *inputs)[0])
    called.defvjp(forward, backward)
    return called
