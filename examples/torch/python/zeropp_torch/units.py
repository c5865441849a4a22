"""FSDP2's units, as every torch from 2.9 has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule


class Unit(NamedTuple):
    """What one fully_shard has made of a module, or of several."""

    names: list[str]
    module: FSDPModule
    #: Of parameters: one, or one for each mesh that they are on.
    groups: list[Any]
    #: Whether it is in no other of the model's units.
    is_root: bool

    @property
    def name(self) -> str:
        return ", ".join(name or "(root)" for name in self.names)


def units_of(model: nn.Module) -> list[Unit]:
    """The model's units that have parameters, in its order."""
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
    """Its parameters that are reduced."""
    return [p for p in group.fsdp_params if p.sharded_param.requires_grad]


def elements_of(group: Any) -> int:
    """Elements of a group's parameters."""
    return sum(p._orig_size.numel() for p in group.fsdp_params)


def moved_elements(parameters: Sequence[Any], ranks: int) -> int:
    """Elements of a collective on these, with FSDP's padding: every rank's part is as large as the first's."""
    return sum(p.padded_sharded_param_size.numel() for p in parameters) * ranks


def types_of(group: Any) -> tuple[Optional[torch.dtype], Optional[torch.dtype]]:
    """What a group gathers and what it reduces; none where parameters differ."""

    def one(types: Iterable[torch.dtype]) -> Optional[torch.dtype]:
        found = set(types)
        return found.pop() if len(found) == 1 else None

    # What parameters gather is in themselves only after the first forward.
    policy = group.mp_policy
    gathered = policy.param_dtype or one(p.sharded_param.dtype for p in group.fsdp_params)
    reduced = policy.param_dtype or one(p.sharded_param.dtype for p in trained(group))
    return gathered, policy.reduce_dtype or reduced


def gathers_itself(group: Any) -> bool:
    """Whether a parameter says what is gathered for it, as those of float8 do."""
    return any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in group.fsdp_params)
