"""FSDP2's units, as every torch from 2.9 has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

import torch
from torch import nn


def param_groups(module: nn.Module) -> list[Any]:
    """A unit's groups of parameters: one, or one for each mesh that they are on."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12
        groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
    return list(groups)


def elements_of(group: Any) -> int:
    """Elements that a group gathers and reduces at once, without FSDP's padding."""
    return sum(p._orig_size.numel() for p in group.fsdp_params)


def types_of(group: Any) -> tuple[Optional[torch.dtype], Optional[torch.dtype]]:
    """What a group gathers and what it reduces; none where parameters differ."""

    def one(types: Iterable[torch.dtype]) -> Optional[torch.dtype]:
        found = set(types)
        return found.pop() if len(found) == 1 else None

    # Parameters know what they gather from the first step on alone.
    policy = group.mp_policy
    gathered = policy.param_dtype or one(p.sharded_param.dtype for p in group.fsdp_params)
    reduced = policy.param_dtype or one(p.sharded_param.dtype for p in group.fsdp_params if p.sharded_param.requires_grad)
    return gathered, policy.reduce_dtype or reduced


def gathers_itself(group: Any) -> bool:
    """Whether a parameter says what is gathered for it, as those of float8 do."""
    return any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in group.fsdp_params)
