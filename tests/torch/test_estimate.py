"""The planner from Python, against the sources' formulas and against what apply() counts."""

import ctypes
import math

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import network, refusals, shard
from torch.distributed.fsdp import MixedPrecisionPolicy
from zeropp_torch import _library

PARAMETERS = 70_000_000_000


def test_the_sources_figures():
    nodes, per_node = 48, 8
    found = zeropp.estimate(PARAMETERS, world_size=nodes * per_node, ranks_per_node=per_node)
    # 3M across nodes become .75M of codes, a node's own part apart; M is 2 bytes for each parameter.
    m = 2 * PARAMETERS / 1e9 * (nodes - 1) / nodes
    assert found.baseline_gb == pytest.approx(3 * m, rel=1e-4)
    assert 0.75 * m < found.compressed_gb < 0.77 * m, "scales take some"
    assert found.reduction_factor == pytest.approx(found.baseline_gb / found.compressed_gb)
    assert found.savings_percent == pytest.approx(100 - 100 / found.reduction_factor)
    assert found.gains and "All of ZeRO++ saves" in found.advice and found.step_ms < found.baseline_step_ms
    # 16 bytes of states for each parameter over all ranks, and 2 over a node for hpZ.
    states = 16 * PARAMETERS / 384 / 1e9
    scratch = found.baseline_memory_gb - states
    assert 0 < scratch < 16
    assert found.memory_gb == pytest.approx(states + 2 * PARAMETERS / 8 / 1e9 + scratch, rel=0.1)
    assert "zeropp in groups of 8" in str(found)


def test_parts_of_it_alone():
    def factor(**asked):
        return zeropp.estimate(PARAMETERS, world_size=64, ranks_per_node=8, **asked).reduction_factor

    assert factor(weights=None, gradients=None, secondary=1) == 1.0
    assert factor(weights=None, gradients=None) == pytest.approx(1.5)
    assert factor(weights="int8:256:fp16", gradients=None, secondary=1) == pytest.approx(1.5, rel=0.02)
    assert factor(preset="16bit") == pytest.approx(1.5)
    assert factor(preset="8bit") > 2.9
    assert factor(preset="2bit") == pytest.approx(48 / 4.5, rel=0.01)
    assert zeropp.estimate(1000, world_size=4, ranks_per_node=4).reduction_factor == 1.0
    assert zeropp.estimate(1000, world_size=4, ranks_per_node=2, weights=None, gradients=None).reduction_factor != math.inf


def test_it_advises_against_what_gains_nothing():
    one_node = zeropp.estimate(PARAMETERS, world_size=8, ranks_per_node=8)
    assert not one_node.gains and one_node.advice.startswith("No gain expected on one node")
    small = zeropp.estimate(10_000, world_size=16, ranks_per_node=8, secondary=1)
    assert not small.gains and small.advice.startswith("No gain expected, because at 100 Gbit/s between nodes")
    fast = zeropp.Machine(inter_node_gbit=3200, intra_node_gbit=400, compute_ms=100_000)
    computing = zeropp.estimate(PARAMETERS, world_size=16, ranks_per_node=8, machine=fast)
    assert not computing.gains and "overlaps with computation" in computing.advice


def test_wrong_questions_are_refused():
    def ask(**asked):
        return lambda: zeropp.estimate(**{"model": 1000, "world_size": 4, "ranks_per_node": 2, **asked})

    assert refusals(
        {
            "divide world_size, given 3 and 4": ask(ranks_per_node=3),
            "estimate: expected a model or its number of parameters as a whole number from 1, given 0": ask(model=0),
            "number of parameters as a whole number from 1, given '7B'": ask(model="7B"),
            "estimate: expected world_size as a whole number from 1, given 4.0": ask(world_size=4.0),
            "estimate: expected machine as a Machine, given None": ask(machine=None),
            "estimate: expected plain as a format's name, given None": ask(plain=None),
            "estimate: expected either preset or weights, given both": ask(preset="4bit", weights=None),
            "expected one of lossless, fp32": ask(weights="int3"),
            "estimate: expected formats of gradients with error_feedback": ask(gradients=None, error_feedback=True),
            "secondary group size": ask(secondary=3),
            "secondary as a whole number from 1, given 0": ask(secondary=0),
            "estimate: expected nodes below 2^31, given 4294967297": ask(world_size=2 * (2**32 + 1)),
            "ranks_per_node below 2^31, given 4294967297": ask(world_size=2**32 + 1, ranks_per_node=2**32 + 1),
            "secondary below 2^31, given 4294967296": ask(secondary=2**32),
            "nodes_per_site below 2^31, given 4294967296": ask(nodes_per_site=2**32),
            "parameters below 2^64, given 18446744073709552616": ask(model=2**64 + 1000, units=1),
            "inter_node_gbit as a number above 0, given 0": lambda: zeropp.Machine(inter_node_gbit=0),
            "compute_ms as a number from 0, given nan": lambda: zeropp.Machine(compute_ms=math.nan),
            "inter_node_gbit as a number above 0, given '100'": lambda: zeropp.Machine(inter_node_gbit="100"),
        }
    ) == []


def predicted(tensors=(1 << 20,), **asked):
    """Error text of zeropp_predict, which a program in C calls without this package's checks; empty if there is none."""
    plan = _library.Plan((ctypes.c_size_t * len(tensors))(*tensors), len(tensors), 2, 4)
    plan.plain = plan.plain_gradients = b"bf16"
    plan.weights, plan.intra_node, plan.inter_node = b"int8:256:bf16", b"int8:256:bf16", b"int4:128:signed:bf16"
    plan.intra_node_gbit = plan.inter_node_gbit = 100
    for name, value in asked.items():
        setattr(plan, name, value)
    library = _library.library("cpu")
    failed = library.zeropp_predict(ctypes.byref(plan), ctypes.byref(_library.Prediction())) != _library.SUCCESS
    return library.zeropp_error().decode() if failed else ""


def test_programs_in_c_are_refused_too():
    rate, latency = "expected a number from 1e-06 to 1e+06, given ", "expected a number from 0 to 1e+09, given "
    asked = {
        **{f"inter-node Gbit/s: {rate}{value}": {"inter_node_gbit": float(value)} for value in ("0", "-5", "nan", "inf")},
        f"intra-node Gbit/s: {rate}0": {"intra_node_gbit": 0},
        f"intra-node microseconds: {latency}-1": {"intra_node_us": -1},
        f"inter-node microseconds: {latency}nan": {"inter_node_us": math.nan},
        "codec GB/s: expected a number from 0 to 1e+06, given -1": {"codec_gb": -1},
        "milliseconds of computation: expected a number from 0 to 1e+12, given nan": {"compute_ms": math.nan},
        "GB of memory: expected a number from 0 to 1e+06, given -1": {"memory_gb": -1},
        "GB of other memory: expected fewer than the 30 of a GPU's memory, given 30": {"memory_gb": 30, "other_memory_gb": 30},
        "nodes: expected at most 100000 ranks, given 1000 x 1000": {"nodes": 1000, "ranks_per_node": 1000},
        "two_level: expected at least 1 node of at least 1 rank, given -1 nodes of 4": {"nodes": -1},
        "secondary group size: expected a number of ranks, or 0 for none, given -5": {"secondary_group": -5},
        "tensors: expected 1 to 1000000 tensors, given 0": {"tensors": ()},
        "tensors: expected at least 1 parameter, given 0": {"tensors": (0,)},
        "tensors: expected at most 10000000000000 parameters, given more": {"tensors": (2**63, 2**63)},
    }
    assert {words: predicted(**numbers) for words, numbers in asked.items()} == {words: words for words in asked}
    assert predicted(inter_node_gbit=10) == ""


def of_units(rank, size):
    model = shard(network(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    found = zeropp.estimate(model, world_size=size, ranks_per_node=2, secondary=1)
    report = zeropp.apply(model, ranks_per_node=2)
    # A rank's bytes in every unit, in tens: FSDP pads parameters to whole rows.
    assert found.compressed_gb * 1e9 == pytest.approx(2 * (report.after.inter_node + root_gather(report)), rel=0.1)


def root_gather(report):
    """The root's second gather, which FSDP does not need."""
    (root,) = (row for row in report.rows if row.unit == "(root)")
    return root.elements / dist.get_world_size() * (8 + 16 / 256) / 8


def test_a_models_units_are_what_is_gathered(ranks):
    ranks.run(4, of_units)
