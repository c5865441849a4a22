"""FSDP2's units, in torch 2.9 and later."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule


class Unit(NamedTuple):
    """One fully_shard call's unit: a module, or several."""

    names: list[str]
    module: FSDPModule
    #: FSDP's parameter groups: one for each mesh of the parameters.
    groups: list[Any]
    #: True if no other unit of the model contains it.
    is_root: bool

    @property
    def name(self) -> str:
        return ", ".join(name or "(root)" for name in self.names)


def units_of(model: nn.Module) -> list[Unit]:
    """Units of `model` that have parameters, in the model's order."""
    found: dict[int, Unit] = {}
    outer: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        is_root = not any(known == "" or name.startswith(known + ".") for known in outer)
        outer.append(name)
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None)
        if groups is None:  # before torch 2.12
            groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
        if groups:
            found.setdefault(id(state), Unit([], module, list(groups), is_root)).names.append(name)
    return list(found.values())


def trained(group: Any) -> list[Any]:
    """Parameters of `group` that have gradients to reduce."""
    return [p for p in group.fsdp_params if p.sharded_param.requires_grad]


def with_gradients(group: Any) -> list[int]:
    """Numbers of the parameters of `group` that have gradients."""
    return [number for number, p in enumerate(group.fsdp_params) if p.sharded_param.grad is not None]


def elements_of(group: Any) -> int:
    """Number of elements of `group`'s parameters."""
    return sum(p._orig_size.numel() for p in group.fsdp_params)


def shard_elements(parameters: Sequence[Any]) -> int:
    """Elements that each rank sends or receives of `parameters`: FSDP pads every rank's shard to the first's size."""
    return sum(p.padded_sharded_param_size.numel() for p in parameters)


def _type_of(parameter: Any) -> torch.dtype:
    # FSDP sets the type in its parameters only in the first forward pass.
    return parameter.mp_policy.param_dtype or parameter.sharded_param.dtype


def shard_bytes(parameters: Sequence[Any], dtype: Optional[torch.dtype] = None) -> int:
    """As shard_elements(), in bytes: of elements of `dtype`, or of the types in which FSDP gathers `parameters`."""
    return sum(p.padded_sharded_param_size.numel() * (dtype or _type_of(p)).itemsize for p in parameters)


def _mesh_info(group: Any) -> Any:
    """The mesh with which fully_shard() made `group`. reduce_replicas_by() leaves it to the parameters."""
    return group.fsdp_params[0].mesh_info


def shard_group(group: Any) -> Optional[dist.ProcessGroup]:
    """Ranks that share `group`'s parameters; None if parameters are only replicated."""
    return getattr(_mesh_info(group), "shard_process_group", None)


def replica_group(group: Any) -> Optional[dist.ProcessGroup]:
    """Ranks between which the gradients of `group` are reduced besides, as HSDP; None if there are none."""
    return getattr(_mesh_info(group), "replicate_process_group", None)


def shard_ranks(group: Any) -> list[int]:
    """Ranks of the world that share `group`'s parameters; this one alone if parameters are only replicated."""
    process_group = shard_group(group)
    return [dist.get_rank()] if process_group is None else dist.get_process_group_ranks(process_group)


def replicas_of(group: Any) -> int:
    """Number of replicas of `group`'s parameters, between which gradients are reduced: HSDP's, or replicate()'s."""
    process_group = replica_group(group)
    return 1 if process_group is None else process_group.size()


def all_reduce_hook(group: Any) -> Optional[Callable[[torch.Tensor], None]]:
    """The hook that FSDPModule.set_all_reduce_hook() has set for `group`."""
    return group._all_reduce_hook


def mesh_of(group: Any) -> torch.Tensor:
    """The ranks of `group`'s mesh: a row for each replica."""
    return _mesh_info(group).mesh.mesh.reshape(-1, len(shard_ranks(group)))


def secondary_size(group: Any) -> int:
    """Number of ranks that keep the weights after forward: hpZ's groups of consecutive ranks, or all that share them."""
    after_forward = group.post_forward_mesh_info
    return len(shard_ranks(group)) if after_forward is None else after_forward.shard_process_group.size()


# Settings of a parameter group that zeropp changes.
_SETTINGS = (
    "_all_gather_comm", "_reduce_scatter_comm", "_all_reduce_hook", "force_sum_reduction_for_comms",
    "gradient_divide_factor", "mesh_info", "post_forward_mesh_info",
)


def settings_of(group: Any) -> dict[str, Any]:
    """The settings of `group` that zeropp changes, for restore()."""
    return {name: getattr(group, name) for name in _SETTINGS}


def restore(group: Any, before: dict[str, Any], ours: dict[str, Any]) -> None:
    """Gives `group` the settings `before` again, except those that are no longer `ours`: the caller has changed them since."""
    for name in _SETTINGS:
        if getattr(group, name) is ours[name]:
            setattr(group, name, before[name])
    # set_reshard_after_forward() takes the mesh that reduce_replicas_by() has set.
    if group.post_forward_mesh_info is ours["mesh_info"]:
        group.post_forward_mesh_info = before["mesh_info"]


def reduce_replicas_by(hook: Callable[[torch.Tensor], None], module: FSDPModule, group: Any) -> None:
    """Has `hook` reduce gradients between replicas, in place of FSDP's all-reduce. FSDP still divides by `group`'s factor, which
    is set here for HSDP. Without shards FSDP would divide twice by a factor: if the caller has set none, `hook` makes the mean."""
    from torch.distributed.fsdp._fully_shard._fsdp_common import DataParallelMeshInfo, FSDPMeshInfo

    # torch runs a hook after its own all-reduce if the mesh has a dimension of replicas, otherwise in place of one
    # (pytorch pull request 147114). So the group gets a mesh without this dimension; its parameters keep theirs.
    info = group.mesh_info
    sharded = copy.copy(info)
    sharded.__class__ = DataParallelMeshInfo if shard_group(group) is None else FSDPMeshInfo
    del sharded.replicate_process_group
    group.mesh_info = sharded
    if group.post_forward_mesh_info is info:
        group.post_forward_mesh_info = sharded
    shards = len(shard_ranks(group))
    if shards > 1:
        if group.gradient_divide_factor is None:
            module.set_gradient_divide_factor(float(shards * replicas_of(group)))
        module.set_force_sum_reduction_for_comms(True)
    module.set_all_reduce_hook(hook)


def call_after_reset(group: Any, call: Callable[[], None], undo: contextlib.ExitStack) -> None:
    """Has reset_iter_state() of FSDP, which torch has from 2.13 on, also run `call` for `group`, until `undo`."""
    reset = getattr(group, "_reset_iter_state", None)
    if reset is None:
        return

    def reset_and_call() -> None:
        reset()
        call()

    group._reset_iter_state = reset_and_call
    undo.callback(group.__dict__.pop, "_reset_iter_state")


def types_of(group: Any) -> tuple[Optional[torch.dtype], Optional[torch.dtype]]:
    """Element types in which `group` gathers and reduces; None if its parameters differ."""

    def one(types: Iterable[torch.dtype]) -> Optional[torch.dtype]:
        found = set(types)
        return found.pop() if len(found) == 1 else None

    # From torch 2.15 on, parameters of a group may have policies with other param_dtypes.
    gathered = one(map(_type_of, group.fsdp_params))
    reduced = one(_type_of(p) for p in group.fsdp_params if p.mp_policy.param_dtype or p.sharded_param.requires_grad)
    return gathered, group.fsdp_params[0].mp_policy.reduce_dtype or reduced


def gathers_itself(group: Any) -> bool:
    """True if a parameter has `fsdp_pre_all_gather`, as float8 parameters do."""
    return any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in group.fsdp_params)
