"""DistributedDataParallel with zeropp's all-reduce."""

# No `from __future__ import annotations`: DDP looks at the types of the hook itself.

import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import formats
from ._library import ZeroppError
from .collectives import all_reduce
from .communicator import Communicator, Traffic, enabled, new_group, require_agreement

# Pieces of a bucket go to so many threads by turns, so that one is inside nodes while another is between them.
LANES = 2
PIECE_BYTES = 2 << 20


class _Reducer:
    """Reduces the buckets of one model, with process groups of its own: DDP may use the model's meanwhile."""

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup],
        ranks_per_node: int,
        gradients: Any,
        device: torch.device,
        compared_steps: int,
    ):
        parent = process_group if process_group is not None else dist.group.WORLD
        members = range(dist.get_world_size(parent))
        lanes = LANES if device.type == "cpu" else 1
        given = f"gradients {gradients}, ranks_per_node {ranks_per_node}, compared_steps {compared_steps}"
        require_agreement(parent, device, "ddp_hook", given)
        self._hops = formats.gradient_formats(gradients)
        self._groups = [new_group(parent, members, device) for _ in range(lanes)]
        self._lanes = [
            Communicator(group, ranks_per_node=ranks_per_node, device=device, compared_calls=0) for group in self._groups
        ]
        # One thread each, so that a lane's pieces keep their order, which is the same on all ranks.
        self._threads = [concurrent.futures.ThreadPoolExecutor(1, "zeropp-ddp") for _ in self._lanes]
        self._running: list[concurrent.futures.Future[None]] = []
        self._turn = 0
        self._steps_to_compare = compared_steps + 1

    def traffic(self) -> Traffic:
        return sum((lane.traffic() for lane in self._lanes), Traffic())

    def begin(self, bucket: dist.GradBucket) -> bool:
        """Whether the calls of this bucket are compared."""
        if bucket.index() == 0 and self._steps_to_compare != 0:
            self._steps_to_compare -= 1
        return self._steps_to_compare != 0

    def reduce(self, lane: int, gradient: torch.Tensor, ours: bool, compared: bool, bucket: int) -> None:
        if ours:
            hops = self._hops.of(gradient.dtype)
            self._lanes[lane].compare(int(compared))
            all_reduce(self._lanes[lane], gradient, *hops, mean=True, name=f"bucket {bucket}")
        else:
            dist.all_reduce(gradient, group=self._groups[lane])
            gradient /= self._lanes[lane].size

    def start(self, bucket: dist.GradBucket, future: torch.futures.Future[torch.Tensor]) -> None:
        """Reduces the bucket on the threads; the future is complete when the last piece is."""
        if bucket.index() == 0:
            self._running.clear()
            self._turn = 0
        compared = self.begin(bucket)
        gradient = bucket.buffer()
        started = []
        for piece in gradient.chunk(max(1, gradient.nbytes // PIECE_BYTES)):
            lane = self._turn % LANES
            self._turn += 1
            started.append(self._threads[lane].submit(self.reduce, lane, piece, enabled(), compared, bucket.index()))
        self._running += started
        left = threading.Semaphore(len(started) - 1)

        def complete(_: Any) -> None:
            if not left.acquire(blocking=False):  # this is the last one
                future.set_result(gradient)

        for piece in started:
            piece.add_done_callback(complete)
        if torch._C._current_graph_task_id() == -1:
            # A rank whose inputs have ended, within model.join().
            self._raise_failures()
        else:
            # For every bucket: reentrant checkpoints have backward passes of their own, with callbacks of their own.
            Variable._execution_engine.queue_callback(self._raise_failures)

    def _raise_failures(self) -> None:
        # DDP can be given no exception of Python's, so it gets a gradient whatever happened, and backward ends here.
        concurrent.futures.wait(self._running)
        for piece in self._running:
            piece.result()


def ddp_hook(
    process_group: Optional[dist.ProcessGroup] = None,
    *,
    ranks_per_node: int,
    gradients: formats.Gradients = ("int8:256:bf16", "int8:256:bf16"),
    device: Union[torch.device, str] = "cpu",
    compared_steps: int = 2,
) -> Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A hook for one DistributedDataParallel: `model.register_comm_hook(None, ddp_hook(ranks_per_node=8))`. Gradients become
    the means over ranks, the same bits on all of them. Collective; the process group is the model's, `device` that of its
    parameters. Ranks whose arguments differ, or whose calls do in the first `compared_steps` steps, raise the same ZeroppError.

    Buckets are reduced while backward goes on: on the host by threads, on a GPU on the current stream. What fails is raised
    by backward, or by the exit of `model.join()` on a rank whose inputs have ended, and the model's reducer is of no more use
    then. Means are over all ranks, those whose inputs have ended too. `hook.traffic()` is what this rank has sent.
    """
    device = torch.device(device)
    reducer = _Reducer(process_group, ranks_per_node, gradients, device, compared_steps)

    def hook(_state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        given = bucket.buffer().device
        if given.type != device.type:
            raise ZeroppError(f"ddp_hook: expected gradients on {device}, its device, given some on {given}")
        if device.type == "cuda":
            reducer.reduce(0, bucket.buffer(), enabled(), reducer.begin(bucket), bucket.index())
            future.set_result(bucket.buffer())
        else:
            reducer.start(bucket, future)
        return future

    hook.traffic = reducer.traffic
    return hook
