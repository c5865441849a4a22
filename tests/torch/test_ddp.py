"""DistributedDataParallel with zeropp's all-reduce."""

import pytest
import torch
import zeropp_torch as zeropp
from models import assert_same, network, train, whole_parameters
from torch.nn.parallel import DistributedDataParallel


def compare(rank, size, gradients):
    results = []
    for ours in (False, True):
        model = DistributedDataParallel(network())
        if ours:
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, gradients=gradients))
        results.append((train(model, rank), whole_parameters(model)))
    return results


def lossless(rank, size):
    (plain_losses, plain), (losses, ours) = compare(rank, size, ("fp32", "fp32"))
    assert_same(plain, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [2, 4, 6])
def test_lossless_is_plain_ddp(ranks, size):
    ranks.run(size, lossless)


def quantized(rank, size, gradients):
    (plain, _), (ours, parameters) = compare(rank, size, gradients)
    return plain, ours, parameters


@pytest.mark.parametrize("gradients", ["bf16", "int8:256:bf16", ("int8:256:bf16", "int4:128:signed:bf16")])
def test_quantized_trains_and_ranks_stay_alike(ranks, gradients):
    results = ranks.run(4, quantized, gradients)
    for plain, ours, parameters in results:
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)
        assert_same(parameters, results[0][2])


def without_ours(rank, size):
    model = DistributedDataParallel(network())
    hook = zeropp.ddp_hook(ranks_per_node=2)
    model.register_comm_hook(None, hook)
    with zeropp.disabled():
        train(model, rank, steps=1)
    assert hook.communicator.traffic().calls == 0
    losses = train(model, rank, steps=2)
    assert hook.communicator.traffic().calls > 0
    return losses


def test_disabled_is_plain(ranks):
    assert all(torch.tensor(losses).isfinite().all() for losses in ranks.run(4, without_ours))
