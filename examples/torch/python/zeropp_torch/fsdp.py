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
from torch.distributed.tensor import DTensor

from . import _library, formats, units
from ._library import ZeroppError
from .collectives import ErrorFeedback, Replica, all_gather, reduce_scatter, replica_gather, update_gather
from .communicator import (
    Communicator,
    Traffic,
    all_gather_single,
    enabled,
    reduce_scatter_single,
    require_agreement,
)
from .estimate import Machine, predict
from .report import Report, Row


def fully_shard(module: Any, *, mesh: Any = None, secondary: Optional[int] = None, **arguments: Any) -> Any:
    """Calls torch's fully_shard, on one or several modules, and adds hpZ.

    After forward, groups of `secondary` consecutive ranks keep the weights, and backward gathers within a group. It is
    DeepSpeed's zero_hpz_partition_size. In place of reshard_after_forward=secondary, which makes new process groups for
    every unit, all units share one mesh. Raises ZeroppError for both arguments together, and for DTensor parameters.
    """
    if mesh is not None:
        arguments["mesh"] = mesh
    if secondary is None or secondary == 1:
        return torch_fsdp.fully_shard(module, **arguments)
    if "reshard_after_forward" in arguments:
        raise ZeroppError("fully_shard: expected either secondary or reshard_after_forward, given both")
    if any(isinstance(p, DTensor) for one in ([module] if isinstance(module, nn.Module) else module) for p in _own(one)):
        raise ZeroppError(
            "fully_shard: expected plain parameters with secondary, given DTensors of tensor parallelism, which FSDP2 cannot "
            "shard anew after forward; leave secondary out for this module"
        )
    with _shared_meshes.installed():
        return torch_fsdp.fully_shard(module, reshard_after_forward=secondary, **arguments)


def _own(module: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters of `module` that no FSDP unit inside it has."""
    yield from module.parameters(recurse=False)
    for child in module.children():
        if not isinstance(child, torch_fsdp.FSDPModule):
            yield from _own(child)


class _SharedMeshes:
    """hpZ's meshes: one for each mesh and group size, until torch.distributed is initialised anew."""

    def __init__(self) -> None:
        self._world: Any = None
        self._infos: dict[Any, Any] = {}

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Context in which fully_shard uses these meshes and makes no others."""
        from torch.distributed.fsdp._fully_shard import _fully_shard as implementation

        original = implementation._get_post_forward_mesh_info
        if self._world is not dist.group.WORLD:
            self._world, self._infos = dist.group.WORLD, {}

        def shared(reshard_after_forward: Any, mesh_info: Any) -> Any:
            key = (reshard_after_forward, mesh_info.mesh)
            if key not in self._infos:
                self._infos[key] = original(reshard_after_forward, mesh_info)
            return self._infos[key]

        implementation._get_post_forward_mesh_info = shared
        try:
            yield
        finally:
            implementation._get_post_forward_mesh_info = original


_shared_meshes = _SharedMeshes()


class _ComparedSteps:
    """Has `communicator` compare one unit's calls in its first `steps` steps."""

    def __init__(self, communicator: Communicator, steps: int):
        self._communicator = communicator
        self._left = steps + 1

    def before_call(self, begins_step: bool) -> None:
        if begins_step and self._left != 0:
            self._left -= 1
        if self._left != 0:
            self._communicator.compare(1)


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


class _AllGather:
    """FSDP2's hook for the all-gather of a unit's parameters."""

    def __init__(self, communicator: Communicator, weights: str, name: str, compared_steps: int):
        self._communicator = communicator
        self._weights = weights
        self._name = name
        self._compared = _ComparedSteps(communicator, compared_steps)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Optional[dist.Work]:
        # torch gathers within hpZ's smaller groups, which hold weights that are already quantized. It also gathers the bytes
        # of parameters of several types.
        of_all = group.size() == self._communicator.size
        if not enabled() or not of_all or output_tensor.dtype not in _library.ELEMENTS:
            return all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        self._compared.before_call(begins_step=not _in_backward())
        all_gather(self._communicator, input_tensor, output_tensor, self._weights, name=self._name)
        return None


class _UpdateGather(_AllGather):
    """FSDP2's all-gather hook for weight differences. Forward updates the node's replica, and backward gathers the replica."""

    def __init__(self, communicator: Communicator, differences: str, name: str, compared_steps: int):
        self._communicator = communicator
        self._differences = differences
        self._name = name
        self._compared = _ComparedSteps(communicator, compared_steps)
        self._replica: Optional[Replica] = None
        self._elements = 0
        self._is_current = False

    def refresh(self) -> None:
        self._is_current = False
        if self._replica is not None:
            self._replica.invalidate()

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Optional[dist.Work]:
        of_all = group.size() == self._communicator.size
        if not enabled() or not of_all or output_tensor.dtype not in _library.ELEMENTS:
            self._is_current = self._is_current and not of_all
            return all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        full, shard = output_tensor.view(-1), input_tensor.view(-1)
        if self._replica is None or self._elements != full.numel() or self._replica.dtype != full.dtype:
            self._replica, self._elements, self._is_current = Replica(self._communicator, full), full.numel(), False
        self._compared.before_call(begins_step=not _in_backward())
        # Backward needs the weights that forward gathered, also to recompute a checkpoint's forward.
        if self._is_current and _in_backward():
            replica_gather(self._communicator, full, self._replica, name=self._name)
        else:
            update_gather(self._communicator, shard, full, self._replica, self._differences, name=self._name)
            self._is_current = True
        return None


class _ReduceScatter:
    """FSDP2's hook for the reduce-scatter of a unit's gradients."""

    def __init__(
        self,
        communicator: Communicator,
        gradients: formats.GradientFormats,
        error_feedback: bool,
        group: Any,
        name: str,
        compared_steps: int,
    ):
        self._communicator = communicator
        self._name = name
        self._compared = _ComparedSteps(communicator, compared_steps)
        self._gradients = gradients
        self._error_feedback = error_feedback
        self._group = group
        self._feedback: Optional[ErrorFeedback] = None
        self._feedback_elements = 0

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
        if not enabled():
            return reduce_scatter_single(output_tensor, input_tensor, op=op, group=group, async_op=async_op)
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ZeroppError(f"reduce-scatter: expected a sum or a mean, given {op}")
        feedback = self._feedback_for(input_tensor) if self._error_feedback else None
        self._compared.before_call(begins_step=True)
        reduce_scatter(
            self._communicator, input_tensor.view(-1), output_tensor.view(-1), *self._gradients,
            mean=op == dist.ReduceOp.AVG, feedback=feedback, name=self._name,
        )
        return None

    def _feedback_for(self, gradients: torch.Tensor) -> Optional[ErrorFeedback]:
        """The unit's error feedback. None if a parameter has no gradient in this step, because residuals would be misplaced."""
        if gradients.numel() != units.moved_elements(units.trained(self._group), self._communicator.size):
            return None
        if self._feedback is None or self._feedback_elements != gradients.numel():
            self._feedback = ErrorFeedback(self._communicator, gradients, *self._gradients)
            self._feedback_elements = gradients.numel()
        return self._feedback


@dataclasses.dataclass
class _Moved:
    """Communication of a set of ranks: plain FSDP2's formats, elements of each unit, and whether any unit uses hpZ."""

    plain: str
    plain_gradients: str
    elements: list[int]
    secondary: bool


class _Units:
    """Puts hooks into units. Each set of ranks has two communicators, because gathers and reductions may run at the same time
    and need separate groups and scratch."""

    def __init__(self, ranks_per_node: int, chosen: formats.Chosen, error_feedback: bool, compared_steps: int):
        self._ranks_per_node = ranks_per_node
        self._chosen = chosen
        self._error_feedback = error_feedback
        self._compared_steps = compared_steps
        self._communicators: dict[tuple[int, ...], tuple[Communicator, Communicator]] = {}
        self.updates: list[_UpdateGather] = []
        self._moved: dict[tuple[int, ...], _Moved] = {}

    def communicators(self) -> list[Communicator]:
        return [c for pair in self._communicators.values() for c in pair]

    def _nodes_of(self, ranks: Sequence[int]) -> list[int]:
        return [rank // self._ranks_per_node for rank in ranks]

    def install(self, module: torch_fsdp.FSDPModule, group: Any, is_root: bool, row: Row) -> None:
        """Puts hooks into one unit, and records formats, traffic and notes in `row`."""
        shard_group = group.mesh_info.shard_process_group
        ranks = tuple(dist.get_process_group_ranks(shard_group))
        if ranks not in self._communicators:
            self._communicators[ranks] = (
                Communicator(shard_group, nodes=self._nodes_of(ranks), device=group.device, compared_calls=0),
                Communicator(shard_group, nodes=self._nodes_of(ranks), device=group.device, compared_calls=0),
            )
        gathered, reduced = units.types_of(group)
        if hasattr(group.mesh_info, "replicate_process_group"):
            row.tell("the all-reduce between replicas stays torch's")
        if gathered in formats.LOSSLESS:
            self._install_gather(module, group, is_root, row, ranks, formats.LOSSLESS[gathered])
        else:
            row.tell("weights are gathered as they are, " + ("several types" if gathered is None else str(gathered)))
        if reduced in formats.LOSSLESS:
            self._install_reduce(module, group, row, ranks, reduced)
        else:
            row.tell("gradients are reduced as they are, " + ("several types" if reduced is None else str(reduced)))

    def _install_gather(
        self, module: torch_fsdp.FSDPModule, group: Any, is_root: bool, row: Row, ranks: tuple[int, ...], plain: str
    ) -> None:
        communicator, _ = self._communicators[ranks]
        after_forward = group.post_forward_mesh_info
        # By default FSDP keeps the root's weights between forward and backward.
        kept = after_forward is None or (is_root and module._get_fsdp_state()._auto_reshard_after_forward)
        secondary: list[int] = []
        if not kept and after_forward != group.mesh_info:
            secondary = self._nodes_of(dist.get_process_group_ranks(after_forward.shard_process_group))
        if len(set(secondary)) > 1:
            row.tell("hpZ's groups cross nodes")
        moved = self._moved.setdefault(ranks, _Moved(plain, plain, [], False))
        moved.elements.append(row.elements)
        moved.secondary = moved.secondary or bool(secondary)

        elements = units.moved_elements(group.fsdp_params, len(ranks))
        before = after = _volume("zt_gather_volume", communicator.nodes, plain, elements)
        backward: Optional[Traffic] = None
        if self._chosen.differences is not None:
            row.weights = "differences in " + self._chosen.differences
            after = _volume("zt_update_volume", communicator.nodes, self._chosen.differences, plain, elements)
            backward = _volume("zt_replica_volume", communicator.nodes, plain, elements)
            update = _UpdateGather(communicator, self._chosen.differences, row.unit, self._compared_steps)
            self.updates.append(update)
            module.set_custom_all_gather(update)
            module.register_load_state_dict_post_hook(lambda _module, _keys: update.refresh())
            if secondary:
                row.tell("hpZ's groups keep the weights a second time; leave secondary out")
        elif self._chosen.weights is not None:
            row.weights = plain if self._chosen.weights == formats.OWN_TYPE else self._chosen.weights
            after = _volume("zt_gather_volume", communicator.nodes, row.weights, elements)
            module.set_custom_all_gather(_AllGather(communicator, row.weights, row.unit, self._compared_steps))
        if secondary:
            backward = _volume("zt_gather_volume", secondary, plain, elements)
        row.before += before if kept else before + before
        row.after += after if kept else after + (after if backward is None else backward)

    def _install_reduce(
        self, module: torch_fsdp.FSDPModule, group: Any, row: Row, ranks: tuple[int, ...], reduced: torch.dtype
    ) -> None:
        _, communicator = self._communicators[ranks]
        elements = units.moved_elements(units.trained(group), len(ranks))
        own = formats.LOSSLESS[reduced]
        if ranks in self._moved:
            self._moved[ranks].plain_gradients = own
        before = after = _volume("zt_reduce_volume", communicator.nodes, own, own, elements)
        if self._chosen.gradients is not None:
            hops = self._chosen.gradients.of(reduced)
            row.gradients = " + ".join(hops)
            after = _volume("zt_reduce_volume", communicator.nodes, *hops, elements)
            # FSDP divides by its own factor, so zeropp only sums.
            module.set_force_sum_reduction_for_comms(True)
            module.set_custom_reduce_scatter(
                _ReduceScatter(communicator, hops, self._error_feedback, group, row.unit, self._compared_steps)
            )
        row.before += before
        row.after += after

    def advice(self, machine: Machine) -> list[str]:
        """Sentences on sets of ranks that gain nothing on `machine`."""
        sentences = []
        for ranks, moved in self._moved.items():
            nodes = self._nodes_of(ranks)
            per_node = nodes.count(nodes[0])
            predicted = predict(
                moved.elements, len(nodes) // per_node, per_node, self._chosen, per_node if moved.secondary else 0,
                self._error_feedback, moved.plain, moved.plain_gradients, machine,
            )
            if not predicted.gains and predicted.advice not in sentences:
                sentences.append(predicted.advice)
        return sentences


def _volume(function: str, nodes: Sequence[int], *arguments: Any) -> Traffic:
    """Traffic of a rank in one collective, from the library's `function`."""
    loaded = _library.library("cpu")
    inside, across = ctypes.c_uint64(), ctypes.c_uint64()
    encoded = [a.encode() if isinstance(a, str) else a for a in arguments]
    status = getattr(loaded, function)(
        (ctypes.c_int * len(nodes))(*nodes), len(nodes), *encoded, ctypes.byref(inside), ctypes.byref(across)
    )
    _library.require_success(loaded, status)
    return Traffic(inside.value, across.value, 1)


def _require_agreement(sharded: Sequence[units.Unit], given: str) -> None:
    """Compares apply()'s arguments, `given`, and unit names over all ranks that share units. If they differ, all raise
    ZeroppError."""
    names: dict[tuple[int, ...], list[str]] = {}
    groups: dict[tuple[int, ...], Any] = {}
    for unit in sharded:
        for group in unit.groups:
            shard_group = getattr(group.mesh_info, "shard_process_group", None)
            if shard_group is not None and shard_group.size() > 1:
                ranks = tuple(dist.get_process_group_ranks(shard_group))
                names.setdefault(ranks, []).append(unit.name)
                groups.setdefault(ranks, group)
    for ranks, group in groups.items():
        of_group = f"{given}, units {'; '.join(names[ranks])}"
        require_agreement(group.mesh_info.shard_process_group, group.device, "apply", of_group)


def _matches(pattern: str, name: str) -> bool:
    return pattern in name or fnmatch.fnmatch(name, pattern)


def _left_out(unit: units.Unit, exclude: Sequence[str]) -> str:
    """The reason to leave `unit` to torch; empty if there is none."""
    if any(_matches(pattern, name) for pattern in exclude for name in unit.names):
        return "excluded"
    groups = unit.groups
    if len(groups) > 1:
        return "parameters on several meshes; give each mesh a unit of its own"
    shard_group = getattr(groups[0].mesh_info, "shard_process_group", None)
    if shard_group is None:
        return "replicated, not sharded"
    if shard_group.size() == 1:
        return "one rank"
    if units.gathers_itself(groups[0]):
        return "its parameters say themselves what is gathered (fsdp_pre_all_gather)"
    return ""


def apply(
    model: nn.Module,
    *,
    ranks_per_node: int,
    weights: Optional[str] = "int8:256:fp16",
    gradients: Optional[formats.Gradients] = ("int8:256:bf16", "int4:128:signed:bf16"),
    preset: Optional[str] = None,
    differences: Optional[str] = None,
    error_feedback: bool = False,
    exclude: Sequence[str] = (),
    machine: Machine = Machine(),
    compared_steps: int = 2,
) -> Report:
    """Has the FSDP2 units of `model` gather weights and reduce gradients through zeropp. Collective: all ranks call it,
    after fully_shard and before the first step.

    Rank r of the world is on node r // ranks_per_node. `weights` and `gradients` are formats; None leaves a direction to
    torch. `preset`, a key of PRESETS, replaces all formats. `differences`, a format, replaces `weights`: every node keeps
    the weights that forward gathered, divided over its ranks. Forward then sends their changes between nodes, and backward
    sends nothing between nodes. `error_feedback` acts in steps in which all trained parameters of a unit have gradients.
    A unit is left out if a pattern of `exclude` occurs in its name, or matches it by fnmatch.

    The report gives advice if nothing is gained on `machine`. Ranks raise the same ZeroppError if their arguments differ,
    or their calls in a unit's first `compared_steps` steps; later calls are not compared.
    """
    sharded = units.units_of(model)
    if not sharded:
        raise ZeroppError("apply: expected a model with FSDP2 units (fully_shard), given one without")
    _require_agreement(
        sharded,
        f"ranks_per_node {ranks_per_node}, weights {weights}, gradients {gradients}, preset {preset}, differences {differences}, "
        f"error_feedback {error_feedback}, exclude {list(exclude)}, compared_steps {compared_steps}",
    )
    if ranks_per_node < 1:
        raise ZeroppError(f"apply: expected ranks_per_node from 1, given {ranks_per_node}")
    if isinstance(exclude, str):
        raise ZeroppError(f'apply: expected a sequence of patterns as exclude, given "{exclude}"')
    chosen = formats.chosen(weights, gradients, preset, differences)
    installed = _Units(ranks_per_node, chosen, error_feedback, compared_steps)
    report = Report([], [])
    for unit in sharded:
        row = Row(unit.name, sum(units.elements_of(group) for group in unit.groups))
        report.rows.append(row)
        why = _left_out(unit, exclude)
        if why:
            row.tell("left out: " + why)
        else:
            installed.install(unit.module, unit.groups[0], unit.is_root, row)
    report.advice = installed.advice(machine)
    for pattern in exclude:
        if not any(_matches(pattern, name) for unit in sharded for name in unit.names):
            report.advice.append(f'Nothing is excluded by "{pattern}": no unit is called so, and parts of one cannot be left out.')
    model._zeropp_communicators = installed.communicators()
    model._zeropp_updates = installed.updates
    return report


def refresh(model: nn.Module) -> None:
    """With differences, has the next forward pass send whole weights. Call it on all ranks after a change of weights other
    than a training step. load_state_dict() of units, or of modules that contain them, does it."""
    for update in getattr(model, "_zeropp_updates", []):
        update.refresh()


def stats(model: nn.Module) -> Traffic:
    """Traffic of this rank through the collectives that apply() put into `model`."""
    communicators = getattr(model, "_zeropp_communicators", None)
    if communicators is None:
        raise ZeroppError("stats: expected a model that apply() has been called on")
    return sum((c.traffic() for c in communicators), Traffic())
