"""FSDP2 with zeropp's collectives."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import Any, Optional

import torch.distributed as dist
from torch import nn

from . import formats, units
from ._library import ZeroppError
from .communicator import Traffic, require_agreement
from .estimate import Machine
from .installation import Installation
from .report import Report, Row


def _require_agreement(sharded: Sequence[units.Unit], given: dict[str, object]) -> None:
    """Compares apply()'s arguments, `given`, and unit names over all ranks that share units or replicas of them. If they
    differ, all raise ZeroppError."""
    names: dict[tuple[int, ...], list[str]] = {}
    groups: dict[tuple[int, ...], Any] = {}
    for unit in sharded:
        for group in unit.groups:
            process_groups = [g for g in (units.shard_group(group), units.replica_group(group)) if g is not None]
            ranks = tuple(dist.get_process_group_ranks(process_groups[0]))
            if max(g.size() for g in process_groups) > 1:
                names.setdefault(ranks, []).append(unit.name)
                groups.setdefault(ranks, (process_groups, group.device))
    for ranks, (process_groups, device) in groups.items():
        require_agreement(process_groups, device, "apply", {**given, "units": names[ranks]})


def _require_replicas(sharded: Sequence[units.Unit], ranks_per_node: int) -> None:
    """Raises the same ZeroppError on all ranks of an HSDP mesh unless zeropp can reduce between its replicas."""
    for unit in sharded:
        for group in unit.groups:
            if not units.is_hybrid(group):
                continue
            if units.has_all_reduce_hook(group):
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


def _matches(pattern: str, name: str) -> bool:
    name = name or "(root)"
    return pattern in name or fnmatch.fnmatch(name, pattern)


def _left_out(unit: units.Unit, exclude: Sequence[str]) -> str:
    """The reason to leave `unit` to torch; empty if there is none."""
    if any(_matches(pattern, name) for pattern in exclude for name in unit.names):
        return "excluded"
    groups = unit.groups
    if len(groups) > 1:
        return "parameters on several meshes; give each mesh a unit of its own"
    shard_group = units.shard_group(groups[0])
    if shard_group is None:
        return "replicated, not sharded"
    if shard_group.size() == 1:
        return "one rank"
    if units.gathers_itself(groups[0]):
        return "its parameters say themselves what is gathered (fsdp_pre_all_gather)"
    return ""


def _no_replicas(reasons: Sequence[tuple[str, str]]) -> ZeroppError:
    return ZeroppError(
        "apply: expected units on a mesh of replicas and shards (HSDP) for the argument replicas, given none: "
        + "; ".join(f"{unit} {reason}".strip() for unit, reason in reasons)
    )


def apply(
    model: nn.Module,
    *,
    ranks_per_node: int,
    weights: Optional[str] = "int8:256:fp16",
    gradients: Optional[formats.Gradients] = ("int8:256:bf16", "int4:128:signed:bf16"),
    preset: Optional[str] = None,
    differences: Optional[str] = None,
    replicas: Optional[formats.Gradients] = None,
    error_feedback: bool = False,
    keep_frozen: bool = False,
    exclude: Sequence[str] = (),
    machine: Machine = Machine(),
    compared_steps: int = 2,
) -> Report:
    """Has the FSDP2 units of `model` gather weights and reduce gradients through zeropp. Collective: all ranks call it,
    after fully_shard and before the first step.

    Rank r of the world is on node r // ranks_per_node. `weights` and `gradients` are formats; None leaves a direction to
    torch. `preset`, a key of PRESETS, replaces all formats. `differences`, a format, replaces `weights`: every node keeps
    the weights that forward gathered, divided over its ranks. Forward then sends their changes between nodes, and backward
    sends nothing between nodes. `replicas`, a key of PRESETS or formats of gradients, is for HSDP: zeropp then makes the
    all-reduce between replicas, in place of torch. `error_feedback` acts in steps in which all trained parameters of a unit
    have gradients. `keep_frozen` is for units without trained parameters, as the base of LoRA: every node keeps the weights
    that forward gathered, in their own type, and they cross nodes again only after a change. A unit is left out if a pattern of
    `exclude` occurs in its name, or matches it by fnmatch; the name of the model itself is "(root)".

    The report gives advice if nothing is gained on `machine`. Ranks raise the same ZeroppError if their arguments differ,
    or their calls in a unit's first `compared_steps` steps; later calls are not compared.
    """
    sharded = units.units_of(model)
    if not sharded:
        raise ZeroppError("apply: expected a model with FSDP2 units (fully_shard), given one without")
    _require_agreement(
        sharded,
        {
            "ranks_per_node": ranks_per_node, "weights": weights, "gradients": gradients, "preset": preset,
            "differences": differences, "replicas": replicas, "error_feedback": error_feedback, "keep_frozen": keep_frozen,
            "exclude": exclude, "compared_steps": compared_steps,
        },
    )
    if getattr(model, "_zeropp_replicas", False):
        raise ZeroppError("apply: expected one call with the argument replicas for a model, given another call after it")
    if ranks_per_node < 1:
        raise ZeroppError(f"apply: expected ranks_per_node from 1, given {ranks_per_node}")
    if isinstance(exclude, str):
        raise ZeroppError(f'apply: expected a sequence of patterns as exclude, given "{exclude}"')
    chosen = formats.chosen(weights, gradients, preset, differences)
    between_replicas = formats.replica_formats(replicas)
    if between_replicas is not None:
        _require_replicas(sharded, ranks_per_node)
        # Before anything is installed.
        if not any(units.is_hybrid(unit.groups[0]) for unit in sharded if not _left_out(unit, exclude)):
            raise _no_replicas([(unit.name, _left_out(unit, exclude)) for unit in sharded])
    installed = Installation(ranks_per_node, chosen, between_replicas, error_feedback, keep_frozen, compared_steps)
    report = Report([], [])
    for unit in sharded:
        row = Row(unit.name, sum(units.elements_of(group) for group in unit.groups))
        report.rows.append(row)
        why = _left_out(unit, exclude)
        if why:
            row.tell("left out: " + why)
        else:
            installed.install(unit.module, unit.groups[0], unit.is_root, row)
    if between_replicas is not None and not installed.reduces_replicas:
        raise _no_replicas([(row.unit, row.note) for row in report.rows])
    report.advice = installed.advice(machine)
    for pattern in exclude:
        if not any(_matches(pattern, name) for unit in sharded for name in unit.names):
            report.advice.append(f'Nothing is excluded by "{pattern}": no unit is called so, and parts of one cannot be left out.')
    model._zeropp_communicators = installed.communicators()
    model._zeropp_replicas = installed.reduces_replicas
    model._zeropp_updates = installed.updates
    return report


def refresh(model: nn.Module) -> None:
    """With differences, has the next forward pass send whole weights. Call it on all ranks after a change of weights other
    than a training step. load_state_dict() of units, or of modules that contain them, does it."""
    updates = getattr(model, "_zeropp_updates", None)
    if updates is None:
        raise ZeroppError("refresh: expected a model that apply() has been called on")
    for update in updates:
        update.refresh()


def stats(model: nn.Module) -> Traffic:
    """Traffic of this rank through the collectives that apply() put into `model`."""
    communicators = getattr(model, "_zeropp_communicators", None)
    if communicators is None:
        raise ZeroppError("stats: expected a model that apply() has been called on")
    return sum((c.traffic() for c in communicators), Traffic())
