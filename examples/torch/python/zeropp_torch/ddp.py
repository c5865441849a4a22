"""DistributedDataParallel with zeropp's all-reduce."""

# No `from __future__ import annotations`: DDP looks at the types of the hook itself.

from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist

from . import formats, fsdp
from .collectives import all_reduce
from .communicator import Communicator


def ddp_hook(
    process_group: Optional[dist.ProcessGroup] = None,
    *,
    ranks_per_node: int,
    gradients: formats.Gradients = ("int8:256:bf16", "int8:256:bf16"),
    device_type: str = "cpu",
) -> Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A hook for DistributedDataParallel: `model.register_comm_hook(None, ddp_hook(ranks_per_node=8))`. Gradients become the
    means over ranks, the same bits on all of them. Collective; the process group is the model's."""
    hops = formats.gradient_formats(gradients)
    communicator = Communicator(process_group, ranks_per_node=ranks_per_node, device_type=device_type)

    def hook(_state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradient = bucket.buffer()
        if fsdp._enabled:
            all_reduce(communicator, gradient, *hops, mean=True)
        else:
            dist.all_reduce(gradient, group=process_group)
            gradient /= communicator.size
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(gradient)
        return future

    hook.communicator = communicator  # for looking at its traffic
    return hook
