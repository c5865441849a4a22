"""DistributedDataParallel with zeropp's all-reduce."""

# No `from __future__ import annotations`: DDP checks the annotations of the hook as types, not as strings.

import concurrent.futures
import gc
import threading
from collections.abc import Callable
from typing import Any, Optional, Union

import torch
import torch.distributed as dist
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from . import arguments, formats
from ._library import ZeroppError
from .collectives import all_reduce
from .communicator import Communicator, Places, Traffic, enabled, new_group, require_agreement, volume

# Number of host threads that take a bucket's pieces in turn. Each has separate connections: one connection fills only a part of a
# link with a long delay. One piece moves within nodes while another crosses them.
LANES = 4
# In bytes of messages, not of the gradient: over a slow link, each piece takes the link's latency anew.
PIECE_BYTES = 2 << 20
# With one hop, nothing overlaps: larger pieces start fewer messages.
PIECE_BYTES_OF_ONE_HOP = 8 << 20
# Elements of the largest block of a format.
BLOCK = 256


def _message_bytes(hops: formats.GradientFormats, elements: int) -> int:
    """Size of a message of `elements` elements on the slowest links, as a rank sends to one of another site in a
    reduce-scatter."""
    return volume("zeropp_reduce_scatter", hops, 2 * elements, Places([0, 1], 1), 0).inter_site


def _ranks_of_models(parameter: torch.nn.Parameter) -> list[list[int]]:
    """Ranks of each DDP model that has `parameter`: of several, if it was wrapped again. DDP tells a hook neither its model nor
    its process group. Groups that have been destroyed are left out."""
    models = [
        known for known in gc.get_objects()
        if issubclass(type(known), DistributedDataParallel) and any(own is parameter for own in known.parameters())
    ]
    groups = dist.distributed_c10d._world.pg_map
    return [dist.get_process_group_ranks(m.process_group) for m in models if m.process_group in groups]


class _Reducer:
    """Reduces one model's buckets. It has separate process groups, because DDP may use the model's meanwhile."""

    def __init__(
        self,
        process_group: Optional[dist.ProcessGroup],
        ranks_per_node: int,
        nodes_per_site: Optional[int],
        gradients: Any,
        preset: Optional[str],
        device: torch.device,
        compared_steps: int,
    ):
        arguments.instance("ddp_hook", "process_group", process_group, (dist.ProcessGroup, type(None)), "a group or None")
        parent = process_group if process_group is not None else dist.group.WORLD
        members = range(dist.get_world_size(parent))
        lanes = LANES if device.type == "cpu" else 1
        given = {
            "gradients": gradients, "preset": preset, "ranks_per_node": ranks_per_node, "nodes_per_site": nodes_per_site,
            "compared_steps": compared_steps,
        }
        require_agreement([parent], device, "ddp_hook", given)
        arguments.integer("ddp_hook", "ranks_per_node", ranks_per_node, 1)
        arguments.integer("ddp_hook", "compared_steps", compared_steps, 0)
        self._ranks = dist.get_process_group_ranks(parent)
        if gradients is formats.DEFAULT or preset is not None:
            gradients = formats.chosen("ddp_hook", formats.DEFAULT, gradients, "8bit" if preset is None else preset, None).gradients
        self._hops = formats.gradient_formats(gradients)
        formats.require_sites("ddp_hook", nodes_per_site, self._hops)
        places = Places.of(self._ranks, ranks_per_node, nodes_per_site)
        self._piece_bytes = PIECE_BYTES_OF_ONE_HOP if places.hops() < 2 else PIECE_BYTES
        self._groups = [new_group(parent, members, device) for _ in range(lanes)]
        self._lanes = [
            Communicator(group, nodes=places.nodes, nodes_per_site=nodes_per_site, device=device, compared_calls=0)
            for group in self._groups
        ]
        # One thread for each lane keeps its pieces in order, which must be equal on all ranks.
        self._threads = [concurrent.futures.ThreadPoolExecutor(1, "zeropp-ddp") for _ in self._lanes]
        self._running: list[concurrent.futures.Future[None]] = []
        self._turn = 0
        self._steps_to_compare = compared_steps + 1
        self._knows_group = False

    def traffic(self) -> Traffic:
        return sum((lane.traffic() for lane in self._lanes), Traffic())

    def begin(self, bucket: dist.GradBucket) -> bool:
        """True if calls of this bucket are compared. The first bucket begins a step. Raises ZeroppError, before anything is
        sent, unless the model has the hook's ranks."""
        if not self._knows_group:
            of_models = _ranks_of_models(bucket.parameters()[0])
            if of_models and self._ranks not in of_models:
                raise ZeroppError(
                    f"ddp_hook: expected the process group of the model, of ranks {of_models[0]}, given one of ranks "
                    f"{self._ranks}; pass the model's as the hook's first argument"
                )
            self._knows_group = True
        if bucket.index() == 0 and self._steps_to_compare != 0:
            self._steps_to_compare -= 1
        return self._steps_to_compare != 0

    def reduce(self, lane: int, gradient: torch.Tensor, ours: bool, compared: bool, bucket: int) -> None:
        # As DDP itself: a sum in fp16 overflows where the mean does not.
        divided = gradient.dtype == torch.float16 or not ours
        if divided:
            gradient /= self._lanes[lane].size
        if ours:
            hops = self._hops.of(gradient.dtype)
            self._lanes[lane].compare(int(compared))
            all_reduce(self._lanes[lane], gradient, *hops, mean=not divided, name=f"bucket {bucket}")
        else:
            dist.all_reduce(gradient, group=self._groups[lane])

    def _piece_elements(self, gradient: torch.Tensor) -> int:
        """Elements of each piece but the last: whole blocks for every rank, so that a lossless piece is sent without a copy."""
        whole = self._lanes[0].size * BLOCK
        sent = _message_bytes(self._hops.of(gradient.dtype), gradient.numel()) if enabled() else gradient.nbytes
        pieces = max(1, sent // self._piece_bytes)
        return max(1, -(-gradient.numel() // (pieces * whole))) * whole

    def start(self, bucket: dist.GradBucket, future: torch.futures.Future[torch.Tensor]) -> None:
        """Reduces the bucket on the lanes' threads. Completes `future` with the last piece, also after a failure."""
        if bucket.index() == 0:
            self._running.clear()
            self._turn = 0
        compared = self.begin(bucket)
        gradient = bucket.buffer()
        started = []
        for piece in gradient.split(self._piece_elements(gradient)):
            lane = self._turn % LANES
            self._turn += 1
            started.append(self._threads[lane].submit(self.reduce, lane, piece, enabled(), compared, bucket.index()))
        self._running += started
        left = threading.Semaphore(len(started) - 1)

        def complete(_: Any) -> None:
            if not left.acquire(blocking=False):  # the last piece
                future.set_result(gradient)

        for piece in started:
            piece.add_done_callback(complete)
        if torch._C._current_graph_task_id() == -1:
            # Within model.join(), a rank that has run out of inputs.
            self._raise_failures()
        else:
            # For every bucket, because each backward pass of a reentrant checkpoint has separate callbacks.
            Variable._execution_engine.queue_callback(self._raise_failures)

    def _raise_failures(self) -> None:
        # DDP cannot take a Python exception: it gets a gradient in any case, and the exception ends backward here.
        concurrent.futures.wait(self._running)
        for piece in self._running:
            piece.result()


def ddp_hook(
    process_group: Optional[dist.ProcessGroup] = None,
    *,
    ranks_per_node: int,
    nodes_per_site: Optional[int] = None,
    gradients: Union[formats.Gradients, formats.Default] = formats.DEFAULT,
    preset: Optional[str] = None,
    device: Union[torch.device, str] = "cpu",
    compared_steps: int = 2,
) -> Callable[[Any, dist.GradBucket], torch.futures.Future[torch.Tensor]]:
    """A hook for one DistributedDataParallel model: `model.register_comm_hook(None, ddp_hook(ranks_per_node=8))`.

    Collective. `process_group` is the model's, by default all ranks; `device` that of its parameters. Nodes are in sites of
    `nodes_per_site`, as in apply(). Formats are `gradients` or those of `preset`, a key of PRESETS, by default "8bit". All
    ranks raise the same ZeroppError if their arguments differ, or their calls in the first `compared_steps` steps.

    Gradients become means over all ranks, with equal bits on every rank. Ranks that have run out of inputs count too.
    Buckets are reduced during backward, on the host by threads, on a GPU on the current stream. Backward raises failures;
    on a rank without inputs, the exit of `model.join()` does. The model's reducer is unusable then. `hook.traffic()` returns
    this rank's Traffic.
    """
    device = torch.device(device)
    reducer = _Reducer(process_group, ranks_per_node, nodes_per_site, gradients, preset, device, compared_steps)

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
