"""DistributedDataParallel with zeropp's all-reduce."""

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import assert_same, batch, frozen, loss_of, network, refusals, tied, train, whole_parameters
from torch.nn.parallel import DistributedDataParallel


def compare(rank, size, *formats):
    """Losses and parameters of plain DDP, and of ours with each of `formats`."""
    results = []
    for gradients in (None, *formats):
        model = DistributedDataParallel(network())
        if gradients is not None:
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, gradients=gradients))
        results.append((train(model, rank), whole_parameters(model)))
    return results


def lossless(rank, size):
    (plain_losses, plain), (losses, ours) = compare(rank, size, "lossless")
    assert_same(plain, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_lossless_is_plain_ddp(ranks, size):
    ranks.run(size, lossless)


def test_quantized_trains_and_ranks_stay_alike(ranks):
    results = ranks.run(4, compare, "bf16", "int8:256:bf16", ("int8:256:bf16", "int4:128:signed:bf16"))
    for (plain, _), *of_formats in results:
        for (ours, parameters), (_, of_rank_0) in zip(of_formats, results[0][1:], strict=True):
            assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)
            assert_same(parameters, of_rank_0)


def in_bfloat16():
    return network().bfloat16()


def of_kinds(rank, size, make):
    results = []
    for ours in (False, True):
        model = DistributedDataParallel(make(), bucket_cap_mb=0.01, gradient_as_bucket_view=True)
        if ours:
            hook = zeropp.ddp_hook(ranks_per_node=2, gradients="lossless")
            model.register_comm_hook(None, hook)
        train(model, rank, steps=3)
        if ours:
            assert hook.traffic().calls > 3, "DDP makes small buckets from the second step on"
        results.append(whole_parameters(model))
    bound = 0.02 if make is in_bfloat16 else 1e-4  # torch sums bfloat16 in bfloat16
    assert_same(*results, rtol=bound, atol=bound / 10)


@pytest.mark.parametrize("make", [frozen, tied, in_bfloat16])
def test_models_of_all_kinds(ranks, make):
    ranks.run(4, of_kinds, make)


class ByTurns(torch.nn.Module):
    """Two halves, of which each step uses one, on a node of all ranks: DDP itself then sends which, on the same ranks."""

    def __init__(self):
        super().__init__()
        self.halves = torch.nn.ModuleList([network(), network()])
        self.steps = 0

    def forward(self, tokens):
        self.steps += 1
        return self.halves[self.steps % 2](tokens)


def unused(rank, size, ranks_per_node):
    results = []
    for ours in (False, True):
        model = DistributedDataParallel(ByTurns(), bucket_cap_mb=0.01, find_unused_parameters=True)
        if ours:
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=ranks_per_node, gradients="lossless"))
        train(model, rank, steps=8)
        results.append(whole_parameters(model))
    assert_same(*results, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ranks_per_node", [1, 2, 4])
def test_parameters_that_a_step_does_not_use(ranks, ranks_per_node):
    ranks.run(4, unused, ranks_per_node)


def large(rank, size):
    """A bucket of many pieces, which no number of ranks or pieces divides."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(1801, 1703)
    x = torch.randn(3, 1801, generator=torch.Generator().manual_seed(rank))
    results = []
    for ours in (False, True):
        model = DistributedDataParallel(layer)
        if ours:
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, gradients="lossless"))
        model.zero_grad()
        model(x).square().sum().backward()
        results.append({name: p.grad.clone() for name, p in model.named_parameters()})
    assert_same(*results, rtol=1e-4, atol=1e-3)


def test_buckets_in_pieces(ranks):
    ranks.run(4, large)


def pieces_of(gradients, ranks_per_node):
    reducer = zeropp.ddp._Reducer(None, ranks_per_node, None, gradients, None, torch.device("cpu"), 0)
    gradient = torch.empty(16 << 20)
    return -(-gradient.numel() // reducer._piece_elements(gradient))


def in_parts(rank, size):
    # A piece is as large as its message, so that few bits are not many pieces.
    assert [pieces_of("lossless", per_node) for per_node in (1, 2)] == [8, 32]
    assert [pieces_of("8bit", per_node) for per_node in (1, 2)] == [2, 8]
    assert [pieces_of("4bit", per_node) for per_node in (1, 2)] == [1, 4]
    part = [dist.new_group(part) for part in ([0, 2], [1, 3])][rank % 2]
    for group in (part, None, dist.group.WORLD):
        model = DistributedDataParallel(network(), process_group=part)
        hook = zeropp.ddp_hook(group, ranks_per_node=2, preset="4bit")
        model.register_comm_hook(None, hook)
        if group is not part:
            with pytest.raises(Exception, match=r"process group of the model, of ranks \[[01], [23]\], given one of ranks"):
                loss_of(model, batch(0, rank)).backward()
        else:
            loss_of(model, batch(0, rank)).backward()
            assert hook.traffic().inter_node > 0 and hook.traffic().intra_node == 0
    alone = dist.new_group([rank], use_local_synchronization=True)
    gradients = []
    for ours in (False, True):
        model = DistributedDataParallel(network(), process_group=alone)
        if ours:
            model.register_comm_hook(None, zeropp.ddp_hook(alone, ranks_per_node=2, preset="2bit"))
        loss_of(model, batch(0, rank)).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert_same(*gradients)
    return refusals(
        {
            "preset: expected one of lossless, ": lambda: zeropp.ddp_hook(ranks_per_node=2, preset="5bit"),
            "4bit, 2bit, given ": lambda: zeropp.ddp_hook(ranks_per_node=2, preset=""),
            "expected either preset or gradients": lambda: zeropp.ddp_hook(ranks_per_node=2, preset="4bit", gradients="bf16"),
            "gradients: expected one of lossless, ": lambda: zeropp.ddp_hook(ranks_per_node=2, gradients=None),
            "ranks_per_node as a whole number from 1, given '2'": lambda: zeropp.ddp_hook(ranks_per_node="2"),
            "compared_steps as a whole number from 0, given -1": lambda: zeropp.ddp_hook(ranks_per_node=2, compared_steps=-1),
            "process_group as a group or None, given 2": lambda: zeropp.ddp_hook(2, ranks_per_node=2),
        }
    )


def test_models_of_parts_of_the_ranks_pieces_and_words(ranks):
    assert ranks.run(4, in_parts) == [[]] * 4


def without_ours(rank, size):
    plain, model = (DistributedDataParallel(network()) for _ in range(2))
    hook = zeropp.ddp_hook(ranks_per_node=2)
    model.register_comm_hook(None, hook)
    with zeropp.disabled():
        losses = train(model, rank, steps=2)
    assert hook.traffic().calls == 0 and losses == pytest.approx(train(plain, rank, steps=2), rel=1e-5)
    assert_same(whole_parameters(plain), whole_parameters(model), rtol=1e-5, atol=1e-6)
    train(model, rank, steps=1)
    assert hook.traffic().calls > 0


def test_disabled_is_plain(ranks):
    ranks.run(4, without_ours)


def uneven(rank, size):
    """Ranks with 1 and 3 batches, by `model.join()`: the first one then takes part with gradients of zeros."""
    results = []
    for ours in (False, True):
        model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
        if ours:
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=1, gradients="lossless"))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for step in range(1 + 2 * rank):
                optimizer.zero_grad()
                loss_of(model, batch(step, rank)).backward()
                optimizer.step()
        results.append(whole_parameters(model))
    assert_same(*results, rtol=1e-4, atol=1e-5)


def test_join_of_uneven_inputs(ranks):
    ranks.run(2, uneven)


class Checkpointed(torch.nn.Module):
    """A layer in a reentrant checkpoint, which has a backward pass of its own. A float64 parameter before it has its
    gradient, and its bucket, after that pass."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(40, dtype=torch.float64))
        self.layer = torch.nn.Linear(40, 40)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.layer, x * self.scale.to(x.dtype), use_reentrant=True)


def checkpointed(rank, size):
    model = DistributedDataParallel(Checkpointed())
    model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=1, gradients="lossless"))
    with pytest.raises(Exception, match="given torch.float64"):
        model(torch.ones(4, 40)).square().sum().backward()


def test_failures_show_under_reentrant_checkpoints(ranks):
    ranks.run(2, checkpointed)
