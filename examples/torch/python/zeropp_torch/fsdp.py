"""FSDP2 with zeropp's collectives."""

from __future__ import annotations

import fnmatch
import math
import warnings
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch.distributed as dist
from torch import nn

from . import arguments, formats, units
from ._library import ZeroppError
from .communicator import Places, Traffic, require_agreement, require_places
from .estimate import Machine, predict
from .hooks import Feedback, KeepingGather, ReplicaReduce
from .installation import Installation, remove_hooks
from .report import Changes, Report, Row


def _require_agreement(sharded: Sequence[units.Unit], given: dict[str, object]) -> None:
    """Compares apply()'s arguments, `given`, and unit names over all ranks that share units or replicas of them. If they
    differ, all raise ZeroppError."""
    names: dict[tuple[int, ...], list[str]] = {}
    groups: dict[tuple[int, ...], Any] = {}
    for unit in sharded:
        for group in unit.groups:
            process_groups = [g for g in (units.shard_group(group), units.replica_group(group)) if g is not None]
            ranks = tuple(rank for g in process_groups for rank in dist.get_process_group_ranks(g))
            if max(g.size() for g in process_groups) > 1:
                names.setdefault(ranks, []).append(unit.name)
                groups.setdefault(ranks, (process_groups, group.device))
    # Most ranks first: those of a smaller set that differs would leave the others of a larger one waiting.
    by_ranks = sorted(groups.items(), key=lambda item: -math.prod(g.size() for g in item[1][0]))
    for ranks, (process_groups, device) in by_ranks:
        require_agreement(process_groups, device, "apply", {**given, "units": names[ranks]})


def _require_replicas(sharded: Sequence[units.Unit], ranks_per_node: int) -> None:
    """Raises the same ZeroppError on all ranks of an HSDP mesh unless zeropp can reduce between its replicas."""
    for unit in sharded:
        for group in unit.groups:
            if not isinstance(units.all_reduce_hook(group), (ReplicaReduce, type(None))):
                raise ZeroppError(
                    f"apply: expected units without an all-reduce hook for the argument replicas, given one on {unit.name}"
                )
            # Rows and columns on other numbers of nodes make other process groups, which torch must make on all ranks alike.
            mesh = units.mesh_of(group)
            for ranks in [*mesh.tolist(), *mesh.T.tolist()]:
                nodes = [rank // ranks_per_node for rank in ranks]
                if len({nodes.count(node) for node in nodes}) > 1:
                    raise ZeroppError(
                        "apply: expected the same number of ranks on every node, given ranks "
                        f"{ranks} of the mesh on nodes {nodes}"
                    )


def _require_sites(unit: units.Unit, ranks_per_node: int, nodes_per_site: int) -> None:
    """Raises the same ZeroppError on all ranks of the unit's mesh unless ranks that share weights, or replicas of them, are on
    sites of as many nodes each, of as many ranks: on the same number of them in all rows, columns and groups of hpZ."""
    (group, *_) = unit.groups
    rows = units.mesh_of(group)
    kept = units.secondary_size(group)
    for lines in (rows.tolist(), rows.T.tolist(), [part.tolist() for row in rows for part in row.split(kept)]):
        shapes = set()
        for ranks in lines:
            sites = Places.of(ranks, ranks_per_node, nodes_per_site).sites()
            shapes |= {(len(sites), len(site), len(node)) for site in sites for node in site}
        if len(shapes) != 1:
            raise ZeroppError(
                f"apply: expected as many nodes in each site, and as many ranks on each node, given {unit.name} on the ranks "
                f"{lines[:8]} with ranks_per_node {ranks_per_node} and nodes_per_site {nodes_per_site}"
            )


def _matches(pattern: str, name: str) -> bool:
    name = name or "(root)"
    return f".{pattern}." in f".{name}." or fnmatch.fnmatchcase(name, pattern)


# Reasons that need no warning.
_EXCLUDED = "excluded"
_ONE_RANK = "one rank"


def _left_out(unit: units.Unit, exclude: Sequence[str], with_replicas: bool) -> str:
    """The reason to leave `unit` to torch; empty if there is none. `with_replicas` is if replicas have formats."""
    if any(_matches(pattern, name) for pattern in exclude for name in unit.names):
        return _EXCLUDED
    groups = unit.groups
    if len(groups) > 1:
        return "parameters on several meshes; give each mesh a unit of its own"
    if len(units.shard_ranks(groups[0])) == 1:
        if units.replicas_of(groups[0]) == 1:
            return _ONE_RANK
        if not with_replicas:
            return "replicated, not sharded: the argument replicas gives the all-reduce formats"
    if units.gathers_itself(groups[0]):
        return "its parameters say themselves what is gathered (fsdp_pre_all_gather)"
    return ""


def apply(
    model: nn.Module,
    *,
    ranks_per_node: int,
    nodes_per_site: Optional[int] = None,
    weights: Union[str, None, formats.Default] = formats.DEFAULT,
    gradients: Union[formats.Gradients, None, formats.Default] = formats.DEFAULT,
    preset: Optional[str] = None,
    differences: Optional[str] = None,
    replicas: Optional[formats.Gradients] = None,
    error_feedback: bool = False,
    keep_frozen: bool = False,
    keep_weights: bool = False,
    exclude: Sequence[str] = (),
    machine: Machine = Machine(),
    compared_steps: int = 2,
) -> Report:
    """Has the FSDP2 units of `model` gather weights and reduce gradients through zeropp. Collective: all ranks call it
    between steps, after fully_shard. It replaces what an earlier call has set; remove() takes it back.

    Rank r of the world is on node r // ranks_per_node. With `nodes_per_site`, node n is in site n // nodes_per_site:
    collectives take a third hop, between sites, and `gradients` may have a third format for it. `weights` and `gradients` are
    formats, by default those of the preset "4bit"; None leaves a direction to torch. `preset`, a key of PRESETS, has all
    formats. `differences`, a format, replaces `weights`: every node keeps the weights that forward gathered, divided over its
    ranks. Forward then sends their changes between nodes, if there are any, and backward sends nothing between nodes. With
    differences="exact", for weights gathered in 16 bits, every weight has the bits of plain FSDP2. Each change takes
    as many bits as it needs, and the report states the most.
    `replicas`, a key of PRESETS or formats of gradients, is for HSDP and replicate(): zeropp then makes the all-reduce between
    replicas, in place of torch. `error_feedback` acts in steps in which all trained parameters of a unit have gradients. With
    `keep_weights`, every node keeps the weights that forward gathered, divided over its ranks. They cross nodes again only
    after a change: not in later microbatches, in evaluations and in backward. `keep_frozen` does it for units without trained
    parameters, as the base of LoRA, in their own type. A unit is left out if a pattern of `exclude` is one or several
    whole components of its dotted name ("blocks.1" is in "model.blocks.1.mlp", not in "blocks.10"), or matches the name by
    fnmatch ("*norm*"). The name of the model itself is "(root)".

    The report gives advice if nothing is gained on `machine`, and a warning says what else is left to torch. All ranks raise
    the same ZeroppError, with the model unchanged, for wrong arguments or if these differ between ranks. In a unit's first
    `compared_steps` steps, ranks also compare each call before it; in every step, all reductions at the end of backward. With
    `compared_steps` 0, they compare neither.
    """
    arguments.instance("apply", "model", model, nn.Module, "a torch.nn.Module")
    sharded = units.units_of(model)
    if not sharded:
        raise ZeroppError("apply: expected a model with FSDP2 units (fully_shard), given one without")
    _require_agreement(
        sharded,
        {
            "ranks_per_node": ranks_per_node, "nodes_per_site": nodes_per_site, "weights": weights, "gradients": gradients,
            "preset": preset, "differences": differences, "replicas": replicas, "error_feedback": error_feedback,
            "keep_frozen": keep_frozen, "keep_weights": keep_weights,
            # Other types may have no equal words on all ranks.
            "exclude": list(exclude) if isinstance(exclude, (list, tuple)) else type(exclude).__name__,
            "machine": machine, "compared_steps": compared_steps,
        },
    )
    arguments.integer("apply", "ranks_per_node", ranks_per_node, 1)
    arguments.integer("apply", "compared_steps", compared_steps, 0)
    arguments.instance("apply", "error_feedback", error_feedback, bool, "a bool")
    arguments.instance("apply", "keep_frozen", keep_frozen, bool, "a bool")
    arguments.instance("apply", "keep_weights", keep_weights, bool, "a bool")
    arguments.instance("apply", "machine", machine, Machine, "a Machine")
    if isinstance(exclude, str) or not isinstance(exclude, Sequence) or not all(isinstance(p, str) for p in exclude):
        raise ZeroppError(f"apply: expected exclude as a sequence of patterns, given {exclude!r}")
    chosen = formats.chosen("apply", weights, gradients, preset, differences)
    if keep_weights and chosen.weights is None:
        given = "differences, which keep them" if chosen.differences is not None else None
        raise ZeroppError(f"apply: expected a format of weights with keep_weights, given {given}")
    between_replicas = None if replicas is None else formats.gradient_formats(replicas, "replicas")
    if error_feedback and chosen.gradients is None and between_replicas is None:
        raise ZeroppError("apply: expected formats of gradients or replicas with error_feedback, given neither")
    formats.require_sites("apply", nodes_per_site, chosen.gradients, between_replicas)
    left_out = {unit.name: _left_out(unit, exclude, between_replicas is not None) for unit in sharded}
    if between_replicas is not None:
        reducing = [unit for unit in sharded if not left_out[unit.name] and units.replica_group(unit.groups[0]) is not None]
        _require_replicas(reducing, ranks_per_node)
        if not reducing:
            raise ZeroppError(
                "apply: expected units on a mesh with replicas (HSDP, replicate) for the argument replicas, given none: "
                + "; ".join(f"{name} {why}".strip() for name, why in left_out.items())
            )
    # The planner refuses some numbers, and a Communicator some nodes: both before anything is changed.
    predict([1], 1, 1, chosen, 0, False, "fp32", "fp32", machine)
    for unit in sharded:
        if not left_out[unit.name]:
            if nodes_per_site is not None:
                _require_sites(unit, ranks_per_node, nodes_per_site)
            if chosen.differences == formats.EXACT:
                gathered, _ = units.types_of(unit.groups[0])
                formats.require_exact("apply", gathered, unit.name)
            ranks = units.shard_ranks(unit.groups[0])
            require_places(ranks, Places.of(ranks, ranks_per_node, nodes_per_site))
    _remove(model, sharded)
    installed = Installation(
        ranks_per_node, nodes_per_site, chosen, between_replicas, error_feedback, keep_frozen, keep_weights, compared_steps
    )
    report = Report([], [])
    try:
        for unit in sharded:
            row = Row(unit.name, sum(units.elements_of(group) for group in unit.groups))
            report.rows.append(row)
            why = left_out[unit.name]
            if why in (_EXCLUDED, _ONE_RANK):
                row.tell("left out: " + why)
            elif why:
                installed.leave(row, "left out: " + why)
            else:
                installed.install(unit.module, unit.groups[0], unit.is_root, row)
        report.advice = installed.advice(machine)
    except BaseException:
        _remove(model, sharded)
        raise
    model._zeropp = installed
    if not installed.communicators():
        report.advice.append("Nothing goes through zeropp: all units are left out.")
    for pattern in exclude:
        if not any(_matches(pattern, name) for unit in sharded for name in unit.names):
            report.advice.append(f'Nothing is excluded by "{pattern}": no unit is called so, and parts of one cannot be left out.')
            warnings.warn(f"apply: {report.advice[-1]}", stacklevel=2)
    if installed.left_to_torch:
        warnings.warn("apply: left to torch: " + "; ".join(installed.left_to_torch), stacklevel=2)
    return report


def _remove(model: nn.Module, sharded: Sequence[units.Unit]) -> None:
    for unit in sharded:
        for group in unit.groups:
            remove_hooks(group)
    # Not `del`: a compiled model keeps attributes in the model inside.
    model._zeropp = None


def remove(model: nn.Module) -> None:
    """Gives the FSDP2 units of `model` back the collectives that they had before apply(). Call it on all ranks, between steps.
    Settings that have been changed after apply(), as by set_gradient_divide_factor(), stay."""
    _installation("remove", model)
    _remove(model, units.units_of(model))


def _installation(function: str, model: nn.Module) -> Installation:
    installed = getattr(model, "_zeropp", None)
    if installed is None:
        raise ZeroppError(f"{function}: expected a model that apply() has been called on")
    return installed


def _kept_by(model: nn.Module) -> list[Union[KeepingGather, Feedback]]:
    """What the hooks of `model`'s units keep, also those of a later apply() to a part of it."""
    groups = [group for unit in units.units_of(model) for group in unit.groups]
    return [kept for group in groups for kept in getattr(group, "_zeropp_kept", [])]


def refresh(model: nn.Module) -> None:
    """With differences or kept weights, has the next forward pass send whole weights. Call it on all ranks after a change of
    weights other than a training step. load_state_dict() of units, or of modules that contain them, does it."""
    _installation("refresh", model)
    for kept in _kept_by(model):
        if isinstance(kept, KeepingGather):
            kept.refresh()


def reset_feedback(model: nn.Module) -> None:
    """With error feedback, forgets the errors of past reductions. Call it on all ranks after a step that is skipped because
    its gradients were too large: their errors would be added to the next gradients. So would those of a backward pass that
    has failed. load_state_dict() of units, or of modules that contain them, does it."""
    _installation("reset_feedback", model)
    for kept in _kept_by(model):
        if isinstance(kept, Feedback):
            kept.reset()


def stats(model: nn.Module) -> Traffic:
    """Traffic of this rank through the collectives that the last apply() put into `model`."""
    return sum((c.traffic() for c in _installation("stats", model).communicators()), Traffic())


def changes(model: nn.Module) -> Changes:
    """The share of this rank's weights that change between two forward passes, and the bits that an update takes, by units with
    differences or kept weights, since apply(). print() makes a table with advice. Not collective. Raises ZeroppError if no unit has
    them."""
    _installation("changes", model)
    parts = [kept.changes for kept in _kept_by(model) if isinstance(kept, KeepingGather)]
    if not parts:
        raise ZeroppError("changes: expected differences or kept weights, given none")
    return Changes.of(parts)
