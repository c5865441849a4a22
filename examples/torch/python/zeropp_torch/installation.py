"""Puts hooks into FSDP2's units, and reports formats and traffic."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Optional

import torch
import torch.distributed as dist
import torch.distributed.fsdp as torch_fsdp

from . import formats, units
from .communicator import Communicator, Places, Traffic, new_group, volume
from .estimate import Machine, predict
from .hooks import (
    AllGather, ComparedBackward, Feedback, KeepingGather, KeptGather, ReduceScatter, ReplicaReduce, UpdateGather
)
from .report import Row


@dataclasses.dataclass
class _Moved:
    """Communication of a set of ranks: plain FSDP2's formats, elements of each unit, and whether any unit uses hpZ."""

    plain: str
    plain_gradients: str
    elements: dict[str, int]
    secondary: bool


def _counted(parameters: Sequence[Any], dtype: Optional[torch.dtype], ranks: int) -> tuple[str, int]:
    """The format in which `ranks` ranks move `parameters`, and its elements. Of types that are left to torch, None for several,
    the bytes are counted as fp32."""
    if dtype in formats.LOSSLESS:
        return formats.LOSSLESS[dtype], units.shard_elements(parameters) * ranks
    return "fp32", -(-units.shard_bytes(parameters, dtype) // 4) * ranks


class Installation:
    """Puts hooks into units. Each set of ranks has two communicators, because gathers and reductions may run at the same time
    and need separate groups and scratch. HSDP's sets of replicas have one."""

    def __init__(
        self,
        ranks_per_node: int,
        nodes_per_site: Optional[int],
        chosen: formats.Chosen,
        replicas: Optional[formats.GradientFormats],
        error_feedback: bool,
        keep_frozen: bool,
        keep_weights: bool,
        compared_steps: int,
    ):
        self._ranks_per_node = ranks_per_node
        self._nodes_per_site = nodes_per_site
        self._chosen = chosen
        self._replicas = replicas
        self._error_feedback = error_feedback
        self._keep_frozen = keep_frozen
        self._keep_weights = keep_weights
        self._compared_steps = compared_steps
        self._communicators: dict[tuple[int, ...], tuple[Communicator, Communicator]] = {}
        self._in_nodes: dict[tuple[int, ...], Communicator] = {}
        self._between_replicas: dict[tuple[int, ...], Communicator] = {}
        self._compared_backwards: dict[tuple[int, ...], ComparedBackward] = {}
        self.left_to_torch: list[str] = []
        # Sets of ranks whose steps the planner does not know, and advice on them.
        self._unplanned: set[tuple[int, ...]] = set()
        self._advice: list[str] = []
        self._moved: dict[tuple[int, ...], _Moved] = {}

    def communicators(self) -> list[Communicator]:
        return [
            *(c for pair in self._communicators.values() for c in pair), *self._in_nodes.values(),
            *self._between_replicas.values(),
        ]

    def _places_of(self, ranks: Sequence[int]) -> Places:
        return Places.of(ranks, self._ranks_per_node, self._nodes_per_site)

    def _communicator(self, group: dist.ProcessGroup, device: torch.device) -> Communicator:
        places = self._places_of(dist.get_process_group_ranks(group))
        return Communicator(
            group, nodes=places.nodes, nodes_per_site=places.nodes_per_site, device=device, compared_calls=0
        )

    def _in_node(self, ranks: tuple[int, ...], group: Any) -> Communicator:
        """Of this rank's node, among `ranks`, which share the weights of `group`."""
        if ranks not in self._in_nodes:
            nodes, shard_group = self._places_of(ranks).nodes, units.shard_group(group)
            own = nodes[dist.get_rank(shard_group)]
            members = [member for member, node in enumerate(nodes) if node == own]
            self._in_nodes[ranks] = Communicator(
                new_group(shard_group, members, group.device), device=group.device, compared_calls=0
            )
        return self._in_nodes[ranks]

    def install(self, module: torch_fsdp.FSDPModule, group: Any, is_root: bool, row: Row) -> None:
        """Puts hooks into one unit, until remove_hooks(group). Records formats, traffic and notes in `row`."""
        shard_group = units.shard_group(group)
        ranks = tuple(units.shard_ranks(group))
        if len(ranks) > 1 and ranks not in self._communicators:
            self._communicators[ranks] = (
                self._communicator(shard_group, group.device), self._communicator(shard_group, group.device)
            )
        before = units.settings_of(group)
        group._zeropp_undo = contextlib.ExitStack()
        group._zeropp_kept = []
        try:
            gathered, reduced = units.types_of(group)
            if len(ranks) > 1:
                self._install_gather(module, group, is_root, row, ranks, gathered)
                if reduced in formats.LOSSLESS or units.trained(group):
                    self._install_reduce(module, group, row, ranks, reduced)
                else:
                    row.tell("frozen; torch reduces its gradients if it is trained later")
            if units.replica_group(group) is not None:
                self._install_replicas(module, group, row, ranks, reduced)
        finally:
            group._zeropp_undo.callback(units.restore, group, before, units.settings_of(group))

    def leave(self, row: Row, words: str, *types: Optional[torch.dtype]) -> None:
        """Notes in `row` what is left to torch though the caller has not asked for it: tensors of a type, or of several (None)."""
        words += "".join("several types" if dtype is None else str(dtype) for dtype in types)
        row.tell(words)
        self.left_to_torch.append(f"{row.unit}: {words}")

    def _compared_backward_of(self, group: Any) -> Optional[ComparedBackward]:
        """The comparison that all units on the mesh of `group` share; None without compared steps."""
        if self._compared_steps == 0:
            return None
        groups = [g for g in (units.shard_group(group), units.replica_group(group)) if g is not None]
        ranks = tuple(rank for g in groups for rank in dist.get_process_group_ranks(g))
        return self._compared_backwards.setdefault(ranks, ComparedBackward(groups, group.device))

    def _install_gather(
        self, module: torch_fsdp.FSDPModule, group: Any, is_root: bool, row: Row, ranks: tuple[int, ...],
        gathered: Optional[torch.dtype],
    ) -> None:
        communicator, _ = self._communicators[ranks]
        plain, elements = _counted(group.fsdp_params, gathered, len(ranks))
        after_forward = group.post_forward_mesh_info
        # By default FSDP keeps the root's weights between forward and backward.
        kept = after_forward is None or (is_root and module._get_fsdp_state()._auto_reshard_after_forward)
        secondary: Optional[Places] = None
        if not kept and after_forward != group.mesh_info:
            secondary = self._places_of(dist.get_process_group_ranks(after_forward.shard_process_group))
            if len(set(secondary.nodes)) > 1:
                row.tell("hpZ's groups cross nodes")
        if gathered in formats.LOSSLESS:
            moved = self._moved.setdefault(ranks, _Moved(plain, plain, {}, False))
            moved.elements[row.unit] = row.elements
            moved.secondary = moved.secondary or secondary is not None
        places, rank = communicator.places, communicator.rank
        before = after = volume("zeropp_all_gather", [plain], elements, places, rank)
        # Of forward in a further microbatch, and of backward; None is as `after`.
        again: Optional[Traffic] = None
        backward: Optional[Traffic] = None
        keeps_frozen = self._keep_frozen and not units.trained(group)
        if gathered not in formats.LOSSLESS:
            self.leave(row, "weights are gathered as they are, ", gathered)
        elif keeps_frozen or self._keep_weights or self._chosen.differences is not None:
            gather: KeepingGather
            if keeps_frozen or self._keep_weights:
                weights = formats.OWN_TYPE if keeps_frozen else self._chosen.weights
                node = self._in_node(ranks, group)
                sent = plain if weights == formats.OWN_TYPE else weights
                row.weights = f"{sent}, kept on each node"
                again = backward = volume("zeropp_all_gather", [plain], elements, node.places, node.rank)
                if units.trained(group):
                    after = volume("zeropp_all_gather", [sent], elements, places, rank)
                gather = KeptGather(communicator, units.shard_group(group), node, weights, row.unit, self._compared_steps)
            else:
                if self._chosen.differences == formats.EXACT:
                    # The volume below is the most that can be sent.
                    row.weights = "exact differences, at most"
                else:
                    row.weights = "differences in " + self._chosen.differences
                again = backward = volume("zeropp_replica_gather", [plain], elements, places, rank)
                if units.trained(group):
                    after = volume("zeropp_update_gather", [self._chosen.differences, plain], elements, places, rank)
                gather = UpdateGather(communicator, self._chosen.differences, row.unit, self._compared_steps)
            if not units.trained(group):
                # Frozen weights do not change.
                after = again
            group._zeropp_kept.append(gather)
            module.set_custom_all_gather(gather)
            self._on_load(group, gather.refresh)
            if secondary is not None:
                row.tell("hpZ's groups keep the weights a second time; leave secondary out")
        elif self._chosen.weights is not None:
            row.weights = plain if self._chosen.weights == formats.OWN_TYPE else self._chosen.weights
            after = volume("zeropp_all_gather", [row.weights], elements, places, rank)
            module.set_custom_all_gather(AllGather(communicator, self._chosen.weights, row.unit, self._compared_steps))
        if secondary is not None:
            own = dist.get_rank(after_forward.shard_process_group)
            backward = volume("zeropp_all_gather", [plain], elements, secondary, own)
        row.before += before if kept else before + before
        in_backward = Traffic() if kept else after if backward is None else backward
        row.after += after + in_backward
        row.microbatch += (after if again is None else again) + in_backward

    def _install_reduce(
        self, module: torch_fsdp.FSDPModule, group: Any, row: Row, ranks: tuple[int, ...], reduced: Optional[torch.dtype]
    ) -> None:
        _, communicator = self._communicators[ranks]
        own, elements = _counted(units.trained(group), reduced, len(ranks))
        if reduced not in formats.LOSSLESS:
            self.leave(row, "gradients are reduced as they are, ", reduced)
        elif ranks in self._moved:
            self._moved[ranks].plain_gradients = own
        places, rank = communicator.places, communicator.rank
        before = after = volume("zeropp_reduce_scatter", [own, own], elements, places, rank)
        if self._chosen.gradients is not None and reduced in formats.LOSSLESS:
            hops = self._chosen.gradients.of(reduced)
            row.gradients = str(hops)
            after = volume("zeropp_reduce_scatter", hops, elements, places, rank)
            # FSDP divides by its own factor, so zeropp only sums.
            module.set_force_sum_reduction_for_comms(True)
            hook = ReduceScatter(
                communicator, self._chosen.gradients, self._error_feedback, group, row.unit, self._compared_steps,
                self._compared_backward_of(group),
            )
            module.set_custom_reduce_scatter(hook)
            self._keep_feedback(group, hook.feedback)
        row.before += before
        row.after += after
        row.microbatch += after

    def _install_replicas(
        self,
        module: torch_fsdp.FSDPModule,
        group: Any,
        row: Row,
        shard_ranks: tuple[int, ...],
        reduced: Optional[torch.dtype],
    ) -> None:
        if reduced not in formats.LOSSLESS:
            row.tell("the all-reduce between replicas stays torch's")
            return
        if reduced != torch.float32 and self._replicas is None:
            self._advise(
                f"After set_requires_all_reduce(False), torch sums microbatches in {reduced}, the type of the reduction. The "
                "argument replicas has them summed in fp32, as MixedPrecisionPolicy(reduce_dtype=torch.float32) does."
            )
        process_group = units.replica_group(group)
        ranks = tuple(dist.get_process_group_ranks(process_group))
        if len(ranks) == 1:
            row.tell("one replica: nothing is reduced between replicas")
            if self._replicas is not None:
                self._advise("With one replica, the argument replicas has no effect.")
            return
        places, rank = self._places_of(ranks), dist.get_rank(process_group)
        elements = units.shard_elements(units.trained(group))
        own = formats.LOSSLESS[reduced]
        row.replicas_before = row.replicas_after = volume(
            "zeropp_all_reduce", [own, own], elements, places, rank, two_shot=True
        )
        if self._replicas is None:
            row.tell("the all-reduce between replicas stays torch's")
            if len(set(places.nodes)) > 1:
                self._unplanned.add(shard_ranks)
                self._advise(
                    "The all-reduce between replicas crosses nodes, and stays torch's: the argument replicas gives it formats."
                )
        else:
            hops = self._replicas.of(reduced)
            row.replicas = str(hops)
            row.tell(f"with set_requires_all_reduce(False), {4 * elements} bytes of sums of microbatches in fp32")
            row.replicas_after = volume("zeropp_all_reduce", hops, elements, places, rank, two_shot=self._error_feedback)
            if ranks not in self._between_replicas:
                self._between_replicas[ranks] = self._communicator(process_group, group.device)
            self._unplanned.add(shard_ranks)
            hook = ReplicaReduce(
                self._between_replicas[ranks], process_group, self._replicas, self._error_feedback, group, row.unit,
                self._compared_steps, self._compared_backward_of(group),
            )
            units.reduce_replicas_by(hook, module, group)
            units.call_after_reset(group, hook.forget, group._zeropp_undo)
            self._keep_feedback(group, hook.feedback)
        row.before += row.replicas_before
        row.after += row.replicas_after
        row.microbatch += row.replicas_after

    def _on_load(self, group: Any, call: Callable[[], None]) -> None:
        """Has load_state_dict() of each module of a unit end in `call`."""
        for module in group.modules:
            handle = module.register_load_state_dict_post_hook(lambda _module, _keys: call())
            group._zeropp_undo.callback(handle.remove)

    def _keep_feedback(self, group: Any, feedback: Feedback) -> None:
        group._zeropp_kept.append(feedback)
        self._on_load(group, feedback.reset)

    def _advise(self, sentence: str) -> None:
        if sentence not in self._advice:
            self._advice.append(sentence)

    def advice(self, machine: Machine) -> list[str]:
        """Sentences on sets of ranks, as on those that gain nothing on `machine`."""
        for ranks, moved in self._moved.items():
            places = self._places_of(ranks)
            nodes, sites = places.nodes, places.sites()
            per_node = nodes.count(nodes[0])
            # The C interface plans nodes of equal size.
            if ranks in self._unplanned or any(nodes.count(node) != per_node for node in nodes):
                continue
            predicted = predict(
                list(moved.elements.values()), len(nodes) // per_node, per_node, self._chosen, per_node if moved.secondary else 0,
                self._error_feedback, moved.plain, moved.plain_gradients, machine, len(sites[0]),
            )
            if not predicted.gains:
                of_units = f"{', '.join(moved.elements)}: " if len(self._moved) > 1 else ""
                self._advise(of_units + predicted.advice)
        return self._advice


def remove_hooks(group: Any) -> None:
    """Takes zeropp's hooks out of a unit's `group`, if there are any."""
    group.__dict__.pop("_zeropp_undo", contextlib.ExitStack()).close()
    group.__dict__.pop("_zeropp_kept", None)
