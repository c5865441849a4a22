"""Calls that differ between ranks: the same error on all of them, before any tensor is wrong."""

import contextlib

import pytest
import torch
import zeropp_torch as zeropp
from models import network, shard, train, words_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.nn.parallel import DistributedDataParallel

INT8, INT4 = "int8:256:bf16", "int4:128:signed:bf16"


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
        "no tensors": lambda: zeropp.all_reduce(communicator, [] if odd else [tensor], INT8),
        "another name": lambda: zeropp.all_reduce(communicator, tensor, INT8, name="b" if odd else "a"),
        # Of two bytes each: it is cut within one.
        "a long name": lambda: zeropp.all_reduce(communicator, tensor, INT8, name=300 * "\u00e9" + ("b" if odd else "a")),
    }
    before = communicator.traffic()
    words = words_of(calls[what])
    assert communicator.traffic() == before
    assert (tensor == 3).all() and (shard_of == 3).all(), "nothing has been written"
    zeropp.all_reduce(communicator, [], "fp32")
    zeropp.all_reduce(communicator, tensor, "fp32")
    assert (tensor == 3 * size).all(), "and the next call works"
    return words


def of_each(rank, size, function, cases):
    """What function(rank, size, *case) returns for each of `cases`."""
    return [function(rank, size, *case) for case in cases]


def test_a_call_that_differs_is_the_same_error_on_all_ranks(ranks):
    told = {
        "another format": "with bf16 + bf16",
        "a mean": "mean",
        "another function": "quantized_all_gather of 4096",
        "an update": "zeropp_update_gather of 4096",
        "another length": "of 4095 elements",
        "no tensors": "of 0 elements",
        "another name": "for b",
        "a long name": "for \u00e9\u00e9",
    }
    words, *others = ranks.run(4, of_each, other_arguments, [(what,) for what in told])
    assert others == 3 * [words]
    for text, expected in zip(words, told.values(), strict=True):
        assert "checked: expected the same call on every rank, given " in text and expected in text, text


def compares_many(rank, size, numbers):
    communicator = zeropp.Communicator(compared_calls=0)
    for calls in numbers:
        communicator.compare(calls)
    return words_of(lambda: zeropp.all_reduce(communicator, torch.ones(64), INT8, name="ab"[rank]))


def test_large_numbers_of_compared_calls_are_not_none(ranks):
    for words in ranks.run(2, of_each, compares_many, [((2**64,),), ((2**64 - 1, 1),)]):
        assert all("for a" in each and "for b" in each for each in words), words


def refused_before_the_call(rank, size, what):
    communicator = zeropp.Communicator(ranks_per_node=2, nodes_per_site=2)
    odd = rank == 1
    tensor, part, full = torch.full((4096,), 3.0), torch.full((1024,), 3.0), torch.empty(4096)
    replica = zeropp.Replica(communicator, full)
    zeropp.update_gather(communicator, part, full, replica, "int2:64:signed:bf16:h32")
    feedback = zeropp.ErrorFeedback(communicator, tensor, INT4 if odd else INT8)
    if odd and what == "an empty replica":
        replica.invalidate()
    other_full = full[:4095] if odd else full
    calls = {
        "a format that there is not": lambda: zeropp.all_reduce(communicator, tensor, "int9" if odd else INT8),
        "a format with a zero": lambda: zeropp.all_reduce(communicator, tensor, INT8 + "\0" if odd else INT8),
        "a format without UTF-8": lambda: zeropp.all_reduce(communicator, tensor, "\ud800" if odd else INT8),
        "a name with a zero": lambda: zeropp.all_reduce(communicator, tensor, INT8, name="a\0b" if odd else "a"),
        "no format": lambda: zeropp.all_reduce(communicator, tensor, None if odd else INT8, INT8, INT8),
        "an exception": lambda: zeropp.all_reduce(communicator, tensor, INT8, mean=torch.ones(2) if odd else False),
        "no name": lambda: zeropp.all_reduce(communicator, tensor, INT8, name=None if odd else "a"),
        "another type": lambda: zeropp.all_reduce(communicator, tensor.double() if odd else tensor, INT8),
        "gaps": lambda: zeropp.all_gather(communicator, torch.ones(2048)[::2] if odd else part, full, INT8),
        "another shard": lambda: zeropp.all_gather(communicator, torch.ones(1025) if odd else part, full, INT8),
        "other feedback": lambda: zeropp.reduce_scatter(communicator, tensor, part, INT8, feedback=feedback),
        "an empty replica": lambda: zeropp.replica_gather(communicator, full, replica),
        "another length than the replica's": lambda: zeropp.replica_gather(communicator, other_full, replica),
        "another length than the replica's in an update without changes": lambda: zeropp.update_gather(
            communicator, part, other_full, replica, "int2:64:signed:bf16:h32", changed=False
        ),
        "another shard in an update without changes": lambda: zeropp.update_gather(
            communicator, part[:1023] if odd else part, full, replica, "int2:64:signed:bf16:h32", changed=False
        ),
    }
    words = words_of(calls[what])
    zeropp.all_reduce(communicator, [], "fp32")
    zeropp.all_reduce(communicator, tensor, "fp32")
    assert (tensor == 3 * size).all(), "and the next call works"
    return words


def test_what_one_rank_is_refused_before_its_call_is_an_error_on_all(ranks):
    told = {
        "a format that there is not": "expected one of fp32 + fp32",
        "a format with a zero": "expected a text without zeros, given 'int8:256:bf16\\x00 + int8:256:bf16\\x00'",
        "a format without UTF-8": "expected one of fp32 + fp32",
        "a name with a zero": "expected a text without zeros, given 'a\\x00b'",
        "no format": "expected formats as names, given None",
        "an exception": "RuntimeError('Boolean value of Tensor with more than one value is ambiguous')",
        "no name": "expected name as a string, given None",
        "another type": "given torch.float64",
        "gaps": "expected contiguous tensors",
        "another shard": (
            "quantized_all_gather: on rank 1, of tensor 0, expected a shard of 1024 elements of 4096, given one of 1025"
        ),
        "other feedback": "expected error feedback of ",
        "an empty replica": "given an empty one",
        "another length than the replica's": "of 4095 elements",
        "another length than the replica's in an update without changes": "of 4095 elements",
        "another shard in an update without changes": "expected a shard of 1024 elements of 4096, given one of 1023",
    }
    of_ranks = ranks.run(4, of_each, refused_before_the_call, [(what,) for what in told])
    for words, expected in zip(zip(*of_ranks), told.values(), strict=True):
        assert all(expected in w for w in words), words
        assert all(": on rank 1, " in w for w in words[:1] + words[2:]), words


def unlike_arguments(rank, size, ddp, arguments):
    arguments = {name: values[rank == 3] for name, values in arguments.items()}
    if ddp:
        return words_of(lambda: zeropp.ddp_hook(**{"ranks_per_node": 2, **arguments}))
    model = shard(network())
    return words_of(lambda: zeropp.apply(model, **{"ranks_per_node": 2, **arguments}))


def test_a_rank_with_other_arguments_is_an_error_on_all(ranks):
    cases = [
        (ddp, arguments)
        for ddp in (False, True)
        for arguments in ({"gradients": (INT8, "int9")}, {"compared_steps": (2, 0)}, {"ranks_per_node": (2, 4)})
    ]
    cases += [(False, {"exclude": ([], ["blocks.1"])}), (False, {"weights": (INT8, None)}), (False, {"ranks_per_node": (2, 0)})]
    words, *others = ranks.run(4, of_each, unlike_arguments, cases)
    assert others == 3 * [words]
    for text, (ddp, arguments) in zip(words, cases, strict=True):
        ((name, (given, odd)),) = arguments.items()
        function = "ddp_hook" if ddp else "apply"
        assert text == (
            f"{function}: expected the same on every rank, given {name} {odd!r} on rank 3, {given!r} on the others"
        )


def unlike_communicators(rank, size, arguments):
    return words_of(lambda: zeropp.Communicator(**{name: values[rank == 1] for name, values in arguments.items()}))


def test_unlike_communicators_are_refused(ranks):
    cases = [({"compared_calls": (32, 0)},), ({"ranks_per_node": (2, 3)},), ({"nodes": ([0, 0, 1, 1], [0, 1, 0, 1])},)]
    words, *others = ranks.run(4, of_each, unlike_communicators, cases)
    assert others == 3 * [words]
    for text, (arguments,) in zip(words, cases, strict=True):
        ((name, (given, odd)),) = arguments.items()
        told = f"Communicator: expected the same on every rank, given {name} {odd!r} on rank 1, {given!r} on the others"
        assert text == told


def training_with(rank, size, ddp):
    odd = rank == 3
    if not ddp:
        model = shard(network(), mp_policy=MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if odd else torch.float32))
        zeropp.apply(model, ranks_per_node=2, gradients=INT8)
        return words_of(lambda: train(model, rank, steps=1))
    model = DistributedDataParallel(network())
    model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2))
    original = zeropp.ddp.all_reduce
    if odd:
        zeropp.ddp.all_reduce = lambda *a, **k: original(*a, **{**k, "mean": False})
    try:
        return words_of(lambda: train(model, rank, steps=1))
    finally:
        zeropp.ddp.all_reduce = original


@pytest.mark.parametrize("ddp, told", [(False, "elements of bf16"), (True, "sum")])
def test_a_rank_with_other_calls_ends_the_first_step_of_all(ranks, ddp, told):
    words = ranks.run(4, training_with, ddp)
    assert len(set(words)) == 1
    assert told in words[0].split("on rank 2; ")[1], words[0]


@contextlib.contextmanager
def gathers():
    """The sizes of the messages that communicators gather inside."""
    moved = []
    original = zeropp.communicator.all_gather_single
    zeropp.communicator.all_gather_single = lambda *a, **k: (moved.append(a[1].numel()), original(*a, **k))[1]
    try:
        yield moved
    finally:
        zeropp.communicator.all_gather_single = original


def all_gathers_of_five_calls(rank, size, compared):
    communicator = zeropp.Communicator(ranks_per_node=2, compared_calls=compared)
    with gathers() as moved:
        for _ in range(5):
            zeropp.all_reduce(communicator, torch.ones(8), "fp32")
    return len(moved)


def test_as_many_calls_are_compared_as_are_asked_for(ranks):
    for none, three in ranks.run(4, of_each, all_gathers_of_five_calls, [(0,), (3,)]):
        assert three - none == 3


def gathers_of_steps(rank, size, how, compared):
    """The number of messages in each of five steps. DDP makes its buckets anew after the first."""
    if how == "ddp":
        model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
        model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, **compared))
    else:
        model = shard(network())
        zeropp.apply(model, ranks_per_node=2, preset=how, **compared)
    counts = []
    for _ in range(5):
        with gathers() as moved:
            train(model, rank, steps=1)
        counts.append(len(moved))
    return counts


@pytest.mark.parametrize("how", ["4bit", "2bit", "ddp"])
def test_the_first_two_steps_are_compared_unless_told_otherwise(ranks, how):
    results = ranks.run(4, of_each, gathers_of_steps, [(how, c) for c in ({}, {"compared_steps": 0}, {"compared_steps": 3})])[0]
    default, none, three = results
    at_end_of_backward = int(how != "ddp")
    more = [a - b for a, b in zip(default, none)]
    assert min(more[:2]) > at_end_of_backward and more[2:] == 3 * [at_end_of_backward], results
    assert [a > b for a, b in zip(three, default)] == [False, False, True, False, False], results


class Two(torch.nn.Module):
    """Two weights of one size, of which forward uses those with `names`."""

    def __init__(self):
        super().__init__()
        self.a, self.b = (torch.nn.Parameter(torch.ones(256)) for _ in range(2))

    def forward(self, x, names):
        return sum(x * (getattr(self, name) ** 2).sum() for name in names)


def other_parameters(rank, size, others, replicas):
    """Words of the error in the step after the compared ones, in which rank 1 uses the parameter a, others `others`."""
    mesh = init_device_mesh("cpu", (2, 2) if replicas else (4,), mesh_dim_names=("replicate", "shard") if replicas else ("shard",))
    model = zeropp.fully_shard(Two(), mesh=mesh)
    zeropp.apply(model, ranks_per_node=2, compared_steps=2, replicas="4bit" if replicas else None)
    for _ in range(3):
        model(torch.ones(1), "ab").sum().backward()
        model.zero_grad()
    loss = model(torch.ones(1), "a" if rank == 1 else others).sum()
    original = zeropp.hooks.reduce_scatter
    if others == "ab":  # gloo ends some processes on messages of other sizes
        zeropp.hooks.reduce_scatter = lambda *_, **__: None
    try:
        return words_of(loss.backward)
    finally:
        zeropp.hooks.reduce_scatter = original


@pytest.mark.parametrize("others, replicas", [("b", False), ("b", True), ("ab", False)])
def test_other_parameters_end_the_step_of_all(ranks, others, replicas):
    words = set(ranks.run(4, other_parameters, others, replicas))
    assert len(words) == 1, words
    (text,) = words
    gradients = {"b": "256 elements of torch.float32, gradients of parameters [1]"}
    gradients["ab"] = "512 elements of torch.float32, gradients of parameters [0, 1]"
    assert text.startswith("backward: expected the same on every rank, given reduction 0 '(root), 256 elements of"), text
    assert f"gradients of parameters [0]' on rank 1, '(root), {gradients[others]}' on the others" in text, text


def a_unit_used_late(rank, size):
    first, second = (zeropp.fully_shard(torch.nn.Linear(64, 64)) for _ in range(2))
    model = torch.nn.ModuleList([first, second])
    zeropp.apply(model, ranks_per_node=2, compared_steps=1)
    counts = []
    for unit in (first, first, first, second, second):
        with gathers() as moved:
            unit(torch.ones(2, 64)).sum().backward()
        counts.append(len(moved))
    return counts


def test_steps_are_each_units_own(ranks):
    for counts in ranks.run(4, a_unit_used_late):
        assert counts[1] == counts[2] == counts[4] < counts[0] == counts[3], counts


def test_tensors_of_another_gpu_are_refused():
    communicator = zeropp.Communicator.__new__(zeropp.Communicator)
    communicator.device = torch.device("cuda", 1)
    with torch._subclasses.fake_tensor.FakeTensorMode():
        here, there = torch.empty(4, device="cuda:1"), torch.empty(4, device="cuda:0")
    # On the right one, only its lack of memory is refused.
    for tensor, words in ((there, "tensors on cuda:1, given one on cuda:0"), (here, "a FakeTensor of torch.strided on cuda:1")):
        with pytest.raises(zeropp.ZeroppError, match=words):
            communicator.require_tensors([tensor])
