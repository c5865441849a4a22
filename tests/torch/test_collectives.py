"""The functions for engines of one's own, against torch.distributed and exact sums."""

import ctypes
import datetime
import gc
import multiprocessing
import sys
import threading
import weakref

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import drawn, refusals, slice_of, the_same_on_all_ranks, through
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from zeropp_torch import _library
from zeropp_torch.communicator import exchange

LOSSLESS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
SIZES = [1, 5, 6, 997, 4096, 100003]


def exact_sum(size, n, dtype=torch.float32):
    """Sums in float in the order of ranks, as the library's."""
    total = drawn(n, 0, dtype).float()
    for rank in range(1, size):
        total = total + drawn(n, rank, dtype).float()
    return total


def lossless_collectives(rank, size, per_node, dtype):
    communicator = zeropp.Communicator(ranks_per_node=per_node)
    wire = LOSSLESS[dtype]
    shards = [slice_of(drawn(n, n, dtype), rank, size) for n in SIZES]
    fulls = [torch.full((n,), float("nan"), dtype=dtype) for n in SIZES]
    zeropp.all_gather(communicator, shards, fulls, wire)
    for n, full in zip(SIZES, fulls):
        assert torch.equal(full, drawn(n, n, dtype)), n
    for n in SIZES:
        full = torch.empty(n, dtype=dtype)
        zeropp.all_gather(communicator, slice_of(drawn(n, n, dtype), rank, size), full, wire)
        assert torch.equal(full, drawn(n, n, dtype)), n
    sent = [drawn(n * size, n + rank, dtype) for n in SIZES]
    received = [torch.empty_like(tensor) for tensor in sent]
    zeropp.all_to_all(communicator, sent, received, wire)
    zeropp.all_to_all(communicator, sent[-1], sent[-1], wire)
    for n, tensor in [*zip(SIZES, received), (SIZES[-1], sent[-1])]:
        parts = [drawn(n * size, n + r, dtype)[n * rank : n * (rank + 1)] for r in range(size)]
        assert torch.equal(tensor, torch.cat(parts)), n
    if dtype == torch.float32:
        gradients = [drawn(n, rank) for n in SIZES]
        parts = [torch.empty(slice_of(g, rank, size).numel()) for g in gradients]
        zeropp.reduce_scatter(communicator, gradients, parts, wire)
        zeropp.all_reduce(communicator, gradients, wire, mean=True)
        for n, part, gradient in zip(SIZES, parts, gradients):
            expected = exact_sum(size, n)
            torch.testing.assert_close(part, slice_of(expected, rank, size), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(gradient, expected / size, rtol=1e-5, atol=1e-5)
            assert the_same_on_all_ranks(gradient)


@pytest.mark.parametrize("size, per_node", [(1, 1), (2, 1), (2, 2), (4, 2), (3, 1), (6, 3), (6, 2)])
def test_lossless_collectives_move_what_they_are_given(ranks, size, per_node):
    ranks.run(size, lossless_collectives, per_node, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_gathered_as_they_are(ranks, dtype):
    ranks.run(4, lossless_collectives, 2, dtype)


def collectives_without_copies(rank, size, per_node):
    communicator = zeropp.Communicator(ranks_per_node=per_node)
    n = size << 18
    gradient, full = drawn(n, rank), torch.full((n,), float("nan"))
    zeropp.all_reduce(communicator, gradient, "fp32", mean=True)
    torch.testing.assert_close(gradient, exact_sum(size, n) / size, rtol=1e-5, atol=1e-6)
    if per_node in (1, size):
        assert torch.equal(gradient, exact_sum(size, n) / size)
    zeropp.all_gather(communicator, slice_of(drawn(n, n), rank, size), full, "fp32")
    assert torch.equal(full, drawn(n, n))
    parts = full[: n - size].view(size, -1)
    own = torch.full_like(parts[0], rank)
    exchange(full[: n - size].view(torch.uint8), own.view(torch.uint8), dist.group.WORLD)
    assert torch.equal(parts, torch.arange(size).float()[:, None].expand_as(parts))


@pytest.mark.parametrize("size, per_node", [(2, 2), (4, 1), (4, 2)])
def test_large_aligned_tensors_are_moved_without_copies(ranks, size, per_node):
    ranks.run(size, collectives_without_copies, per_node)


def large_collectives(rank, size, threads):
    """What a rank has after an all-gather and a reduce-scatter of tensors that are worth dividing over threads."""
    torch.set_num_threads(threads)
    communicator = zeropp.Communicator(ranks_per_node=2)
    n = 500001
    full = torch.empty(n)
    zeropp.all_gather(communicator, slice_of(drawn(n, 1), rank, size), full, "int8:256:bf16")
    part = torch.empty(slice_of(full, rank, size).numel())
    zeropp.reduce_scatter(communicator, drawn(n, rank), part, "int8:256:bf16", "int4:128:signed:bf16")
    return full, part, zeropp.quantize(drawn(n, rank), "int4:128:signed:bf16")


def any_number_of_threads(rank, size):
    expected = large_collectives(rank, size, 1)
    for threads in (2, 5):
        assert all(torch.equal(a, b) for a, b in zip(expected, large_collectives(rank, size, threads)))


def test_any_number_of_threads_gives_the_same_bits(ranks):
    ranks.run(2, any_number_of_threads)


def test_a_forked_child_has_threads_of_its_own():
    def quantized():
        return zeropp.quantize(drawn(1 << 18, 1), "int8:256:bf16").numpy().tobytes()

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        expected = quantized()
        child = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(quantized() != expected))
        with _library._making_threads:  # as by another thread
            child.start()
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()
        torch.set_num_threads(before)


def quantized_collectives(rank, size, intra_node, inter_node, gather):
    communicator = zeropp.Communicator(ranks_per_node=2)
    n = 20000
    weights = drawn(n, 1)
    full = torch.empty(n)
    zeropp.all_gather(communicator, slice_of(weights, rank, size), full, gather)
    assert torch.equal(full, torch.cat([through(slice_of(weights, r, size), gather) for r in range(size)]))
    part = torch.empty(slice_of(weights, rank, size).numel())
    zeropp.reduce_scatter(communicator, drawn(n, rank), part, intra_node, inter_node)
    exact = slice_of(exact_sum(size, n), rank, size)
    return float((part - exact).norm() / exact.norm())


@pytest.mark.parametrize(
    "intra_node, inter_node, gather, bound",
    [
        ("int8:256:bf16", "int8:256:bf16", "int8:256:fp16", 0.02),
        ("int8:256:bf16", "int4:128:signed:bf16", "int4:128:signed:bf16", 0.2),
        ("int6:128:bf16", "int6:128:bf16", "int6:128:bf16", 0.08),
        ("fp8_e4m3:128:bf16", "mxfp4", "fp8_e4m3:128:bf16", 0.2),
    ],
)
def test_quantized_collectives_lose_what_their_formats_do(ranks, intra_node, inter_node, gather, bound):
    errors = ranks.run(4, quantized_collectives, intra_node, inter_node, gather)
    assert all(0 < error < bound for error in errors), errors


def in_order(terms):
    """The sum of tensors, one after the other, as the library adds."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def in_fp8(tensor):
    """`tensor` through "fp8_e4m3:128:bf16": blocks of torch's own FP8, with the scale rounded up to bfloat16."""
    padded = torch.nn.functional.pad(tensor, (0, -tensor.numel() % 128)).view(-1, 128)
    wanted = padded.abs().amax(1, keepdim=True) / 448
    scale = wanted.bfloat16()
    above = (scale.view(torch.int16) + 1).view(torch.bfloat16)
    scale = torch.where(scale.float() < wanted, above, scale).float()
    codes = (padded * (1 / scale)).to(torch.float8_e4m3fn)
    return (codes.float() * scale).view(-1)[: tensor.numel()]


def fp8_sums(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2)
    n = 20003
    slices = [[slice_of(drawn(n, r), owner, size) for owner in range(size)] for r in range(size)]
    sums = []
    for owner in range(size):
        sent = [in_fp8(parts[owner]) for parts in slices]
        sums.append(in_order([in_fp8(in_order(sent[:2])), in_fp8(in_order(sent[2:]))]))
    part = torch.empty_like(sums[rank])
    zeropp.reduce_scatter(communicator, drawn(n, rank), part, "fp8_e4m3:128:bf16")
    assert torch.equal(part, sums[rank])
    # Error feedback adds this call's error to the next one, so that the mean of both is closer.
    feedback = zeropp.ErrorFeedback(communicator, drawn(n, rank), "fp8_e4m3:128:bf16")
    exact, both = slice_of(exact_sum(size, n), rank, size), []
    for _ in range(2):
        zeropp.reduce_scatter(communicator, drawn(n, rank), part, "fp8_e4m3:128:bf16", feedback=feedback)
        both.append(part.clone())
    assert torch.equal(both[0], sums[rank])
    assert float((sum(both) / 2 - exact).norm()) < 0.6 * float((both[0] - exact).norm())
    tensor = drawn(n, rank)
    zeropp.all_reduce(communicator, tensor, "fp8_e4m3:128:bf16", algorithm="two_shot")
    assert torch.equal(tensor, torch.cat([in_fp8(total) for total in sums]))


def test_sums_in_fp8_are_those_of_torchs_fp8(ranks):
    ranks.run(4, fp8_sums)


def in_mxfp4(tensor):
    """`tensor` through "mxfp4", as the OCP's standard has it: a power of two for each 32, and values 0, .5, 1, 1.5, 2, 3, 4, 6."""
    padded = torch.nn.functional.pad(tensor, (0, -tensor.numel() % 32)).view(-1, 32)
    scale = torch.exp2(torch.floor(torch.log2(padded.abs().amax(1, keepdim=True).double())) - 2).float()
    magnitude = (padded.abs() / scale).clamp(max=6)
    step = 0.5 * (1 + (magnitude >= 2) + 2 * (magnitude >= 4))
    return (torch.round(magnitude / step) * step * scale * padded.sign()).view(-1)[: tensor.numel()]


def gathered_in_mxfp4(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2)
    # Halves of steps, which go to the even code, in some blocks; sizes far apart in all.
    weights = drawn(20003, 1) * torch.exp2(torch.arange(20003) // 32 % 60 - 30)
    weights[:3200] = torch.round(4 * drawn(3200, 2)) / 4
    full = torch.full_like(weights, float("nan"))
    before = communicator.traffic()
    zeropp.all_gather(communicator, slice_of(weights, rank, size), full, "mxfp4")
    assert torch.equal(full, torch.cat([in_mxfp4(slice_of(weights, r, size)) for r in range(size)]))
    blocks = -(-5001 // 32)
    assert (communicator.traffic() - before).inter_node == 2 * (-(-17 * blocks // 16) * 16) // 2


def test_weights_in_mxfp4_have_the_standards_values(ranks):
    ranks.run(4, gathered_in_mxfp4)


def three_level_sums(rank, size):
    """The relative error of a sum, and its part of the exact one."""
    communicator = zeropp.Communicator(ranks_per_node=2)
    n = 1 << 17
    exact = slice_of(exact_sum(size, n), rank, size)
    part, before = torch.empty_like(exact), communicator.traffic()
    zeropp.reduce_scatter(communicator, drawn(n, rank), part, "int8:256:bf16:h32", "lloyd3:128:h128")
    # 128 elements take 26 bytes, five in each, and a byte for their scale.
    assert (communicator.traffic() - before).inter_node == n // size // 128 * 27
    return float((part - exact).norm() / exact.norm()), float(part @ exact / (exact @ exact))


def test_three_levels_lose_what_max_computed(ranks):
    """Max, Quantizing for Minimum Distortion (1960), table I: three levels leave .1902 of a normal variable's variance."""
    for error, kept in ranks.run(4, three_level_sums):
        assert abs(error - 0.1902**0.5) < 0.01 and abs(kept - (1 - 0.1902)) < 0.01, (error, kept)


def by_algorithm(rank, size, n):
    """What an all-reduce gives and sends on 2 nodes of 2 ranks, by algorithm: equal to messages and sums made by hand."""
    communicator = zeropp.Communicator(ranks_per_node=2, compared_calls=99)
    intra_node, inter_node = "int8:256:bf16", "int4:128:signed:bf16"
    of_rank = [[slice_of(drawn(n, r), owner, size) for owner in range(size)] for r in range(size)]
    one, two = (zeropp.quantize(torch.zeros(-(-n // size)), format).numel() for format in (intra_node, inter_node))
    by_hand = {"one_shot": [], "two_shot": []}
    for owner in range(size):
        sent = [through(parts[owner], intra_node) for parts in of_rank]
        # By index in the node, then by node.
        by_hand["one_shot"].append(in_order([sent[r] for r in (0, 2, 1, 3)]) / size)
        nodes = [through(in_order(sent[:2]), inter_node), through(in_order(sent[2:]), inter_node)]
        by_hand["two_shot"].append(through(in_order(nodes) / size, inter_node))
    by_hand = {algorithm: torch.cat(parts) for algorithm, parts in by_hand.items()}
    by_hand["by_size"] = by_hand["one_shot" if n < 32768 else "two_shot"]
    traffic = {"one_shot": (size * 2 * one, size * one), "two_shot": (2 * (one + two), 2 * two)}
    traffic["by_size"] = traffic["one_shot" if n < 32768 else "two_shot"]
    for algorithm, expected in by_hand.items():
        tensor, before = drawn(n, rank), communicator.traffic()
        zeropp.all_reduce(communicator, tensor, intra_node, inter_node, mean=True, algorithm=algorithm)
        sent = communicator.traffic() - before
        assert torch.equal(tensor, expected), algorithm
        assert (sent.intra_node, sent.inter_node) == traffic[algorithm], (algorithm, sent, traffic)


@pytest.mark.parametrize("n", [5000, 100003])
def test_an_all_reduce_has_the_algorithm_that_it_is_given(ranks, n):
    ranks.run(4, by_algorithm, n)


def wrong_algorithms(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2, compared_calls=99)
    tensor = drawn(5000, rank)
    feedback = zeropp.ErrorFeedback(communicator, tensor, "int8:256:bf16", of_all_reduce=True)

    def reduced(algorithm, **options):
        return lambda: zeropp.all_reduce(communicator, tensor, "int8:256:bf16", algorithm=algorithm, **options)

    return refusals(
        {
            "expected an algorithm, by_size, one_shot or two_shot, given ring": reduced("ring"),
            "expected algorithm as a string, given 1": reduced(1),
            "expected the algorithm `two_shot` for error feedback, given `one_shot`": reduced("one_shot", feedback=feedback),
            "given ring": reduced("ring" if rank == 2 else "by_size"),
            "given None": reduced(None if rank == 1 else "two_shot"),
            "sum of all on rank 3": reduced("one_shot" if rank == 3 else "two_shot"),
        }
    )


def test_a_wrong_algorithm_is_refused_on_all_ranks(ranks):
    assert ranks.run(4, wrong_algorithms) == 4 * [[]]


def fed_back(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2)
    n, steps = 5000, 40
    gradient = drawn(n, rank)
    formats = ("int4:128:signed:bf16", "int4:128:signed:bf16")
    exact = slice_of(exact_sum(size, n), rank, size)
    feedback = zeropp.ErrorFeedback(communicator, gradient, *formats)
    assert feedback.nbytes > n
    errors = []
    for memory in (None, feedback):
        parts = [torch.empty_like(exact) for _ in range(steps)]
        for part in parts:
            zeropp.reduce_scatter(communicator, gradient, part, *formats, feedback=memory)
        errors.append(float((sum(parts) / steps - exact).norm()))
    # After a spike, whose step is skipped, residuals start from zero again.
    zeropp.reduce_scatter(communicator, 1e6 * gradient, torch.empty_like(exact), *formats, feedback=feedback)
    feedback.reset()
    for expected in parts[:2]:
        zeropp.reduce_scatter(communicator, gradient, part, *formats, feedback=feedback)
        assert torch.equal(part, expected)
    return errors


def test_error_feedback_makes_up_for_what_was_lost(ranks):
    for plain, fed in ranks.run(4, fed_back):
        assert fed < plain / 10


def nothing_is_sent(rank, size):
    alone = zeropp.Communicator(dist.new_group([rank], use_local_synchronization=True))
    coarse = ("int8:256:bf16:h32", "int2:64:signed:bf16:h32")
    for dtype in LOSSLESS:
        given = drawn(997, rank, dtype)
        part, whole, mean = torch.empty_like(given), torch.empty_like(given), given.clone()
        shard_feedback = zeropp.ErrorFeedback(alone, given, *coarse)
        feedback = zeropp.ErrorFeedback(alone, given, *coarse, of_all_reduce=True)
        zeropp.all_gather(alone, given, whole, "int4:128:signed:bf16")
        assert torch.equal(whole, given)
        for shards_kept, kept in ((None, None), (shard_feedback, feedback), (shard_feedback, feedback)):
            zeropp.reduce_scatter(alone, given, part, *coarse, feedback=shards_kept)
            zeropp.all_reduce(alone, mean, *coarse, mean=True, feedback=kept)
            assert torch.equal(part, given) and torch.equal(mean, given)
    assert alone.traffic() == zeropp.Traffic(calls=7 * len(LOSSLESS))
    node = zeropp.Communicator()
    replica = zeropp.Replica(node, torch.empty(997))
    for seed in range(3):
        weights, full = drawn(997, seed), torch.empty(997)
        zeropp.update_gather(node, slice_of(weights, rank, size), full, replica, coarse[1])
        assert torch.equal(full, weights)
        zeropp.replica_gather(node, full.zero_(), replica)
        assert torch.equal(full, weights)
    return refusals({"one of fp32, fp16": lambda: zeropp.all_gather(alone, given, whole, "int9")})


def test_one_rank_rounds_nothing_and_one_node_no_differences(ranks):
    assert ranks.run(2, nothing_is_sent) == [[], []]


def on_a_numbered_cpu(rank, size):
    communicator = zeropp.Communicator(device="cpu:0")
    tensor = torch.full((8,), float(rank))
    zeropp.all_reduce(communicator, tensor, "fp32")
    assert (tensor == 1).all()


def test_the_processor_may_have_a_number(ranks):
    ranks.run(2, on_a_numbered_cpu)


def refused(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=2)
    full, shard = torch.empty(100), torch.empty(25)
    distributed = distribute_tensor(torch.ones(100), init_device_mesh("cpu", (size,)))
    feedback, replica = zeropp.ErrorFeedback(communicator, full, "fp32"), zeropp.Replica(communicator, full)

    def all_reduce(tensors, **arguments):
        return lambda: zeropp.all_reduce(communicator, tensors, "fp32", **arguments)

    of_distributed = [
        lambda: zeropp.all_gather(communicator, distributed, full, "fp32"),
        lambda: zeropp.reduce_scatter(communicator, full, distributed, "fp32"),
        all_reduce([full, distributed]),
        lambda: zeropp.update_gather(communicator, distributed, full, replica, "int2:64:signed:bf16:h32"),
        lambda: zeropp.replica_gather(communicator, distributed, replica),
        lambda: zeropp.ErrorFeedback(communicator, distributed, "fp32"),
        lambda: zeropp.Replica(communicator, distributed),
        lambda: zeropp.quantize(distributed, "fp32"),
        lambda: zeropp.dequantize(distributed, "fp32", (4,), torch.float32),
    ]
    calls = {
        "a Tensor of torch.sparse_coo on cpu": all_reduce(torch.eye(3).to_sparse()),
        "a UninitializedParameter": all_reduce(torch.nn.parameter.UninitializedParameter()),
        "expected tensors, given 5": all_reduce(5),
        "expected tensors, given None": all_reduce([full, None]),
        "expected tensors, given 'a'": lambda: zeropp.quantize("a", "fp32"),
        "formats as names, given None": lambda: zeropp.all_gather(communicator, shard, full, None),
        "formats as names, given 4": lambda: zeropp.quantize(full, 4),
        "ErrorFeedback as an object of this class, given <": all_reduce(full, feedback=replica),
        "Replica as an object of this class, given <": lambda: zeropp.replica_gather(communicator, full, feedback),
        "one of fp32, fp16": lambda: zeropp.all_gather(communicator, shard, full, "int9"),
        "one of fp32 + fp32": lambda: zeropp.reduce_scatter(communicator, full, shard, "bf16", "fp32"),
        "torch.float64": lambda: zeropp.all_gather(communicator, shard.double(), full.double(), "fp32"),
        "expected tensors of one type": lambda: zeropp.all_gather(communicator, shard.half(), full, "fp32"),
        "contiguous": lambda: zeropp.all_reduce(communicator, torch.empty(4, 4).t()[1:], "fp32"),
        "expected a shard of 25": lambda: zeropp.all_gather(communicator, full, full, "fp32"),
        "expected a multiple of": lambda: zeropp.all_to_all(communicator, torch.empty(101), torch.empty(101), "fp32"),
        "a Tensor of torch.strided on meta": lambda: zeropp.quantize(torch.empty(4, device="meta"), "fp32"),
        "expected 16 contiguous bytes": lambda: zeropp.dequantize(torch.empty(1, dtype=torch.uint8), "fp32", (4,), torch.float32),
        "ranks_per_node as a whole number from 1, given '2'": lambda: zeropp.Communicator(ranks_per_node="2"),
        "compared_calls as a whole number from 0, given -1": lambda: zeropp.Communicator(compared_calls=-1),
        "compare: expected calls as a whole number from 0, given -1": lambda: communicator.compare(-1),
        "given 'int8:256:bf16\\x00'": lambda: zeropp.quantize(full, "int8:256:bf16\0"),
        "group as a group of this rank, or None, given -100": lambda: zeropp.Communicator(dist.GroupMember.NON_GROUP_MEMBER),
        "nodes as a sequence, given 2": lambda: zeropp.Communicator(nodes=2),
        "each node as a whole number from 0, given 0.5": lambda: zeropp.Communicator(nodes=[0, 0, 0.5, 1]),
        "nodes, and nodes_per_site, below 2^31, given 4294967296": lambda: zeropp.Communicator(nodes=[0, 0, 1 << 32, 1 << 32]),
        "divide the group's 4 ranks": lambda: zeropp.Communicator(ranks_per_node=3),
        "in one order, given nodes [0, 1, 1, 0]": lambda: zeropp.Communicator(nodes=[0, 1, 1, 0]),
        "in one order, given nodes [0, 1, 0, 0]": lambda: zeropp.Communicator(nodes=[0, 1, 0, 0]),
        "either ranks_per_node or nodes": lambda: zeropp.Communicator(ranks_per_node=2, nodes=[0, 0, 1, 1]),
        "apply() has been called on": lambda: zeropp.refresh(torch.nn.Linear(1, 1)),
    }
    return refusals(calls) + [wrong for call in of_distributed for wrong in refusals({"a DTensor; pass its to_local()": call})]


def on_unequal_nodes(rank, size):
    communicator = zeropp.Communicator(nodes=[0, 0, 0, 1])
    full = torch.arange(37.0) * (rank + 1)
    shard = torch.empty(len(torch.arange(37).chunk(size)[rank]))
    zeropp.reduce_scatter(communicator, full, shard, "fp32")
    again = torch.empty(37)
    zeropp.all_gather(communicator, shard, again, "fp32")
    zeropp.all_reduce(communicator, full, "fp32")
    assert torch.equal(full, torch.arange(37.0) * 10) and torch.equal(again, full)


def test_nodes_may_differ_in_size(ranks):
    ranks.run(4, on_unequal_nodes)


def test_what_cannot_be_done_is_refused_in_words(ranks):
    for wrong in ranks.run(4, refused):
        assert wrong == []


def test_cuda_tensors_have_their_library_or_are_refused_in_words():
    try:
        assert zeropp._library.library("cuda").zeropp_device() == b"cuda"
    except zeropp.ZeroppError as error:
        assert "no library for CUDA tensors; install a wheel" in str(error)


def of_two_threads(rank, size, groups):
    """Ends of calls of two threads, which begin in opposite orders on the ranks: True after right sums, or an error's words."""
    process_groups = [dist.new_group(timeout=datetime.timedelta(seconds=10)) for _ in range(groups)]
    communicators = [zeropp.Communicator(group, ranks_per_node=1, compared_calls=0) for group in process_groups]
    ends = {}

    def work(thread):
        try:
            right = True
            for _ in range(50):
                tensor = torch.full((100003,), 10.0 * thread + rank)
                zeropp.all_reduce(communicators[thread % groups], tensor, "fp32")
                right = right and bool((tensor == 20.0 * thread + 1).all())
            ends[thread] = right
        except Exception as raised:
            ends[thread] = str(raised)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in (rank, 1 - rank)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ends


def test_a_process_group_has_the_calls_of_one_thread(ranks):
    assert ranks.run(2, of_two_threads, 2) == [{0: True, 1: True}] * 2
    for ends in ranks.run(2, of_two_threads, 1):
        assert all(isinstance(end, str) for end in ends.values()), ends
        assert any("so a thread takes a group of its own: dist.new_group()" in end for end in ends.values())


class Interrupted(Exception):
    pass


def interrupted(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=1)
    original = zeropp.communicator.all_gather_single

    def fails(*arguments, **keywords):
        raise Interrupted("by the test")

    zeropp.communicator.all_gather_single = fails
    try:
        zeropp.all_gather(communicator, torch.zeros(8), torch.empty(16), "fp32")
    except Interrupted as raised:
        return str(raised)
    finally:
        zeropp.communicator.all_gather_single = original


def test_an_exception_in_a_callback_is_that_exception(ranks):
    assert ranks.run(2, interrupted) == ["by the test"] * 2


def ends(rank, size):
    gc.disable()
    try:
        communicator = zeropp.Communicator(ranks_per_node=2)
        zeropp.all_reduce(communicator, torch.ones(8), "fp32")
        known = weakref.ref(communicator)
        del communicator
        return known() is None
    finally:
        gc.enable()


def gathers_of_many_sizes(rank, size):
    """Types that remain after calls with messages of 40 sizes, as exact differences have."""
    communicator = zeropp.Communicator(ranks_per_node=1)
    before = len(ctypes.Array.__subclasses__())
    for n in range(8, 648, 16):
        full = torch.empty(size * n)
        zeropp.all_gather(communicator, torch.full((n,), float(rank)), full, "fp32")
        assert torch.equal(full, torch.arange(size).float().repeat_interleave(n))
    gc.collect()
    return len(ctypes.Array.__subclasses__()) - before


def test_messages_of_many_sizes_leave_no_memory_behind(ranks):
    assert max(ranks.run(2, gathers_of_many_sizes)) < 5


def test_a_communicator_ends_with_the_last_reference_to_it(ranks):
    assert ranks.run(4, ends) == [True] * 4
