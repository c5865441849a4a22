"""Calls that differ between ranks: the same error on all of them, before any tensor is wrong."""

import pytest
import torch
import zeropp_torch as zeropp
from models import network, shard, train
from torch.nn.parallel import DistributedDataParallel

INT8, INT4 = "int8:256:bf16", "int4:128:signed:bf16"


def refusal(call):
    with pytest.raises(zeropp.ZeroppError) as raised:
        call()
    return str(raised.value)


def other_arguments(rank, size, what):
    communicator = zeropp.Communicator(ranks_per_node=2)
    odd = rank == 1
    tensor, shard_of = torch.full((4096,), 3.0), torch.full((1024,), 3.0)
    full = torch.empty(4096)
    calls = {
        "another format": lambda: zeropp.all_reduce(communicator, tensor, "bf16" if odd else INT8),
        "a mean": lambda: zeropp.all_reduce(communicator, tensor, INT8, mean=odd),
        "another function": lambda: (
            zeropp.all_gather(communicator, shard_of, full, INT8)
            if odd
            else zeropp.reduce_scatter(communicator, tensor, shard_of, INT8)
        ),
        "an update": lambda: (
            zeropp.all_gather(communicator, shard_of, full, INT8)
            if odd
            else zeropp.update_gather(
                communicator, shard_of, full, zeropp.Replica(communicator, full), "int2:64:signed:bf16:h32"
            )
        ),
        "another length": lambda: zeropp.all_reduce(communicator, tensor[: 4096 - rank], INT8),
        "another name": lambda: zeropp.all_reduce(communicator, tensor, INT8, name="b" if odd else "a"),
    }
    before = communicator.traffic()
    words = refusal(calls[what])
    assert communicator.traffic() == before
    assert (tensor == 3).all() and (shard_of == 3).all(), "nothing has been written"
    zeropp.all_reduce(communicator, tensor, "fp32")
    assert (tensor == 3 * size).all(), "and the next call works"
    return words


@pytest.mark.parametrize(
    "what", ["another format", "a mean", "another function", "an update", "another length", "another name"]
)
def test_a_call_that_differs_is_the_same_error_on_all_ranks(ranks, what):
    words = ranks.run(4, other_arguments, what)
    assert len(set(words)) == 1
    assert "checked: expected the same call on every rank, given " in words[0]
    told = {
        "another format": "with bf16 + bf16",
        "a mean": "mean",
        "another function": "quantized_all_gather of 4096",
        "an update": "zt_update_gather of 4096",
        "another length": "of 4095 elements",
        "another name": "for b",
    }
    assert told[what] in words[0], words[0]


def refused_on_one_rank(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2)
    shards = torch.ones(1024 + (rank == 2))
    return refusal(lambda: zeropp.all_gather(communicator, shards, torch.empty(4096), INT8))


def test_what_one_rank_is_refused_is_an_error_on_all(ranks):
    words = ranks.run(4, refused_on_one_rank)
    assert set(words) == {
        "quantized_all_gather: on rank 2, of tensor 0, expected a shard of 1024 elements of 4096, given one of 1025"
    }


def refused_before_the_call(rank, size, what):
    communicator = zeropp.Communicator(ranks_per_node=2)
    odd = rank == 1
    tensor, part, full = torch.full((4096,), 3.0), torch.full((1024,), 3.0), torch.empty(4096)
    replica = zeropp.Replica(communicator, full)
    zeropp.update_gather(communicator, part, full, replica, "int2:64:signed:bf16:h32")
    feedback = zeropp.ErrorFeedback(communicator, tensor, INT4 if odd else INT8)
    if odd:
        replica.invalidate()
    calls = {
        "a format that there is not": lambda: zeropp.all_reduce(communicator, tensor, "int9" if odd else INT8),
        "another type": lambda: zeropp.all_reduce(communicator, tensor.double() if odd else tensor, INT8),
        "gaps": lambda: zeropp.all_gather(communicator, torch.ones(2048)[::2] if odd else part, full, INT8),
        "other feedback": lambda: zeropp.reduce_scatter(communicator, tensor, part, INT8, feedback=feedback),
        "an empty replica": lambda: zeropp.replica_gather(communicator, full, replica),
    }
    words = refusal(calls[what])
    zeropp.all_reduce(communicator, tensor, "fp32")
    assert (tensor == 3 * size).all(), "and the next call works"
    return words


@pytest.mark.parametrize(
    "what, told",
    [
        ("a format that there is not", "expected one of fp32 + fp32"),
        ("another type", "given torch.float64"),
        ("gaps", "expected contiguous tensors"),
        ("other feedback", "expected error feedback of "),
        ("an empty replica", "given an empty one"),
    ],
)
def test_what_one_rank_is_refused_before_its_call_is_an_error_on_all(ranks, what, told):
    words = ranks.run(4, refused_before_the_call, what)
    assert all(told in w for w in words), words
    assert all(": on rank 1, " in w for w in words[:1] + words[2:]), words


def a_long_name(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2)
    # Of two bytes each: it is cut within one.
    name = 300 * "\u00e9" + ("b" if rank == 1 else "a")
    return refusal(lambda: zeropp.all_reduce(communicator, torch.ones(8), "fp32", name=name))


def test_a_name_that_is_cut_is_compared_whole(ranks):
    words = ranks.run(4, a_long_name)
    assert len(set(words)) == 1 and "expected the same call on every rank" in words[0]


def training_with(rank, size, ddp):
    odd = rank == 3
    if ddp:
        model = DistributedDataParallel(network())
        model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, gradients=(INT8, INT4 if odd else INT8)))
    else:
        model = network()
        shard(model)
        zeropp.apply(model, ranks_per_node=2, gradients=(INT8, INT4 if odd else INT8))
    return refusal(lambda: train(model, rank, steps=1))


@pytest.mark.parametrize("ddp", [False, True])
def test_a_rank_with_another_format_ends_the_first_step_of_all(ranks, ddp):
    words = ranks.run(4, training_with, ddp)
    assert len(set(words)) == 1
    assert INT4 in words[0].split("on rank 2; ")[1], words[0]


def all_gathers_of_five_calls(rank, size, compared):
    communicator = zeropp.Communicator(ranks_per_node=2, compared_calls=compared)
    moved = []
    original = zeropp.communicator.all_gather_single
    zeropp.communicator.all_gather_single = lambda *a, **k: (moved.append(a[1].numel()), original(*a, **k))[1]
    try:
        for _ in range(5):
            zeropp.all_reduce(communicator, torch.ones(8), "fp32")
    finally:
        zeropp.communicator.all_gather_single = original
    return len(moved)


def test_as_many_calls_are_compared_as_are_asked_for(ranks):
    none, three = ranks.run(4, all_gathers_of_five_calls, 0), ranks.run(4, all_gathers_of_five_calls, 3)
    assert [with_three - without for with_three, without in zip(three, none)] == [3] * 4


def test_tensors_of_another_gpu_are_refused():
    communicator = zeropp.Communicator.__new__(zeropp.Communicator)
    communicator.device = torch.device("cuda", 1)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        here, there = torch.empty(4, device="cuda:1"), torch.empty(4, device="cuda:0")
    communicator.require_tensors([here])
    with pytest.raises(zeropp.ZeroppError, match="expected tensors on cuda:1, given one on cuda:0"):
        communicator.require_tensors([here, there])
