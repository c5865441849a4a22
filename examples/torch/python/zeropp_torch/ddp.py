"""DistributedDataParallel with zeropp's all-reduce."""

# No `from __future__ import annotations`: DDP looks at the types of the hook itself.

import concurrent.futures
from collections.abc import Callable
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import formats
from .collectives import all_reduce
from .communicator import Communicator, enabled


def ddp_hook(
    process_group: Optional[dist.ProcessGroup] = None,
    *,
    ranks_per_node: int,
    gradients: formats.Gradients = ("int8:256:bf16", "int8:256:bf16"),
    device_type: str = "cpu",
) -> Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A hook for DistributedDataParallel: `model.register_comm_hook(None, ddp_hook(ranks_per_node=8))`. Gradients become the
    means over ranks, the same bits on all of them. Collective; the process group is the model's.

    Buckets are reduced while backward goes on: on the host by a thread, on a GPU on the current stream. What fails is raised
    by backward. `hook.communicator` is where traffic is counted.
    """
    hops = formats.gradient_formats(gradients)
    communicator = Communicator(process_group, ranks_per_node=ranks_per_node, device_type=device_type)
    # One thread, so that buckets are reduced in their order, which is the same on all ranks.
    reducer = concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="zeropp-ddp")
    reductions: list[concurrent.futures.Future[None]] = []

    def reduce(gradient: torch.Tensor, ours: bool) -> None:
        if ours:
            all_reduce(communicator, gradient, *hops.of(gradient.dtype), mean=True)
        else:
            dist.all_reduce(gradient, group=process_group)
            gradient /= communicator.size

    def raise_failures() -> None:
        # DDP can be given no exception of Python's, so it gets a gradient whatever happened, and backward ends here.
        for reduction in reductions:
            reduction.result()

    def hook(_state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradient = bucket.buffer()
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        if gradient.is_cuda:
            reduce(gradient, enabled())
            future.set_result(gradient)
            return future
        if bucket.index() == 0:
            reductions.clear()
            Variable._execution_engine.queue_callback(raise_failures)
        reduction = reducer.submit(reduce, gradient, enabled())
        reductions.append(reduction)
        reduction.add_done_callback(lambda _: future.set_result(gradient))
        return future

    hook.communicator = communicator
    return hook
