"""Predictions of a training step's bytes, memory and time: zeropp-plan from Python."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Optional, Union

from torch import nn

from . import _library, arguments, formats
from ._library import ZeroppError
from .units import elements_of, units_of


@dataclasses.dataclass(frozen=True)
class Machine:
    """The machine that a prediction is for.

    `intra_node_`: link of a rank within its node; `inter_node_`: of a whole node to others; `inter_site_`: of a whole site to
    others, if there are sites. `_gbit` is Gbit/s each way, `_us` a message's latency. `codec_gb` is GB/s that a rank's codec
    reads and writes. `compute_ms` is the computation of a step, `memory_gb` a GPU's memory, `other_memory_gb` its other
    contents; 0 if unknown.
    """

    intra_node_gbit: float = 2400
    inter_node_gbit: float = 100
    intra_node_us: float = 5
    inter_node_us: float = 20
    codec_gb: float = 1000
    compute_ms: float = 0
    memory_gb: float = 0
    other_memory_gb: float = 0
    inter_site_gbit: float = 10
    inter_site_us: float = 1000

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            rate = name.endswith("_gbit")
            number = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not number or not (0 <= value < math.inf) or (rate and value == 0):
                raise ZeroppError(f"Machine: expected {name} as a number {'above' if rate else 'from'} 0, given {value!r}")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Predictions for a training step: of ZeRO-3 (`baseline_`), and of ZeRO++ with the chosen formats.

    `_gb`: 10^9 bytes that a node sends to others. `_step_ms`: a step without overlap of communication and computation;
    `_overlapped_ms`: with full overlap. `_memory_gb`: a rank's states (16 bytes for each parameter), secondary
    shards, residuals and scratch.
    """

    baseline_gb: float
    compressed_gb: float
    baseline_step_ms: float
    step_ms: float
    baseline_overlapped_ms: float
    overlapped_ms: float
    baseline_memory_gb: float
    memory_gb: float
    #: Also `_gb`, that a site sends to others: of ZeRO-3, and of ZeRO++. 0 without sites.
    baseline_inter_site_gb: float
    inter_site_gb: float
    #: True if a step is at least 5 % shorter, without overlap or with it.
    gains: bool
    #: The effect on the step, in a sentence.
    advice: str
    #: The report of zeropp-plan: each part of ZeRO++ by itself, memory, hpZ groups that fit.
    report: str

    @property
    def reduction_factor(self) -> float:
        """`baseline_gb` over `compressed_gb`; 1 if both are 0."""
        if self.compressed_gb == 0:
            return 1.0 if self.baseline_gb == 0 else math.inf
        return self.baseline_gb / self.compressed_gb

    @property
    def savings_percent(self) -> float:
        return 100 * (1 - self.compressed_gb / self.baseline_gb) if self.baseline_gb else 0.0

    def __str__(self) -> str:
        return self.report.rstrip()


def predict(
    tensors: Sequence[int],
    nodes: int,
    ranks_per_node: int,
    chosen: formats.Chosen,
    secondary: int,
    error_feedback: bool,
    plain: str,
    plain_gradients: str,
    machine: Machine,
    nodes_per_site: Optional[int] = None,
) -> Estimate:
    """Predicts a step of a model. `tensors` are sizes in elements, each gathered separately. `secondary` 0 is no hpZ."""
    # ctypes would cut larger numbers without a word.
    limited = {"nodes": nodes, "ranks_per_node": ranks_per_node, "secondary": secondary, "nodes_per_site": nodes_per_site or 0}
    for name, value, bits in [*((name, value, 31) for name, value in limited.items()), ("parameters", max(tensors), 64)]:
        if value >> bits:
            raise ZeroppError(f"estimate: expected {name} below 2^{bits}, given {value}")
    loaded = _library.library("cpu")
    weights = plain if chosen.weights in (None, formats.OWN_TYPE) else chosen.weights
    gradients = chosen.gradients
    if gradients is None or gradients.intra_node == formats.OWN_TYPE:
        gradients = formats.GradientFormats(plain_gradients, plain_gradients)
    plan = _library.Plan(
        (ctypes.c_size_t * len(tensors))(*tensors), len(tensors), nodes, ranks_per_node, secondary,
        *map(_library.text_of, (plain, plain_gradients, weights)),
        _library.text_of(chosen.differences) if chosen.differences is not None else None,
        *gradients.for_library(), int(error_feedback),
        *(getattr(machine, name) for name in _library.MACHINE),
    )
    predicted, inter_site = _library.Prediction(), (ctypes.c_uint64 * 2)()
    status = loaded.zeropp_predict_in_sites(
        ctypes.byref(plan), nodes_per_site or 0, machine.inter_site_gbit, machine.inter_site_us, ctypes.byref(predicted),
        inter_site,
    )
    _library.require_success(loaded, status)
    of_site = ranks_per_node * (nodes_per_site or nodes) / 1e9
    before, after = predicted.before, predicted.after
    return Estimate(
        baseline_gb=before.inter_node * ranks_per_node / 1e9,
        compressed_gb=after.inter_node * ranks_per_node / 1e9,
        baseline_step_ms=before.seconds * 1e3,
        step_ms=after.seconds * 1e3,
        baseline_overlapped_ms=before.overlapped_seconds * 1e3,
        overlapped_ms=after.overlapped_seconds * 1e3,
        baseline_memory_gb=before.memory / 1e9,
        memory_gb=after.memory / 1e9,
        baseline_inter_site_gb=inter_site[0] * of_site,
        inter_site_gb=inter_site[1] * of_site,
        gains=bool(predicted.gains),
        advice=predicted.advice.decode(),
        report=predicted.report.decode(),
    )


def estimate(
    model: Union[nn.Module, int],
    *,
    world_size: int,
    ranks_per_node: int,
    nodes_per_site: Optional[int] = None,
    weights: Union[str, None, formats.Default] = formats.DEFAULT,
    gradients: Union[formats.Gradients, None, formats.Default] = formats.DEFAULT,
    preset: Optional[str] = None,
    differences: Optional[str] = None,
    secondary: Optional[int] = None,
    error_feedback: bool = False,
    plain: str = "bf16",
    units: int = 64,
    machine: Machine = Machine(),
) -> Estimate:
    """Predicts a step of `model`, or of a number of parameters, without communication.

    Formats and `nodes_per_site` are as in apply(). `secondary` is hpZ's group size, by default a node; 1 is no hpZ. `plain` is
    ZeRO-3's format. A model's FSDP2 units are gathered separately, or `units` equal parts if there are none.
    """
    for name, value in (("world_size", world_size), ("ranks_per_node", ranks_per_node), ("units", units)):
        arguments.integer("estimate", name, value, 1)
    if world_size % ranks_per_node != 0:
        raise ZeroppError(
            f"estimate: expected ranks_per_node to divide world_size, given {ranks_per_node} and {world_size}"
        )
    group = ranks_per_node if secondary is None else arguments.integer("estimate", "secondary", secondary, 1)
    arguments.instance("estimate", "error_feedback", error_feedback, bool, "a bool")
    arguments.instance("estimate", "plain", plain, str, "a format's name")
    arguments.instance("estimate", "machine", machine, Machine, "a Machine")
    sizes: list[int] = []
    if isinstance(model, nn.Module):
        sizes = [elements_of(group) for unit in units_of(model) for group in unit.groups]
    parameters = sum(p.numel() for p in model.parameters()) if isinstance(model, nn.Module) else model
    total = arguments.integer("estimate", "a model or its number of parameters", parameters, 1)
    if not sizes:
        parts = min(units, total)
        sizes = [total // parts + (part < total % parts) for part in range(parts)]
    chosen = formats.chosen("estimate", weights, gradients, preset, differences)
    formats.require_sites("estimate", nodes_per_site, chosen.gradients)
    if error_feedback and chosen.gradients is None:
        raise ZeroppError("estimate: expected formats of gradients with error_feedback, given none")
    return predict(
        sizes, world_size // ranks_per_node, ranks_per_node, chosen, group if group > 1 else 0, error_feedback, plain, plain,
        machine, nodes_per_site,
    )
