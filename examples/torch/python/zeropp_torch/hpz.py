"""fully_shard with hpZ: after forward, groups of consecutive ranks keep the weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Optional

import torch.distributed as dist
import torch.distributed.fsdp as torch_fsdp
from torch import nn
from torch.distributed.tensor import DTensor

from ._library import ZeroppError
from .arguments import integer


def fully_shard(module: Any, *, mesh: Any = None, secondary: Optional[int] = None, **arguments: Any) -> Any:
    """Calls torch's fully_shard, on one or several modules, and adds hpZ.

    After forward, groups of `secondary` consecutive ranks keep the weights, and backward gathers within a group. It is
    DeepSpeed's zero_hpz_partition_size. In place of reshard_after_forward=secondary, which makes new process groups for
    every unit, all units share one mesh. Raises ZeroppError for both arguments together, and for DTensor parameters.
    """
    if mesh is not None:
        arguments["mesh"] = mesh
    if secondary is None or integer("fully_shard", "secondary", secondary, 1) == 1:
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
                info = original(reshard_after_forward, mesh_info)
                # For a group of all ranks, FSDP returns the unit's own object, and compares it by identity.
                if info is mesh_info:
                    return info
                self._infos[key] = info
            return self._infos[key]

        implementation._get_post_forward_mesh_info = shared
        try:
            yield
        finally:
            implementation._get_post_forward_mesh_info = original


_shared_meshes = _SharedMeshes()
