"""FSDP2's hooks for collectives."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
from torch.autograd import Variable

from . import _library, formats, units
from ._library import ZeroppError
from .collectives import ErrorFeedback, Replica, all_gather, all_reduce, reduce_scatter, replica_gather, update_gather
from .communicator import Communicator, all_gather_single, enabled, reduce_scatter_single, require_agreement, volume
from .report import Changes


class ComparedSteps:
    """Has `communicator` compare one unit's calls in its first `steps` steps."""

    def __init__(self, communicator: Communicator, steps: int):
        self._communicator = communicator
        self._left = steps + 1

    def before_call(self, begins_step: bool) -> None:
        if begins_step and self._left != 0:
            self._left -= 1
        if self._left != 0:
            self._communicator.compare(1)


class ComparedBackward:
    """Compares the reductions of each backward pass at its end: units, sizes, types, and which parameters have gradients. If
    they differ, all ranks raise the same ZeroppError, and the model is unusable. Ranks on which a collective has failed have
    raised before; the others raise when their group notices. `groups` join the ranks as in require_agreement()."""

    def __init__(self, groups: Sequence[dist.ProcessGroup], device: torch.device):
        self._groups = groups
        self._device = device
        self._pass: Optional[int] = None
        self._calls: list[tuple[str, Any]] = []

    def before_call(self, unit: str, group: Any, gradients: torch.Tensor) -> None:
        call = (f"{unit}, {gradients.numel()} elements of {gradients.dtype}", group)
        if (current := torch._C._current_graph_task_id()) == -1:
            # Schedules of pipelines reduce after backward, where autograd takes no callback.
            self._compare([call])
            return
        # A reentrant checkpoint's backward passes have separate callbacks.
        if self._pass != current:
            self._pass, self._calls = current, []
            Variable._execution_engine.queue_callback(functools.partial(self._compare, self._calls))
        self._calls.append(call)

    def _compare(self, calls: Sequence[tuple[str, Any]]) -> None:
        self._pass = None
        given = {
            f"reduction {number}": f"{words}, gradients of parameters {units.with_gradients(group)}"
            for number, (words, group) in enumerate(calls)
        }
        # Without an all-reduce in this pass, HSDP's replicas do not meet: they may have other numbers of microbatches.
        groups = self._groups if any(group.all_reduce_grads for _, group in calls) else self._groups[:1]
        require_agreement(groups, self._device, "backward", given)


class Feedback:
    """Error feedback of one unit's reduction, or none if not `wanted`."""

    def __init__(self, communicator: Communicator, wanted: bool, of_all_reduce: bool):
        self._communicator = communicator
        self._wanted = wanted
        self._of_all_reduce = of_all_reduce
        self._kept: Optional[ErrorFeedback] = None
        self._of: Any = None

    def of(
        self, gradients: torch.Tensor, hops: formats.GradientFormats, trained: Sequence[Any]
    ) -> Optional[ErrorFeedback]:
        """Feedback for `gradients`, those of the parameters `trained`. None if one has no gradient in this step: residuals would
        be misplaced. For other parameters than in the last call, also of as many elements, residuals start anew."""
        shards = 1 if self._of_all_reduce else self._communicator.size
        if not self._wanted or gradients.numel() != units.shard_elements(trained) * shards:
            return None
        if self._kept is None or self._of != (trained, gradients.dtype):
            self._kept = ErrorFeedback(self._communicator, gradients, *hops, of_all_reduce=self._of_all_reduce)
            self._of = trained, gradients.dtype
        return self._kept

    def reset(self) -> None:
        if self._kept is not None:
            self._kept.reset()


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


class AllGather:
    """FSDP2's hook for the all-gather of a unit's parameters."""

    def __init__(self, communicator: Communicator, weights: str, name: str, compared_steps: int):
        self._communicator = communicator
        self._weights = weights
        self._name = name
        self._compared = ComparedSteps(communicator, compared_steps)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Optional[dist.Work]:
        # torch gathers within hpZ's smaller groups, which hold weights that are already quantized. It also gathers the bytes
        # of parameters of several types.
        of_all = group.size() == self._communicator.size
        if not enabled() or not of_all or output_tensor.dtype not in _library.ELEMENTS:
            self.by_torch(of_all)
            return all_gather_single(output_tensor, input_tensor, group=group, async_op=async_op)
        self._compared.before_call(begins_step=not _in_backward())
        self.gather(output_tensor.view(-1), input_tensor.view(-1))
        return None

    def by_torch(self, of_all: bool) -> None:
        """Is told of a gather that torch makes: of all ranks, or of hpZ's smaller groups."""

    def gather(self, full: torch.Tensor, shard: torch.Tensor) -> None:
        weights = formats.LOSSLESS[full.dtype] if self._weights == formats.OWN_TYPE else self._weights
        all_gather(self._communicator, shard, full, weights, name=self._name)


# Integers of the bits of an element, by its size in bytes.
_BITS = {2: torch.int16, 4: torch.int32}


class KeepingGather(AllGather):
    """FSDP2's all-gather hook for weights that every node keeps as forward gathered them, divided over its ranks.

    A forward sends nothing between nodes if no rank's shard has changed since the last one: each rank compares its shard
    with a copy, bit by bit. Backward has the weights of the unit's last forward, although an optimizer has stepped since.
    Plain FSDP2's backward would have the new weights.
    """

    def __init__(self, communicator: Communicator, weights: str, name: str, compared_steps: int):
        super().__init__(communicator, weights, name, compared_steps)
        # Elements and type of the full weights.
        self._of: Any = None
        # Bits of this rank's shard at the last change.
        self._sent: Optional[torch.Tensor] = None
        self._whole = 0
        self.changes = Changes(name, weights == formats.EXACT)
        # True if the unit's last forward has gathered what nodes keep.
        self._is_current = False

    def refresh(self) -> None:
        """Has the next forward send whole weights."""
        self._sent, self._is_current = None, False

    def by_torch(self, of_all: bool) -> None:
        self._is_current = self._is_current and not of_all

    def gather(self, full: torch.Tensor, shard: torch.Tensor) -> None:
        if self._of != (full.numel(), full.dtype):
            self._of = full.numel(), full.dtype
            self.refresh()
            self.keep(full)
            places, rank = self._communicator.places, self._communicator.rank
            self._whole = volume("zeropp_all_gather", [formats.LOSSLESS[full.dtype]], full.numel(), places, rank).between_nodes
        # Backward needs the weights that forward gathered, also to recompute a checkpoint's forward.
        if self._is_current and _in_backward():
            self.gather_kept(full)
            return
        # The shard may lie in `full`, which the gather overwrites.
        own = shard.view(_BITS[shard.itemsize]).clone()
        before, sent = self._sent, self._communicator.traffic().between_nodes
        changed = own.numel() if before is None else int(torch.count_nonzero(own ^ before))
        # After a failure, the shard counts as changed.
        self._sent = None
        self.gather_changes(full, shard, before is None or changed > 0)
        self._sent, self._is_current = own, True
        sent = self._communicator.traffic().between_nodes - sent
        if before is not None and (changed > 0 or sent > 0):
            self._count(own, changed, sent)

    def _count(self, shard: torch.Tensor, changed: int, sent: int) -> None:
        """Adds an update to `changes`: `changed` elements of `shard`, and `sent` bytes between nodes."""
        self.changes.updates += 1
        self.changes.elements += shard.numel()
        self.changes.changed += changed
        self.changes.sent += sent
        self.changes.whole += self._whole
        self.changes.whole_elements += self._whole // shard.itemsize

    def keep(self, full: torch.Tensor) -> None:
        """Prepares to keep weights of the size and type of `full`."""

    def gather_kept(self, full: torch.Tensor) -> None:
        """Writes what nodes keep into `full`, by intra-node messages."""
        raise NotImplementedError

    def gather_changes(self, full: torch.Tensor, shard: torch.Tensor, changed: bool) -> None:
        """Brings what nodes keep up to date if any rank's `shard` has `changed`, and writes it into `full`."""
        raise NotImplementedError


class KeptGather(KeepingGather):
    """Sends whole weights after a change, in the format `weights`. `node` joins the ranks of this rank's node."""

    def __init__(
        self, communicator: Communicator, process_group: dist.ProcessGroup, node: Communicator, weights: str, name: str,
        compared_steps: int,
    ):
        super().__init__(communicator, weights, name, compared_steps)
        self._process_group = process_group
        self._node = node
        self._kept: Optional[torch.Tensor] = None

    def gather_kept(self, full: torch.Tensor) -> None:
        all_gather(self._node, self._kept, full, formats.LOSSLESS[full.dtype], name=self._name)

    def gather_changes(self, full: torch.Tensor, shard: torch.Tensor, changed: bool) -> None:
        any_changed = torch.tensor(int(changed), device=full.device)
        dist.all_reduce(any_changed, dist.ReduceOp.MAX, group=self._process_group)
        if not any_changed:
            self.gather_kept(full)
            return
        AllGather.gather(self, full, shard)
        part = -(-full.numel() // self._node.size)
        self._kept = full[part * self._node.rank :][:part].clone()


class UpdateGather(KeepingGather):
    """Sends the changes of weights, in the format `weights` of differences."""

    _replica: Optional[Replica] = None

    def keep(self, full: torch.Tensor) -> None:
        self._replica = Replica(self._communicator, full)

    def refresh(self) -> None:
        super().refresh()
        if self._replica is not None:
            self._replica.invalidate()

    def gather_kept(self, full: torch.Tensor) -> None:
        replica_gather(self._communicator, full, self._replica, name=self._name)

    def gather_changes(self, full: torch.Tensor, shard: torch.Tensor, changed: bool) -> None:
        update_gather(self._communicator, shard, full, self._replica, self._weights, changed=changed, name=self._name)


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
        compared_backward: Optional[ComparedBackward],
    ):
        self._communicator = communicator
        self._name = name
        self._compared = ComparedSteps(communicator, compared_steps)
        self._compared_backward = compared_backward
        self._gradients = gradients
        self._group = group
        self.feedback = Feedback(communicator, error_feedback, of_all_reduce=False)

    allocate = AllGather.allocate

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
        hops = self._gradients.of(input_tensor.dtype)
        if self._compared_backward is not None:
            self._compared_backward.before_call(self._name, self._group, input_tensor)
        self._compared.before_call(begins_step=True)
        reduce_scatter(
            self._communicator, input_tensor.view(-1), output_tensor.view(-1), *hops, mean=op == dist.ReduceOp.AVG,
            feedback=self.feedback.of(input_tensor, hops, units.trained(self._group)), name=self._name,
        )
        return None


class ReplicaReduce:
    """FSDP2's hook for the all-reduce between replicas: the sum if FSDP has a factor to divide it by, or else the mean."""

    def __init__(
        self,
        communicator: Communicator,
        process_group: dist.ProcessGroup,
        hops: formats.GradientFormats,
        error_feedback: bool,
        group: Any,
        name: str,
        compared_steps: int,
        compared_backward: Optional[ComparedBackward],
    ):
        self._communicator = communicator
        self._process_group = process_group
        self._hops = hops
        self._group = group
        self._name = name
        self._compared = ComparedSteps(communicator, compared_steps)
        self._compared_backward = compared_backward
        self.feedback = Feedback(communicator, error_feedback, of_all_reduce=True)
        self._partial: Optional[torch.Tensor] = None

    def forget(self) -> None:
        """Forgets the gradients of microbatches without an all-reduce, as reset_iter_state() of torch does."""
        self._partial = None

    def __call__(self, gradients: torch.Tensor) -> None:
        # FSDP allocates gradients on the stream of reduce-scatters, and keeps them only for its own all-reduce.
        if gradients.is_cuda:
            gradients.record_stream(torch.cuda.current_stream(gradients.device))
        # After set_requires_all_reduce(False), FSDP keeps gradients of this rank's replica until a later step, and so does this.
        if not self._group.all_reduce_grads:
            # In fp32, and rounded once: a sum of ones in bf16 ends at 256.
            if self._partial is None:
                self._partial = torch.zeros_like(gradients, dtype=torch.float32)
            self._partial += gradients
            gradients.zero_()
            return
        if self._partial is not None:
            gradients.copy_(self._partial.add_(gradients))
            self._partial = None
        mean = self._group.gradient_divide_factor is None
        if mean and (gradients.dtype == torch.float16 or not enabled()):
            # A sum in fp16 overflows where the mean does not.
            gradients /= self._communicator.size
            mean = False
        if not enabled():
            dist.all_reduce(gradients, group=self._process_group)
            return
        hops = self._hops.of(gradients.dtype)
        feedback = self.feedback.of(gradients, hops, units.trained(self._group))
        if self._compared_backward is not None:
            self._compared_backward.before_call(f"{self._name} between replicas", self._group, gradients)
        self._compared.before_call(begins_step=True)
        all_reduce(self._communicator, gradients, *hops, mean=mean, feedback=feedback, name=self._name)
