"""HSDP with zeropp's all-reduce between replicas beside HSDP as it is."""

import contextlib

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import (
    Given, as_torch_sums, assert_same, batch, drawn, loss_of, network, plain_and_ours, refusals, shard, train,
    whole_parameters, words_of,
)
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy
from torch.distributed.tensor import Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

LOSSLESS = {"preset": "lossless", "replicas": "lossless"}
INT8, INT4 = "int8:256:bf16", "int4:128:signed:bf16"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def mesh_of(replicas, size):
    return init_device_mesh("cpu", (replicas, size // replicas), mesh_dim_names=("replicate", "shard"))


def sharded(replicas, size, make=network, **arguments):
    """An HSDP model. torch sums and divides as it does for custom collectives."""
    return as_torch_sums(shard(make(), mesh=mesh_of(replicas, size), **arguments))


@contextlib.contextmanager
def all_reduces_of_torch():
    """Sizes of the tensors that torch itself all-reduces meanwhile."""
    sizes = []
    original = dist.all_reduce
    dist.all_reduce = lambda tensor, *a, **k: (sizes.append(tensor.numel()), original(tensor, *a, **k))[1]
    try:
        yield sizes
    finally:
        dist.all_reduce = original


def lossless(rank, size, replicas, per_node, exact, sharding=None, each=None):
    (plain, ours) = (sharded(replicas, size, **(sharding or {})) for _ in range(2))
    zeropp.apply(ours, ranks_per_node=per_node, **LOSSLESS)
    results = [(train(model, rank, steps=4, each=each), whole_parameters(model)) for model in (plain, ours)]
    (plain_losses, plain), (our_losses, ours) = results
    if exact:
        assert plain_losses == our_losses
        assert_same(plain, ours)
    else:
        assert_same(plain, ours, **CLOSE)


@pytest.mark.parametrize("per_node", [1, 2, 4])
def test_lossless_is_plain_hsdp_to_the_bit_where_sums_have_one_order(ranks, per_node):
    ranks.run(4, lossless, 2, per_node, True)


@pytest.mark.parametrize("replicas, per_node", [(2, 3), (3, 2)])
def test_lossless_is_plain_hsdp_within_rounding(ranks, replicas, per_node):
    ranks.run(6, lossless, replicas, per_node, False)


@pytest.mark.parametrize("reduction", [torch.bfloat16, torch.float16])
def test_lossless_in_sixteen_bits_is_plain_hsdp_to_the_bit(ranks, reduction):
    ranks.run(4, lossless, 2, 2, True, {"mp_policy": MixedPrecisionPolicy(reduce_dtype=reduction)})


def clips(model, step):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    model.set_reshard_after_forward(step % 2 == 0)


def test_clipped_gradients_are_those_of_plain_hsdp(ranks):
    ranks.run(4, lossless, 2, 2, True, None, clips)


def test_one_replica_with_hpz(ranks):
    ranks.run(4, lossless, 1, 2, False, {"secondary": 2})


def kept_after_forward(rank, size):
    """By units: whether FSDP keeps weights in groups after forward, where hpZ's groups have all ranks that share the weights."""
    model = shard(network(), mesh=mesh_of(2, size), secondary=size // 2)
    zeropp.apply(model, ranks_per_node=2, **LOSSLESS)
    return [unit.groups[0]._use_post_forward_mesh for unit in zeropp.units.units_of(model)]


def test_groups_of_all_ranks_keep_nothing(ranks):
    assert ranks.run(4, kept_after_forward) == 4 * [4 * [False]]


def given(copies, size, n, **arguments):
    """A model of one parameter, in `copies` replicas. Weights and the reduction in a replica are lossless."""
    model = zeropp.fully_shard(Given(n), mesh=mesh_of(copies, size))
    report = zeropp.apply(model, weights="lossless", gradients="lossless", **arguments)
    return model, report


def reduced(model, gradient):
    """The gradient that one step leaves."""
    model.zero_grad()
    model(gradient).backward()
    return model.weight.grad.full_tensor().double()


def quantized(rank, size, replicas, per_node, n, formats, step):
    """Error bound and error of a mean over all ranks. The reference is a sum in double precision."""
    model, report = given(replicas, size, n, ranks_per_node=per_node, replicas=formats)
    with all_reduces_of_torch() as torchs:
        ours = reduced(model, drawn(n, rank))
    assert torchs == [], "torch makes no second reduction"
    gradients = [drawn(n, r).double() for r in range(size)]
    shards = size // replicas
    sums = [sum(gradients[r * shards : (r + 1) * shards]) for r in range(replicas)]
    # Each replica's sum is quantized once, then the sum of these: each with an error of at most a step.
    bound = step * (sum(s.abs().max() for s in sums) + sum(sums).abs().max()) / size
    error = ours - sum(gradients) / size
    assert 0 < error.abs().max() <= bound, (error.abs().max(), bound)
    (row,) = report.rows
    sent = zeropp.stats(model)
    assert (sent.intra_node, sent.inter_node) == (row.after.intra_node, row.after.inter_node)
    assert row.replicas_after.bytes < row.replicas_before.bytes / (3 if n > 100000 else 1)
    text = str(report)
    assert row.replicas in text and "bytes to replicas, before" in text and str(row.replicas_after.bytes) in text
    return float(error.norm() / (sum(gradients) / size).norm())


# The large tensor of three replicas goes two-shot, the others one-shot.
@pytest.mark.parametrize("size, replicas, per_node, n", [(4, 2, 2, 500000), (6, 3, 2, 500000), (6, 3, 2, 40000)])
@pytest.mark.parametrize(
    "formats, step, error",
    # A step is 2/254 of a block's largest value in 8 bits and 1/8 in 4; half a step is lost. The errors of Gaussian values
    # follow from blocks' largest values of about 3 standard deviations, and from one or two encodings.
    [(INT8, 1 / 127, 0.012), (INT4, 1 / 8, 0.16)],
)
def test_gradients_are_within_the_steps_of_their_formats(ranks, size, replicas, per_node, n, formats, step, error):
    errors = ranks.run(size, quantized, replicas, per_node, n, formats, step)
    assert error / 4 < max(errors) < error and min(errors) == max(errors), errors


FORMATS = [
    {"preset": "4bit", "replicas": "8bit"},
    {"preset": "4bit", "replicas": INT4, "error_feedback": True},
    {"preset": "2bit", "replicas": "2bit", "error_feedback": True},
    {"weights": None, "gradients": None, "replicas": "8bit"},
]


def trained(rank, size):
    *results, _, _, _, _ = plain_and_ours(rank, lambda: sharded(2, size), size // 2, *FORMATS)
    return [losses for losses, _ in results]


def test_trainings_are_those_of_plain_hsdp(ranks):
    for plain, *of_formats in ranks.run(4, trained):
        for ours, formats in zip(of_formats, FORMATS, strict=True):
            assert ours[-1] < ours[0] and abs(ours[-1] / plain[-1] - 1) < 0.02, (formats, plain, ours)


def mean_over_steps(rank, size, feedback, n=5000, steps=16):
    model, report = given(2, size, n, ranks_per_node=2, replicas=INT4, error_feedback=feedback)
    mean = sum(reduced(model, drawn(n, rank)) for _ in range(steps)) / steps
    sent = zeropp.stats(model)
    assert (sent.intra_node, sent.inter_node) == (steps * report.after.intra_node, steps * report.after.inter_node)
    exact = sum(drawn(n, r).double() for r in range(size)) / size
    return float((mean - exact).norm() / exact.norm())


def test_error_feedback_makes_the_mean_over_steps_exact(ranks):
    (without, *_), (with_feedback, *_) = (ranks.run(4, mean_over_steps, feedback) for feedback in (False, True))
    assert with_feedback < without / 5, (with_feedback, without)


def accumulated(rank, size):
    plain, ours = (sharded(2, size) for _ in range(2))
    zeropp.apply(ours, ranks_per_node=2, **LOSSLESS)
    # Replicas meet in the last microbatch alone, and may have other numbers of them.
    last = 2 + rank // 2
    for step in range(2):
        for micro in range(last + 1):
            for model in (plain, ours):
                model.set_requires_all_reduce(micro == last)
                before = zeropp.stats(ours)
                loss_of(model, batch(4 * step + micro, rank)).backward()
            assert ((zeropp.stats(ours) - before).inter_node > 0) == (micro == last), "only replicas are on several nodes"
        assert_same(*({n: p.grad.full_tensor() for n, p in model.named_parameters()} for model in (plain, ours)))


def test_accumulation_without_the_all_reduce(ranks):
    ranks.run(4, accumulated)


def reset_after_a_microbatch(rank, size):
    plain, ours = (sharded(2, size) for _ in range(2))
    zeropp.apply(ours, ranks_per_node=2, **LOSSLESS)
    for model in (plain, ours):
        model.set_requires_all_reduce(False)
        loss_of(model, batch(0, rank)).backward()
        model.reset_iter_state()
        model.zero_grad()
        model.set_requires_all_reduce(True)
        loss_of(model, batch(1, rank)).backward()
    assert_same(*({n: p.grad.full_tensor() for n, p in model.named_parameters()} for model in (plain, ours)))
    zeropp.remove(ours)
    assert not any("_reset_iter_state" in vars(group) for unit in zeropp.units.units_of(ours) for group in unit.groups)


@pytest.mark.skipif(not hasattr(FSDPModule, "reset_iter_state"), reason="torch has it from 2.13 on")
def test_a_reset_forgets_microbatches(ranks):
    ranks.run(4, reset_after_a_microbatch)


def microbatches_of_ones(rank, size, replicas):
    """Of gradients of 256 and of eight ones, in bf16: 264, where each sum in bf16 is 256 again."""
    policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16)
    model = zeropp.fully_shard(Given(10), mesh=mesh_of(replicas, size), mp_policy=policy)
    report = zeropp.apply(model, ranks_per_node=1, **LOSSLESS)
    assert f"{4 * (10 * replicas // size)} bytes of sums of microbatches in fp32" in str(report) and report.advice == []
    for micro in range(9):
        model.set_requires_all_reduce(micro == 8)
        model(torch.full((10,), 256.0 if micro == 0 else 1.0)).backward()
    assert torch.equal(model.weight.grad.full_tensor(), torch.full((10,), 264.0))


def test_sums_of_microbatches_are_rounded_once(ranks):
    ranks.run(2, microbatches_of_ones, 2)
    ranks.run(4, microbatches_of_ones, 2)


def large_in_fp16(rank, size):
    """Gradients whose mean is finite in fp16, and whose sum on a node is not."""
    for n in (10, 500000):
        model = zeropp.fully_shard(Given(n).half(), mesh=mesh_of(size, size))
        zeropp.apply(model, ranks_per_node=2, **LOSSLESS)
        data_parallel = DistributedDataParallel(Given(n).half())
        data_parallel.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, preset="lossless"))
        for ours, gradient in ((model, lambda: model.weight.grad.to_local()), (data_parallel, lambda: data_parallel.module.weight.grad)):
            ours(torch.full((n,), 40000.0, dtype=torch.float16)).backward()
            assert torch.equal(gradient(), torch.full((n,), 40000.0, dtype=torch.float16)), (n, gradient())


def test_means_in_fp16_do_not_overflow_before_they_must(ranks):
    ranks.run(4, large_in_fp16)


def without_shards(rank, size):
    """replicate() and a mesh of (n, 1): gradients go through the all-reduce, and nothing else is sent."""

    def replicated(make=network):
        model = make()
        for part in (*model.blocks, model):
            replicate(part, mesh=init_device_mesh("cpu", (size,), mesh_dim_names=("replicate",)))
        return as_torch_sums(model)

    for make in (replicated, lambda: sharded(size, size)):
        plain, lossless, quantized = make(), make(), make()
        with pytest.warns(UserWarning, match="replicated, not sharded: the argument replicas gives the all-reduce formats"):
            zeropp.apply(plain, ranks_per_node=1)
        zeropp.apply(lossless, ranks_per_node=1, **LOSSLESS)
        report = zeropp.apply(quantized, ranks_per_node=1, preset="16bit", replicas="8bit")
        plain_losses = train(plain, rank, steps=3)
        assert train(lossless, rank, steps=3) == plain_losses
        assert_same(whole_parameters(plain), whole_parameters(lossless))
        assert train(quantized, rank, steps=3) == pytest.approx(plain_losses, rel=0.02)
        sent = zeropp.stats(quantized)
        assert sent.inter_node == 3 * report.after.inter_node > 0 and report.after.inter_node < report.before.inter_node / 2
        assert {(row.weights, row.gradients) for row in report.rows} == {("-", "-")}
        with zeropp.disabled():
            losses = [loss_of(model, batch(9, rank)) for model in (plain, lossless)]
            [loss.backward() for loss in losses]
        assert_same(*({n: p.grad for n, p in model.named_parameters()} for model in (plain, lossless)))
        zeropp.remove(lossless)
        assert train(lossless, rank, steps=1) == train(plain, rank, steps=1)
    # FSDP divides by the caller's factor, and once.
    divided(rank, size, False)


def test_replicate_and_meshes_without_shards(ranks):
    ranks.run(2, without_shards)


def divided(rank, size, before):
    model = zeropp.fully_shard(Given(100), mesh=mesh_of(2, size))
    if before:
        model.set_gradient_divide_factor(7.0)
    zeropp.apply(model, ranks_per_node=size // 2, **LOSSLESS)
    if not before:
        model.set_gradient_divide_factor(7.0)
    torch.testing.assert_close(
        reduced(model, drawn(100, rank)), sum(drawn(100, r).double() for r in range(size)) / 7
    )


@pytest.mark.parametrize("before", [False, True])
def test_a_divide_factor_of_the_caller_stays(ranks, before):
    ranks.run(4, divided, before)


def saved(rank, size):
    model = sharded(2, size)
    zeropp.apply(model, ranks_per_node=2, preset="4bit", replicas="4bit")
    train(model, rank, steps=2)
    state = get_model_state_dict(model)
    assert all(t.placements == (Replicate(), Shard(0)) for t in state.values())
    copies = [None] * size
    dist.all_gather_object(copies, {name: t.full_tensor() for name, t in state.items()})
    for copy in copies:
        assert_same(copy, whole_parameters(model))
    plain = sharded(2, size)
    set_model_state_dict(plain, state)
    assert_same(whole_parameters(plain), whole_parameters(model))


def test_checkpoints_are_those_of_hsdp_and_equal_on_all_ranks(ranks):
    ranks.run(4, saved)


def without_ours(rank, size):
    plain, ours = (sharded(2, size) for _ in range(2))
    zeropp.apply(ours, ranks_per_node=2, preset="4bit", replicas="4bit")
    with zeropp.disabled():
        losses = train(ours, rank)
    assert losses == train(plain, rank) and zeropp.stats(ours).calls == 0
    assert_same(whole_parameters(plain), whole_parameters(ours))
    train(ours, rank, steps=1)
    assert zeropp.stats(ours).calls > 0, "and with zeropp behind it"


def test_disabled_is_plain_hsdp(ranks):
    ranks.run(4, without_ours)


def refused(rank, size):
    def hooked():
        model = sharded(2, size)
        model.set_all_reduce_hook(lambda gradients: None)
        return model

    return refusals(
        {
            "expected units on a mesh with replicas (HSDP, replicate)": lambda: zeropp.apply(
                shard(network()), ranks_per_node=2, replicas="8bit"
            ),
            "replicas: expected one of lossless, 16bit": lambda: zeropp.apply(
                sharded(2, size), ranks_per_node=2, replicas="5bit"
            ),
            "expected units without an all-reduce hook for the argument replicas, given one on (root)": lambda: zeropp.apply(
                hooked(), ranks_per_node=2, replicas="8bit"
            ),
        }
    )


def test_replicas_that_there_are_not_are_refused(ranks):
    assert ranks.run(4, refused) == [[]] * 4


def applied_again(rank, size):
    """Losses of plain HSDP, and of models on which calls have followed each other."""
    def losses(*calls):
        model = sharded(2, size)
        for call in calls:
            call(model)
        groups = [group for unit in zeropp.units.units_of(model) for group in unit.groups]
        of_all = [group.post_forward_mesh_info is group.mesh_info for group in groups]
        return train(model, rank, steps=2), whole_parameters(model), of_all

    def four_bits(model):
        zeropp.apply(model, ranks_per_node=2, preset="4bit", replicas="4bit")

    def without_replicas(model):
        zeropp.apply(model, ranks_per_node=2, preset="lossless")

    def settings_of_the_caller(model):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(7.0)
        model.set_reshard_after_forward(True)

    def kept_after_forward(model):
        model.set_reshard_after_forward(False)

    plain, plain_divided = losses(), losses(settings_of_the_caller)
    assert losses(four_bits)[0] != plain[0] != plain_divided[0]
    for same, calls in (
        (plain, (four_bits, zeropp.remove)),
        (plain, (four_bits, without_replicas)),
        (plain, (four_bits, four_bits, lambda model: zeropp.apply(model, ranks_per_node=2, **LOSSLESS))),
        (plain_divided, (kept_after_forward, four_bits, settings_of_the_caller, zeropp.remove)),
        (plain_divided, (settings_of_the_caller, four_bits, zeropp.remove)),
    ):
        losses_of_calls, parameters, of_all = losses(*calls)
        assert losses_of_calls == same[0]
        assert_same(parameters, same[1])
        assert of_all == same[2], "weights stay on all ranks after forward, or on none"


def test_a_second_call_replaces_the_first_and_remove_gives_hsdp_back(ranks):
    ranks.run(4, applied_again)


def one_replica(rank, size):
    """With (1, n), nothing is sent between replicas and nothing is rounded. The report says so."""
    results = []
    for formats in (None, {"replicas": "2bit", "error_feedback": True}, {"replicas": "4bit"}):
        model = sharded(1, size)
        if formats:
            report = zeropp.apply(model, ranks_per_node=1, preset="lossless", **formats)
            assert "With one replica, the argument replicas has no effect." in report.advice
            assert {row.note for row in report.rows} == {"one replica: nothing is reduced between replicas"}
            assert {row.replicas for row in report.rows} == {"-"}
        results.append((train(model, rank, steps=2), whole_parameters(model)))
    for losses, parameters in results[1:]:
        assert losses == results[0][0]
        assert_same(parameters, results[0][1])


def test_one_replica_is_not_rounded(ranks):
    ranks.run(2, one_replica)


def sums_in_sixteen_bits(rank, size):
    """Advice on partial sums: torch's are in the type of the reduction."""
    advice = {}
    for dtype in (torch.bfloat16, torch.float32):
        model = sharded(2, size, mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))
        advice[dtype] = zeropp.apply(model, ranks_per_node=2, preset="lossless").advice
    crossing = "The all-reduce between replicas crosses nodes, and stays torch's: the argument replicas gives it formats."
    assert advice[torch.float32] == [crossing]
    assert len(advice[torch.bfloat16]) == 2 and "torch sums microbatches in torch.bfloat16" in advice[torch.bfloat16][0]


def test_the_report_warns_of_sums_in_sixteen_bits(ranks):
    ranks.run(4, sums_in_sixteen_bits)


def other_formats(rank, size, odd):
    model = sharded(2, size)
    return words_of(lambda: zeropp.apply(model, ranks_per_node=2, replicas=INT4 if rank in odd else INT8))


@pytest.mark.parametrize("odd", [(1,), (2, 3), (1, 3)])
def test_other_formats_on_some_ranks_are_the_same_error_on_all(ranks, odd):
    words = ranks.run(4, other_formats, odd)
    given = {
        (1,): f"replicas '{INT4}' on rank 1, '{INT8}' on the others",
        (2, 3): f"replicas '{INT8}' on ranks 0, 1, '{INT4}' on ranks 2, 3",
        (1, 3): f"replicas '{INT8}' on ranks 0, 2, '{INT4}' on ranks 1, 3",
    }
    assert set(words) == {f"apply: expected the same on every rank, given {given[odd]}"}


def uneven_nodes(rank, size):
    return words_of(lambda: zeropp.apply(sharded(2, size), ranks_per_node=4, replicas="8bit"))


def test_uneven_nodes_are_the_same_error_on_all(ranks):
    words = ranks.run(6, uneven_nodes)
    assert set(words) == {
        "apply: expected the same number of ranks on every node, given ranks [3, 4, 5] of the mesh on nodes [0, 1, 1]"
    }
