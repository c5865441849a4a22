"""Collectives on tensors and lists of tensors, for engines of one's own."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Union

import torch

from . import _library
from ._library import ZeroppError
from .communicator import Communicator

Tensors = Union[torch.Tensor, Sequence[torch.Tensor]]


def _listed(tensors: Tensors) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def _views(communicator: Communicator, first: list[torch.Tensor], second: list[torch.Tensor], names: str):
    """Both for the library; raises where they do not go together."""
    if len(first) != len(second):
        raise ZeroppError(f"zeropp_torch: expected as many {names}, given {len(first)} and {len(second)}")
    communicator.require_tensors(first + second)
    return _library.views_of(first), _library.views_of(second)


class ErrorFeedback:
    """What quantization loses of the gradients of one reduce-scatter, kept for its next call."""

    def __init__(self, communicator: Communicator, fulls: Tensors, inside: str, across: str | None = None):
        tensors = _listed(fulls)
        communicator.require_tensors(tensors)
        self._library = _library.library(communicator.device.type)
        self.handle = None
        handle = ctypes.c_void_p()
        communicator.call(
            "zt_feedback_create", communicator.handle, inside.encode(), (across or inside).encode(),
            _library.element_of(tensors[0]), _library.views_of(tensors), len(tensors), ctypes.byref(handle),
        )
        self.handle = handle

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self._library.zt_feedback_destroy(self.handle)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self._library.zt_feedback_bytes(self.handle)


def all_gather(communicator: Communicator, shards: Tensors, fulls: Tensors, weights: str, *, name: str = "") -> None:
    """fulls <- the shards of all ranks, through the format `weights`: every rank gets the same bits, of its own shard too.

    A shard holds elements [rank * ceil(n / size), ...) of its full tensor of n elements, as torch.chunk divides; it may be
    its own place in the full tensor. While a communicator compares calls, it compares their names too.
    """
    parts, wholes = _listed(shards), _listed(fulls)
    if not parts and not wholes:
        return

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, parts, wholes, "shards as full tensors")
        return weights.encode(), _library.element_of(wholes[0]), *views, len(wholes), _library.stream_of(wholes[0])

    communicator.collective("zt_all_gather", name, arguments)


class Replica:
    """What a node keeps of full tensors, divided over its ranks, for update_gather(): 1/k of them on each of its k ranks."""

    def __init__(self, communicator: Communicator, fulls: Tensors):
        tensors = _listed(fulls)
        if not tensors:
            raise ZeroppError("Replica: expected at least one tensor, given none")
        communicator.require_tensors(tensors)
        self._library = _library.library(communicator.device.type)
        self.handle = None
        self.dtype = tensors[0].dtype
        handle = ctypes.c_void_p()
        communicator.call(
            "zt_replica_create", communicator.handle, _library.element_of(tensors[0]), _library.views_of(tensors),
            len(tensors), ctypes.byref(handle),
        )
        self.handle = handle

    def __del__(self) -> None:
        if getattr(self, "handle", None) is not None:
            self._library.zt_replica_destroy(self.handle)

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        return self._library.zt_replica_bytes(self.handle)

    def invalidate(self) -> None:
        """Has the next update send whole tensors, not differences, on all ranks: one that calls this is enough."""
        self._library.zt_replica_invalidate(self.handle)

    def require_type(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raises where tensors have another type than those that this is for."""
        if not tensors:
            raise ZeroppError("zeropp_torch: expected the tensors of this replica, given none")
        if tensors[0].dtype != self.dtype:
            raise ZeroppError(f"zeropp_torch: expected tensors of {self.dtype} for this replica, given {tensors[0].dtype}")


def update_gather(
    communicator: Communicator, shards: Tensors, fulls: Tensors, replica: Replica, differences: str, *, name: str = ""
) -> None:
    """fulls <- the shards of all ranks, as near as the format `differences` brings what the nodes keep to them: across
    nodes travels what has changed since the last update, and what that loses is in the next one. The first update sends
    whole tensors, and so does one before which the ranks' replicas have differed in version, as after an error on some of
    them. To know that, ranks exchange 8 bytes each before each update, and wait for them: on a GPU, for the stream."""
    parts, wholes = _listed(shards), _listed(fulls)

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, parts, wholes, "shards as full tensors")
        replica.require_type(wholes)
        return replica.handle, differences.encode(), *views, len(wholes), _library.stream_of(wholes[0])

    communicator.collective("zt_update_gather", name, arguments)


def replica_gather(communicator: Communicator, fulls: Tensors, replica: Replica, *, name: str = "") -> None:
    """fulls <- what the last update_gather() made of them, from inside the node."""
    wholes = _listed(fulls)

    def arguments() -> tuple[object, ...]:
        communicator.require_tensors(wholes)
        replica.require_type(wholes)
        return replica.handle, _library.views_of(wholes), len(wholes), _library.stream_of(wholes[0])

    communicator.collective("zt_replica_gather", name, arguments)


def reduce_scatter(
    communicator: Communicator,
    fulls: Tensors,
    shards: Tensors,
    inside: str,
    across: str | None = None,
    *,
    mean: bool = False,
    feedback: ErrorFeedback | None = None,
    name: str = "",
) -> None:
    """shards <- this rank's slices of the sums, or means, of all ranks' full tensors, through the format `inside` in nodes
    and `across` between them."""
    wholes, parts = _listed(fulls), _listed(shards)
    if not wholes and not parts:
        return

    def arguments() -> tuple[object, ...]:
        views = _views(communicator, wholes, parts, "full tensors as shards")
        return (
            inside.encode(), (across or inside).encode(), _library.element_of(wholes[0]), *views, len(wholes), int(mean),
            feedback.handle if feedback is not None else None, _library.stream_of(wholes[0]),
        )

    communicator.collective("zt_reduce_scatter", name, arguments)


def all_reduce(
    communicator: Communicator,
    tensors: Tensors,
    inside: str,
    across: str | None = None,
    *,
    mean: bool = False,
    name: str = "",
) -> None:
    """tensors <- the sums, or means, of all ranks' tensors, the same bits on every rank."""
    listed = _listed(tensors)
    if not listed:
        return

    def arguments() -> tuple[object, ...]:
        communicator.require_tensors(listed)
        views = _library.views_of(listed)
        return (
            inside.encode(), (across or inside).encode(), _library.element_of(listed[0]), views, views, len(listed),
            int(mean), _library.stream_of(listed[0]),
        )

    communicator.collective("zt_all_reduce", name, arguments)


def quantize(tensor: torch.Tensor, format: str) -> torch.Tensor:
    """The bytes that would go on the wire for this tensor."""
    _library.require_contiguous(tensor)
    loaded = _library.library(tensor.device.type)
    size = ctypes.c_size_t()
    _library.require_success(loaded, loaded.zt_message_bytes(format.encode(), tensor.numel(), ctypes.byref(size)))
    message = torch.empty(size.value, dtype=torch.uint8, device=tensor.device)
    with _library.on_device(tensor.device):
        status = loaded.zt_quantize(
            format.encode(), _library.element_of(tensor), tensor.data_ptr(), tensor.numel(), message.data_ptr(),
            _library.stream_of(tensor),
        )
    _library.require_success(loaded, status)
    return message


def dequantize(message: torch.Tensor, format: str, size: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """A tensor of that size and type from what quantize() made of one."""
    loaded = _library.library(message.device.type)
    tensor = torch.empty(size, dtype=dtype, device=message.device)
    expected = ctypes.c_size_t()
    _library.require_success(loaded, loaded.zt_message_bytes(format.encode(), tensor.numel(), ctypes.byref(expected)))
    if message.dtype != torch.uint8 or not message.is_contiguous() or message.numel() != expected.value:
        raise ZeroppError(
            f"dequantize: expected {expected.value} contiguous bytes for {tensor.numel()} elements of {format}, given "
            f"{message.numel()} of {message.dtype}"
        )
    with _library.on_device(message.device):
        status = loaded.zt_dequantize(
            format.encode(), _library.element_of(tensor), message.data_ptr(), tensor.numel(), tensor.data_ptr(),
            _library.stream_of(message),
        )
    _library.require_success(loaded, status)
    return tensor
