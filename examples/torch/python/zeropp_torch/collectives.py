"""Collectives on tensors and lists of tensors, for your own engine."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Union

import torch

from . import _library
from ._library import ZeroppError
from .arguments import instance
from .communicator import Communicator
from .formats import GradientFormats, require_sites

Tensors = Union[torch.Tensor, Sequence[torch.Tensor]]


def _listed(tensors: Tensors) -> list[torch.Tensor]:
    return list(tensors) if isinstance(tensors, Iterable) and not isinstance(tensors, torch.Tensor) else [tensors]


def _format(name: str) -> bytes:
    return _library.text_of(instance("zeropp_torch", "formats", name, str, "names"))


def _hops(communicator: Communicator, *names: str | None) -> tuple[bytes, bytes]:
    """The library's names of a reduction's formats: within nodes, between them and, unless None, between sites."""
    intra_node, inter_node, inter_site = names
    for name in (intra_node, inter_node or "", inter_site or ""):
        instance("zeropp_torch", "formats", name, str, "names")
    given = GradientFormats(intra_node, inter_node or intra_node, inter_site)
    # The last format would be that of an all-reduce's second half, and have no use in a reduce-scatter.
    require_sites("zeropp_torch", communicator.places.nodes_per_site, given)
    return given.for_library()


def _views(communicator: Communicator, first: list[torch.Tensor], second: list[torch.Tensor], names: str):
    """The library's views of two lists, which must agree in length, element type and device."""
    if len(first) != len(second):
        raise ZeroppError(f"zeropp_torch: expected as many {names}, given {len(first)} and {len(second)}")
    communicator.require_tensors(first + second)
    return _library.views_of(first), _library.views_of(second)


def _handle(communicator: Communicator, kept: ErrorFeedback | Replica, kind: type) -> ctypes.c_void_p:
    """The library's handle of `kept`. Raises ZeroppError unless it is of `kind`, on the communicator's device."""
    instance("zeropp_torch", kind.__name__, kept, kind, "an object of this class")
    if kept.device != communicator.device:
        raise ZeroppError(f"zeropp_torch: expected {kind.__name__} on {communicator.device}, given one on {kept.device}")
    return kept.handle


class ErrorFeedback:
    """The quantization error of one reduce-scatter, kept for its next call, or of one all-reduce if `of_all_reduce`. `fulls`
    have the gradients' sizes and type."""

    def __init__(
        self,
        communicator: Communicator,
        fulls: Tensors,
        intra_node: str,
        inter_node: str | None = None,
        inter_site: str | None = None,
        *,
        of_all_reduce: bool = False,
    ):
        tensors = _listed(fulls)
        communicator.require_tensors(tensors)
        self._library = _library.library(communicator.device.type)
        self.device = communicator.device
        self.handle = None
        handle = ctypes.c_void_p()
        communicator.call(
            "zeropp_all_reduce_feedback_create" if of_all_reduce else "zeropp_feedback_create",
            communicator.handle, *_hops(communicator, intra_node, inter_node, inter_site),
            _library.element_of(tensors), _library.views_of(tensors), len(tensors), ctypes.byref(handle),
        )
        self.handle = handle

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self._library.zeropp_feedback_destroy(self.handle)

    @property
    def nbytes(self) -> int:
        """Memory on this rank, in bytes."""
        return self._library.zeropp_feedback_bytes(self.handle)

    def reset(self) -> None:
        """Makes the residuals zero from the next call on. All ranks call it between the same two reductions; also after one that
        has failed on any rank, because residuals are partly of that one."""
        self._library.zeropp_feedback_reset(self.handle)


def all_gather(communicator: Communicator, shards: Tensors, fulls: Tensors, weights: str, *, name: str = "") -> None:
    """Writes all ranks' shards into `fulls`, through the format `weights`. All ranks get equal bits, also of their own shards.

    A full tensor of n elements is divided as by torch.chunk: a shard begins at element rank * ceil(n / size). It may lie at
    its place in the full tensor. Compared calls also compare `name`.
    """
    parts, wholes = _listed(shards), _listed(fulls)

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, parts, wholes, "shards as full tensors")
        return _format(weights), _library.element_of(wholes), *views, len(wholes), _library.stream_of(communicator.device)

    communicator.collective("zeropp_all_gather", name, arguments)


def all_to_all(communicator: Communicator, sent: Tensors, received: Tensors, format: str, *, name: str = "") -> None:
    """Sends part r of each tensor of `sent` to rank r, and puts its part for this rank into part r of `received`, through
    `format`: tokens for experts, for example.

    Tensors have a multiple of the ranks' number of elements. `received` may be `sent`. Nodes are of equal size. Compared calls
    also compare `name`.
    """
    ours, theirs = _listed(sent), _listed(received)

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, ours, theirs, "tensors sent as received")
        return _format(format), _library.element_of(ours), *views, len(ours), _library.stream_of(communicator.device)

    communicator.collective("zeropp_all_to_all", name, arguments)


class Replica:
    """A node's copy of full tensors, for update_gather(): each of its k ranks keeps 1/k. Starts empty."""

    def __init__(self, communicator: Communicator, fulls: Tensors):
        tensors = _listed(fulls)
        if not tensors:
            raise ZeroppError("Replica: expected at least one tensor, given none")
        communicator.require_tensors(tensors)
        self._library = _library.library(communicator.device.type)
        self.device = communicator.device
        self.handle = None
        self.dtype = tensors[0].dtype
        handle = ctypes.c_void_p()
        communicator.call(
            "zeropp_replica_create", communicator.handle, _library.element_of(tensors), _library.views_of(tensors),
            len(tensors), ctypes.byref(handle),
        )
        self.handle = handle

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self._library.zeropp_replica_destroy(self.handle)

    @property
    def nbytes(self) -> int:
        """Memory on this rank, in bytes."""
        return self._library.zeropp_replica_bytes(self.handle)

    def invalidate(self) -> None:
        """Has the next update send whole tensors in place of differences. One rank's call is enough for all."""
        self._library.zeropp_replica_invalidate(self.handle)

    def require_type(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raises ZeroppError unless `tensors` have the replica's element type, or if there are none."""
        if not tensors:
            raise ZeroppError("zeropp_torch: expected the tensors of this replica, given none")
        if tensors[0].dtype != self.dtype:
            raise ZeroppError(f"zeropp_torch: expected tensors of {self.dtype} for this replica, given {tensors[0].dtype}")


def update_gather(
    communicator: Communicator,
    shards: Tensors,
    fulls: Tensors,
    replica: Replica,
    differences: str,
    *,
    changed: bool = True,
    name: str = "",
) -> None:
    """Brings the nodes' replicas up to date with all ranks' shards, and writes them into `fulls`.

    Changes since the last update travel between nodes, in the format `differences`; the next update includes their error.
    Whole tensors travel first, and whenever ranks' replicas differ in version, as after an error on some ranks. If no rank's
    shards are `changed` since the last update, nothing travels between nodes, as in replica_gather(). Ranks compare versions
    and `changed`: each sends 8 bytes, and waits for the others, but not for the stream.
    """
    parts, wholes = _listed(shards), _listed(fulls)

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, parts, wholes, "shards as full tensors")
        kept = _handle(communicator, replica, Replica)
        replica.require_type(wholes)
        given = kept, _format(differences), *views, len(wholes), _library.stream_of(communicator.device)
        if not changed:
            _library.library(communicator.device.type).zeropp_replica_unchanged(kept)
        return given

    communicator.collective("zeropp_update_gather", name, arguments)


def replica_gather(communicator: Communicator, fulls: Tensors, replica: Replica, *, name: str = "") -> None:
    """Writes the result of the last update_gather() into `fulls` once more, by intra-node messages only."""
    wholes = _listed(fulls)

    def arguments() -> tuple[object, ...]:
        communicator.require_tensors(wholes)
        kept = _handle(communicator, replica, Replica)
        replica.require_type(wholes)
        return kept, _library.views_of(wholes), len(wholes), _library.stream_of(communicator.device)

    communicator.collective("zeropp_replica_gather", name, arguments)


def reduce_scatter(
    communicator: Communicator,
    fulls: Tensors,
    shards: Tensors,
    intra_node: str,
    inter_node: str | None = None,
    inter_site: str | None = None,
    *,
    mean: bool = False,
    feedback: ErrorFeedback | None = None,
    name: str = "",
) -> None:
    """Writes this rank's shards of the sums, or means, of all ranks' `fulls`. Intra-node messages have the format `intra_node`,
    inter-node messages `inter_node`, by default `intra_node`, and messages between sites `inter_site`, by default the latter.
    `inter_site` needs a communicator with `nodes_per_site`."""
    wholes, parts = _listed(fulls), _listed(shards)

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, wholes, parts, "full tensors as shards")
        return (
            *_hops(communicator, intra_node, inter_node, inter_site), _library.element_of(wholes), *views, len(wholes), int(bool(mean)),
            None if feedback is None else _handle(communicator, feedback, ErrorFeedback),
            _library.stream_of(communicator.device),
        )

    communicator.collective("zeropp_reduce_scatter", name, arguments)


def all_reduce(
    communicator: Communicator,
    tensors: Tensors,
    intra_node: str,
    inter_node: str | None = None,
    inter_site: str | None = None,
    *,
    mean: bool = False,
    feedback: ErrorFeedback | None = None,
    algorithm: str = "by_size",
    name: str = "",
) -> None:
    """Replaces `tensors` by the sums, or means, of all ranks' tensors, with equal bits on every rank. Formats are as in
    reduce_scatter(). `feedback` has been made with `of_all_reduce=True`.

    `algorithm` is "two_shot": a reduce-scatter, and an all-gather in the last format. It is "one_shot": every rank gathers
    all tensors, encoded once in the first hop's format, and sums them. Or it is "by_size": one-shot for small tensors, and
    for two ranks if it takes no more bytes. With `feedback`, "by_size" is two-shot, and "one_shot" is refused.
    """
    listed = _listed(tensors)

    def arguments() -> tuple[object, ...]:
        communicator.require_tensors(listed)
        views = _library.views_of(listed)
        return (
            _library.text_of(instance("all_reduce", "algorithm", algorithm, str, "a string")),
            *_hops(communicator, intra_node, inter_node, inter_site), _library.element_of(listed), views, views, len(listed),
            int(bool(mean)), None if feedback is None else _handle(communicator, feedback, ErrorFeedback),
            _library.stream_of(communicator.device),
        )

    communicator.collective("zeropp_all_reduce_with_algorithm", name, arguments)


def quantize(tensor: torch.Tensor, format: str) -> torch.Tensor:
    """The message of a contiguous `tensor` in `format`: uint8, on its device."""
    _library.require_tensor(tensor)
    loaded = _library.library(tensor.device.type)
    size = ctypes.c_size_t()
    _library.require_success(loaded, loaded.zeropp_message_bytes(_format(format), tensor.numel(), ctypes.byref(size)))
    message = torch.empty(size.value, dtype=torch.uint8, device=tensor.device)
    with _library.on_device(tensor.device):
        status = loaded.zeropp_quantize(
            _format(format), _library.element_of([tensor]), tensor.data_ptr(), tensor.numel(), message.data_ptr(),
            _library.stream_of(tensor.device),
        )
    _library.require_success(loaded, status)
    return message


def dequantize(message: torch.Tensor, format: str, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of `size` and `dtype` from quantize()'s message in `format`."""
    _library.require_tensor(message)
    loaded = _library.library(message.device.type)
    tensor = torch.empty(size, dtype=dtype, device=message.device)
    expected = ctypes.c_size_t()
    _library.require_success(loaded, loaded.zeropp_message_bytes(_format(format), tensor.numel(), ctypes.byref(expected)))
    if message.dtype != torch.uint8 or message.numel() != expected.value:
        raise ZeroppError(
            f"dequantize: expected {expected.value} contiguous bytes for {tensor.numel()} elements of {format}, given "
            f"{message.numel()} of {message.dtype}"
        )
    with _library.on_device(message.device):
        status = loaded.zeropp_dequantize(
            _format(format), _library.element_of([tensor]), message.data_ptr(), tensor.numel(), tensor.data_ptr(),
            _library.stream_of(message.device),
        )
    _library.require_success(loaded, status)
    return tensor
