"""FSDP2's units, as every torch from 2.9 has them."""

from __future__ import annotations

from typing import Any

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


def types_of(group: Any) -> tuple[torch.dtype, torch.dtype]:
    """What a group gathers and what it reduces."""
    # Parameters know their types from the first step on.
    gathered = group.mp_policy.param_dtype or group.fsdp_params[0].sharded_param.dtype
    return gathered, group.mp_policy.reduce_dtype or gathered


def gathers_itself(group: Any) -> bool:
    """Whether a parameter says what is gathered for it, as those of float8 do."""
    return any(hasattr(p._sharded_local_tensor, "fsdp_pre_all_gather") for p in group.fsdp_params)
