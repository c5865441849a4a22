"""FSDP2 with zeropp's collectives."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
import torch.distributed.fsdp as torch_fsdp
from torch import nn

from . import _library, formats
from ._library import ZeroppError
from .collectives import ErrorFeedback, all_gather, reduce_scatter
from .communicator import Communicator, Traffic, all_gather_single, reduce_scatter_single

_enabled = True


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Inside, collectives are torch.distributed's own, for comparisons. On all ranks alike."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def fully_shard(module: nn.Module, *, mesh: Any = None, secondary: Optional[int] = None, **arguments: Any) -> nn.Module:
    """torch's fully_shard. `secondary` is hpZ, DeepSpeed's zero_hpz_partition_size: after forward a group of so many
    consecutive ranks keeps the weights, and backward gathers them inside it. As reshard_after_forward=secondary, but with
    one mesh and its process groups for all modules, where torch makes them anew for each."""
    if mesh is not None:
        arguments["mesh"] = mesh
    if secondary is None or secondary == 1:
        return torch_fsdp.fully_shard(module, **arguments)
    if "reshard_after_forward" in arguments:
        raise ZeroppError("fully_shard: expected either secondary or reshard_after_forward, given both")
    with _shared_secondary_meshes():
        return torch_fsdp.fully_shard(module, reshard_after_forward=secondary, **arguments)


_secondary_meshes: dict[Any, Any] = {}


@contextlib.contextmanager
def _shared_secondary_meshes() -> Iterator[None]:
    from torch.distributed.fsdp._fully_shard import _fully_shard as implementation

    original = implementation._get_post_forward_mesh_info

    def shared(reshard_after_forward: Any, mesh_info: Any) -> Any:
        key = (reshard_after_forward, mesh_info.mesh, id(dist.group.WORLD))
        if key not in _secondary_meshes:
            _secondary_meshes[key] = original(reshard_after_forward, mesh_info)
        return _secondary_meshes[key]

    implementation._get_post_forward_mesh_info = shared
    try:
        yield
    finally:
        implementation._get_post_forward_mesh_info = original


@dataclasses.dataclass
class Row:
    """One FSDP unit of a report; bytes are those that a rank sends across nodes in a step."""

    unit: str
    elements: int
    weights: str
    gradients: str
    before: int = 0
    after: int = 0
    note: str = ""


@dataclasses.dataclass
class Report:
    """What apply() has done."""

    rows: list[Row]
    advice: list[str]

    @property
    def before(self) -> int:
        return sum(row.before for row in self.rows)

    @property
    def after(self) -> int:
        return sum(row.after for row in self.rows)

    def __str__(self) -> str:
        head = ["unit", "elements", "weights", "gradients", "across, before", "after", ""]
        cells = [head] + [
            [r.unit, str(r.elements), r.weights, r.gradients, str(r.before), str(r.after), r.note] for r in self.rows
        ]
        cells.append(["all", str(sum(r.elements for r in self.rows)), "", "", str(self.before), str(self.after), ""])
        widths = [max(len(line[c]) for line in cells) for c in range(len(head))]
        right = {1, 4, 5}
        lines = [
            "  ".join(cell.rjust(w) if c in right else cell.ljust(w) for c, (cell, w) in enumerate(zip(line, widths)))
            for line in cells
        ]
        return "\n".join([line.rstrip() for line in lines] + [f"- {sentence}" for sentence in self.advice])


class _AllGather:
    """FSDP2's hook for the all-gather of a unit's parameters."""

    def __init__(self, communicator: Communicator, weights: str):
        self._communicator = communicator
        self._weights = weights

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Optional[dist.Work]:
        # A smaller group is that of hpZ, which has what the gather of all ranks brought; bytes of mixed types are no
        # numbers.
        of_all = group.size() == self._communicator.size
        if not _enabled or not of_all or output_tensor.dtype not in _library.ELEMENTS:
            return all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        all_gather(self._communicator, input_tensor, output_tensor, self._weights)
        return None


class _ReduceScatter:
    """FSDP2's hook for the reduce-scatter of a unit's gradients."""

    def __init__(self, communicator: Communicator, gradients: formats.GradientFormats, error_feedback: bool):
        self._communicator = communicator
        self._gradients = gradients
        self._error_feedback = error_feedback
        self._feedback: Optional[ErrorFeedback] = None

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> Optional[dist.Work]:
        if not _enabled:
            return reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ZeroppError(f"reduce-scatter: expected a sum or a mean, given {op}")
        if self._error_feedback and self._feedback is None:
            self._feedback = ErrorFeedback(self._communicator, input_tensor, *self._gradients)
        reduce_scatter(
            self._communicator, input_tensor.view(-1), output_tensor.view(-1), *self._gradients,
            mean=op == dist.ReduceOp.AVG, feedback=self._feedback,
        )
        return None


def _param_groups(module: nn.Module) -> list[Any]:
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12
        groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
    return list(groups)


def _volume(function: str, nodes: Sequence[int], *arguments: Any) -> int:
    """Bytes that a rank sends across nodes."""
    loaded = _library.library("cpu")
    inside, across = ctypes.c_uint64(), ctypes.c_uint64()
    encoded = [a.encode() if isinstance(a, str) else a for a in arguments]
    status = getattr(loaded, function)(
        (ctypes.c_int * len(nodes))(*nodes), len(nodes), *encoded, ctypes.byref(inside), ctypes.byref(across)
    )
    _library.require_success(loaded, status)
    return across.value


def _types_of(group: Any) -> tuple[torch.dtype, torch.dtype]:
    """What a unit gathers and what it reduces."""
    # Parameters know their types from the first step on.
    gathered = group.mp_policy.param_dtype or group.fsdp_params[0].sharded_param.dtype
    return gathered, group.mp_policy.reduce_dtype or gathered


def apply(
    model: nn.Module,
    *,
    ranks_per_node: int,
    weights: Optional[str] = "int8:256:fp16",
    gradients: Optional[formats.Gradients] = ("int8:256:bf16", "int4:128:signed:bf16"),
    preset: Optional[str] = None,
    error_feedback: bool = False,
    exclude: Sequence[str] = (),
) -> Report:
    """Has the FSDP2 units of `model` gather weights and reduce gradients through zeropp, in these formats; None leaves a
    direction alone. Collective: all ranks call it, after fully_shard and before the first step.

    Ranks are on the same node where rank // ranks_per_node is the same. A unit is left out where a pattern of `exclude`
    occurs in its name, or matches it as fnmatch does. `preset` is one of formats.PRESETS, in place of both formats.
    """
    if preset is not None:
        if preset not in formats.PRESETS:
            raise ZeroppError(f"apply: expected a preset of {', '.join(formats.PRESETS)}, given {preset}")
        weights, gradients = formats.PRESETS[preset]["weights"], formats.PRESETS[preset]["gradients"]
    weights = None if weights is None else formats.weight_format(weights)
    hops = None if gradients is None else formats.gradient_formats(gradients)
    units = [(name, module) for name, module in model.named_modules() if isinstance(module, torch_fsdp.FSDPModule)]
    if not units:
        raise ZeroppError("apply: expected a model with FSDP2 units (fully_shard), given one without")

    communicators: dict[Any, tuple[Communicator, Communicator]] = {}
    report = Report([], [])
    several_nodes = False
    for name, module in units:
        shown = name or "(root)"
        groups = _param_groups(module)
        if not groups:
            continue
        elements = sum(p._orig_size.numel() for group in groups for p in group.fsdp_params)
        row = Row(shown, elements, "-", "-")
        report.rows.append(row)
        if any(pattern in name or fnmatch.fnmatch(name, pattern) for pattern in exclude):
            row.note = "left out: excluded"
            continue
        if len(groups) > 1:
            row.note = "left out: parameters on several meshes"
            continue
        group = groups[0]
        shard_group = group.mesh_info.shard_process_group
        if shard_group.size() == 1:
            row.note = "left out: one rank"
            continue
        ranks = dist.get_process_group_ranks(shard_group)
        nodes = [rank // ranks_per_node for rank in ranks]
        several_nodes = several_nodes or len(set(nodes)) > 1
        key = tuple(ranks)
        if key not in communicators:
            # Gathers and reductions may run side by side: each has groups and scratch of its own.
            communicators[key] = (
                Communicator(shard_group, nodes=nodes, device_type=group.device.type),
                Communicator(shard_group, nodes=nodes, device_type=group.device.type),
            )
        gather, reduce = communicators[key]
        gathered, reduced = _types_of(group)
        sharded = sum(p.padded_sharded_param_size.numel() for p in group.fsdp_params) * len(ranks)
        backward_inside = False
        if group.post_forward_mesh_info is not None and group.post_forward_mesh_info is not group.mesh_info:
            of_group = dist.get_process_group_ranks(group.post_forward_mesh_info.shard_process_group)
            backward_inside = len({rank // ranks_per_node for rank in of_group}) == 1
            if not backward_inside:
                row.note = "hpZ's groups cross nodes"
        # FSDP keeps the root's weights between forward and backward, unless it was told otherwise.
        kept = group.post_forward_mesh_info is None or (
            module is model and module._get_fsdp_state()._auto_reshard_after_forward
        )
        gathers = 1 if backward_inside or kept else 2
        if gathered in formats.LOSSLESS:
            plain = _volume("zt_gather_volume", nodes, formats.LOSSLESS[gathered], sharded)
            row.before += (1 if kept else 2) * plain
            row.after += gathers * plain
            if weights is not None:
                row.weights = weights
                row.after += gathers * (_volume("zt_gather_volume", nodes, weights, sharded) - plain)
                module.set_custom_all_gather(_AllGather(gather, weights))
        if reduced in formats.LOSSLESS:
            wire = formats.LOSSLESS[reduced]
            plain = _volume("zt_reduce_volume", nodes, wire, wire, sharded)
            row.before += plain
            row.after += plain
            if hops is not None:
                row.gradients = " + ".join(hops)
                row.after += _volume("zt_reduce_volume", nodes, *hops, sharded) - plain
                # Division stays FSDP's, whatever its factor is.
                module.set_force_sum_reduction_for_comms(True)
                module.set_custom_reduce_scatter(_ReduceScatter(reduce, hops, error_feedback))
    if not several_nodes:
        report.advice.append("All ranks are on one node: nothing crosses nodes, and no gain is to be expected.")
    model._zeropp_communicators = [c for pair in communicators.values() for c in pair]
    return report


def stats(model: nn.Module) -> Traffic:
    """What this rank has sent through the collectives that apply() has put into the model."""
    communicators = getattr(model, "_zeropp_communicators", None)
    if communicators is None:
        raise ZeroppError("stats: expected a model that apply() has been called on")
    return sum((c.traffic() for c in communicators), Traffic())
