"""FSDP2's hooks for collectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist

from . import _library, formats, units
from ._library import ZeroppError
from .collectives import ErrorFeedback, Replica, all_gather, all_reduce, reduce_scatter, replica_gather, update_gather
from .communicator import Communicator, all_gather_single, enabled, reduce_scatter_single


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


class _Feedback:
    """Error feedback of one unit's reduction, or none if not `wanted`."""

    def __init__(self, communicator: Communicator, hops: formats.GradientFormats, wanted: bool, of_all_reduce: bool):
        self._communicator = communicator
        self._hops = hops
        self._wanted = wanted
        self._of_all_reduce = of_all_reduce
        self._kept: Optional[ErrorFeedback] = None
        self._elements = 0

    def of(self, gradients: torch.Tensor, all_elements: int) -> Optional[ErrorFeedback]:
        """Feedback for `gradients`. None if these are not `all_elements`: a parameter has no gradient in this step, and
        residuals would be misplaced."""
        if not self._wanted or gradients.numel() != all_elements:
            return None
        if self._kept is None or self._elements != all_elements:
            self._kept = ErrorFeedback(self._communicator, gradients, *self._hops, of_all_reduce=self._of_all_reduce)
            self._elements = all_elements
        return self._kept


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


class AllGather:
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


class UpdateGather(AllGather):
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
        if not (self._is_current and _in_backward()) and self._update(shard, full, group):
            self._is_current = True
        else:
            replica_gather(self._communicator, full, self._replica, name=self._name)
        return None

    def _update(self, shard: torch.Tensor, full: torch.Tensor, group: dist.ProcessGroup) -> bool:
        """Updates the replica, and writes it into `full`. False, equal on all ranks, if the replica holds these weights
        already and nothing is done."""
        update_gather(self._communicator, shard, full, self._replica, self._differences, name=self._name)
        return True


class KeptGather(UpdateGather):
    """FSDP2's all-gather hook for frozen weights. They cross nodes in their own type, once and after each change. Each
    forward compares this rank's shard with its copy; one byte from each rank, not counted in the traffic, says the result.
    On a GPU, this waits for the stream."""

    def __init__(self, communicator: Communicator, name: str, compared_steps: int):
        # Weights are sent whole, so the format of differences is never used.
        super().__init__(communicator, formats.PRESETS["2bit"]["differences"], name, compared_steps)
        self._sent: Optional[torch.Tensor] = None

    def refresh(self) -> None:
        super().refresh()
        self._sent = None

    def _update(self, shard: torch.Tensor, full: torch.Tensor, group: dist.ProcessGroup) -> bool:
        bits = shard.view(torch.uint8)
        changed = not self._is_current or self._sent is None or not torch.equal(bits, self._sent)
        any_changed = torch.tensor([changed], dtype=torch.uint8, device=shard.device)
        dist.all_reduce(any_changed, dist.ReduceOp.MAX, group=group)
        if not any_changed.item():
            return False
        self._sent = None
        self._replica.invalidate()
        super()._update(shard, full, group)
        self._sent = bits.clone()
        return True


class ReduceScatter:
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
        self._group = group
        self._feedback = _Feedback(communicator, gradients, error_feedback, of_all_reduce=False)

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
        feedback = self._feedback.of(input_tensor, units.shard_elements(units.trained(self._group)) * self._communicator.size)
        self._compared.before_call(begins_step=True)
        reduce_scatter(
            self._communicator, input_tensor.view(-1), output_tensor.view(-1), *self._gradients,
            mean=op == dist.ReduceOp.AVG, feedback=feedback, name=self._name,
        )
        return None


class ReplicaReduce:
    """FSDP2's hook for the all-reduce between HSDP's replicas. It sums, because FSDP divides."""

    def __init__(
        self,
        communicator: Communicator,
        process_group: dist.ProcessGroup,
        hops: formats.GradientFormats,
        error_feedback: bool,
        group: Any,
        name: str,
        compared_steps: int,
    ):
        self._communicator = communicator
        self._process_group = process_group
        self._hops = hops
        self._group = group
        self._name = name
        self._compared = _ComparedSteps(communicator, compared_steps)
        self._feedback = _Feedback(communicator, hops, error_feedback, of_all_reduce=True)
        self._partial: Optional[torch.Tensor] = None

    def __call__(self, gradients: torch.Tensor) -> None:
        # FSDP allocates gradients on the stream of reduce-scatters, and keeps them only for its own all-reduce.
        if gradients.is_cuda:
            gradients.record_stream(torch.cuda.current_stream(gradients.device))
        # After set_requires_all_reduce(False), FSDP keeps gradients of this rank's replica until a later step, and so does this.
        if not self._group.all_reduce_grads:
            self._partial = gradients.clone() if self._partial is None else self._partial.add_(gradients)
            gradients.zero_()
            return
        if self._partial is not None:
            gradients += self._partial
            self._partial = None
        if not enabled():
            dist.all_reduce(gradients, group=self._process_group)
            return
        feedback = self._feedback.of(gradients, units.shard_elements(units.trained(self._group)))
        self._compared.before_call(begins_step=True)
        all_reduce(self._communicator, gradients, *self._hops, feedback=feedback, name=self._name)
