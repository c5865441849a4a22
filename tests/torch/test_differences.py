"""Differences of the weights that nodes keep: the functions, and FSDP2 with them."""

import dataclasses

import pytest
import torch
import zeropp_torch as zeropp
from models import (
    assert_same, batch, drawn, loss_of, network, plain_and_ours, refusals, shard, slice_of, the_same_on_all_ranks, train,
    whole_parameters,
)
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

INT4, INT2 = "int4:128:signed:bf16:h32", "int2:64:signed:bf16:h32"
THREE_LEVELS = "lloyd3:128:unbiased:h128"
SIZES = [1, 5, 997, 4096, 100003]
PER_NODE = 2


def follow(rank, size, per_node, dtype, differences):
    communicator = zeropp.Communicator(ranks_per_node=per_node)
    fulls = [torch.full((n,), float("nan"), dtype=dtype) for n in SIZES]
    replica = zeropp.Replica(communicator, fulls)
    of_this_rank = sum(-(-n // size) for n in SIZES) * fulls[0].element_size() * (size // per_node)
    assert of_this_rank <= replica.nbytes <= of_this_rank + 64 * fulls[0].element_size() * len(SIZES) * size
    weights = [drawn(n, n, dtype) for n in SIZES]

    def update():
        shards = [slice_of(w, rank, size) for w in weights]
        zeropp.update_gather(communicator, shards, fulls, replica, differences)
        assert the_same_on_all_ranks(torch.cat(fulls))
        # A backward pass: the same bits, from inside the node.
        again = [torch.empty_like(full) for full in fulls]
        before = communicator.traffic()
        zeropp.replica_gather(communicator, again, replica)
        assert (communicator.traffic() - before).inter_node == 0
        assert all(torch.equal(a, full) for a, full in zip(again, fulls))
        return [(w - full).float().abs().max().item() for w, full in zip(weights, fulls)]

    assert update() == [0] * len(SIZES), "the first update is exact"
    moved = [0.01 * drawn(n, n + 1, dtype) for n in SIZES]
    largest = [m.float().abs().max().item() for m in moved]
    weights = [w + m for w, m in zip(weights, moved)]
    errors = [update() for _ in range(12)]
    # Of rotated windows of 32: a difference is never larger than all of a window's together.
    assert all(e <= 6 * bound for e, bound in zip(errors[0], largest)), (errors[0], largest)
    # What is lost of one is in the next, down to what the type itself can say.
    finest = torch.finfo(dtype).eps * 5
    assert all(last <= max(finest, 0.1 * bound) for last, bound in zip(errors[-1], largest)), errors
    replica.invalidate()
    weights = [drawn(n, n + 2, dtype) for n in SIZES]
    assert update() == [0] * len(SIZES), "and so is the first one after invalidate"


@pytest.mark.parametrize("size, per_node, dtype", [(1, 1, torch.float32), (4, 2, torch.float32), (4, 2, torch.bfloat16),
                                                   (3, 1, torch.float16), (6, 3, torch.bfloat16), (6, 2, torch.float32)])
def test_what_nodes_keep_follows_the_weights(ranks, size, per_node, dtype):
    ranks.run(size, follow, per_node, dtype, INT4)
    ranks.run(size, follow, per_node, dtype, INT2)
    ranks.run(size, follow, per_node, dtype, THREE_LEVELS)
    if dtype.itemsize == 2:
        ranks.run(size, follow, per_node, dtype, "exact")


def three_levels_of_a_difference(rank, size):
    """The relative error of an update's difference, and its part of the exact one."""
    communicator = zeropp.Communicator(ranks_per_node=PER_NODE)
    n = 1 << 17
    old, moved = drawn(n, 0), 0.01 * drawn(n, 1)
    full = torch.empty(n)
    replica = zeropp.Replica(communicator, full)
    for weights in (old, old + moved):
        before = communicator.traffic()
        zeropp.update_gather(communicator, slice_of(weights, rank, size), full, replica, THREE_LEVELS)
        sent = communicator.traffic() - before
    # 128 elements take 26 bytes, five in each, and a byte for their scale.
    assert sent.inter_node == n // size // 128 * 27
    given = full - old
    return float((given - moved).norm() / moved.norm()), float(given @ moved / (moved @ moved))


def test_three_levels_keep_the_length_of_differences(ranks):
    """Levels of least error leave .1902 of a normal variable's variance (Max, 1960). Levels that are 1 / (1 - .1902) times as
    large keep all of it on average."""
    for error, kept in ranks.run(4, three_levels_of_a_difference):
        assert abs(kept - 1) < 0.01 and abs(error - (1 / (1 - 0.1902) - 1) ** 0.5) < 0.01, (error, kept)


def of_unlike_versions(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=PER_NODE)
    full = torch.empty(997)
    replica = zeropp.Replica(communicator, full)
    for step, ranks in enumerate([[], [0], [], [1, 3], range(size), []]):
        weights = drawn(997, step)
        if rank in ranks:
            replica.invalidate()
        zeropp.update_gather(communicator, slice_of(weights, rank, size), full, replica, INT4)
        assert the_same_on_all_ranks(full)
        assert torch.equal(full, weights) == (step == 0 or len(ranks) > 0), step


def test_one_rank_without_a_base_has_all_send_whole_tensors(ranks):
    ranks.run(4, of_unlike_versions)


def of_unchanged_shards(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=PER_NODE)
    full, again, weights = torch.empty(997), torch.empty(997), drawn(997, 0)
    replica = zeropp.Replica(communicator, full)

    def update(changed, full=full):
        before = communicator.traffic().inter_node
        zeropp.update_gather(communicator, slice_of(weights, rank, size), full, replica, INT2, changed=changed)
        return communicator.traffic().inter_node - before

    assert update(False) > 0, "the first update is sent in any case"
    weights += 0.1 * drawn(997, 1)
    assert update(True) > 0
    assert update(False, again) == 0 and torch.equal(again, full)
    assert update(rank == 2, again) > 0 and not torch.equal(again, full), "one rank's change is sent by all"
    if rank == 1:
        replica.invalidate()
    assert update(False) > 0 and torch.equal(full, weights), "a rank without a base gets whole tensors"


def test_unchanged_shards_are_not_sent(ranks):
    ranks.run(4, of_unchanged_shards)


def refused(rank, size):
    communicator = zeropp.Communicator(ranks_per_node=PER_NODE)
    full = torch.zeros(100)
    own = slice_of(full, rank, size)
    replica = zeropp.Replica(communicator, full)
    empty = zeropp.Replica(communicator, full)
    zeropp.update_gather(communicator, own, full, replica, INT2)

    def update(shard=own, full=full, replica=replica, differences=INT2):
        return lambda: zeropp.update_gather(communicator, shard, full, replica, differences)

    def unkept():
        model = shard(network())
        zeropp.apply(model, ranks_per_node=2)
        return model

    return refusals(
        {
            'expected one of int4:128:signed:bf16:h32, int2:64:signed:bf16:h32, lloyd3:128:unbiased:h128, exact, given "int8:256"': update(differences="int8:256"),
            "expected tensors of torch.float32 for this replica, given torch.bfloat16": update(own.bfloat16(), full.bfloat16()),
            "expected a shard of 25 elements of 100, given one of": update(slice_of(torch.zeros(101), rank, size)),
            "of 100 elements, given a list of 1 tensors": update(full=torch.zeros(101)),
            "given an empty one": lambda: zeropp.replica_gather(communicator, full, empty),
            "expected as many shards as full tensors": update([own, own]),
            "expected elements of 16 bits for exact differences, given fp32": update(differences="exact"),
            "expected weights gathered in 16 bits for exact differences, given fp32": lambda: zeropp.apply(
                shard(network()), ranks_per_node=2, differences="exact"
            ),
            "changes: expected differences or kept weights, given none": lambda: zeropp.changes(unkept()),
            "differences: expected one of": lambda: zeropp.apply(shard(network()), ranks_per_node=2, differences="int8:256:fp16"),
        }
    )


def test_what_cannot_be_is_refused(ranks):
    for problems in ranks.run(4, refused):
        assert not problems, problems


MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def trained(rank, size, secondary):
    def make():
        return shard(network(), secondary=secondary, mp_policy=MIXED)

    formats = {"preset": "2bit"}, {"differences": INT4}
    *results, two_bits, four_bits = plain_and_ours(rank, make, PER_NODE, *formats, steps=20, lr=0.02)
    assert two_bits.after.inter_node < two_bits.before.inter_node / 5
    assert four_bits.after.inter_node < four_bits.before.inter_node / 3
    return [losses for losses, _ in results]


@pytest.mark.parametrize("secondary", [None, 2])
def test_fsdp_trains_on_differences(ranks, secondary):
    for plain, *of_formats in ranks.run(4, trained, secondary):
        for ours in of_formats:
            assert ours[-1] < 0.8 * ours[0] and abs(ours[-1] / plain[-1] - 1) < 0.05, (plain, ours)


def bits_of_shards(model):
    """This rank's weights as the model's units gather them, as integers."""
    return [p._local_tensor.detach().bfloat16().view(torch.int16) for p in model.parameters()]


def exact(rank, size):
    """Losses and weights have the bits of plain FSDP2; forward sends what an optimizer's steps change, and backward nothing."""
    results, shards = [], []
    for formats in (None, {"differences": "exact", "gradients": None}):
        model = shard(network(), mp_policy=MIXED)
        seen, sent = [], []
        model.blocks[1].up.register_forward_pre_hook(lambda module, _: seen.append(module.weight.detach().clone()))
        if formats is not None:
            report = zeropp.apply(model, ranks_per_node=PER_NODE, **formats)
            each = lambda model, step: sent.append(zeropp.stats(model).inter_node)  # noqa: E731
        else:
            each = lambda model, step: shards.append(bits_of_shards(model))  # noqa: E731
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = train(model, rank, steps=12, optimizer=optimizer, each=each)
        results.append((losses, seen, whole_parameters(model)))
    (plain, plain_seen, plain_weights), (ours, ours_seen, weights) = results
    assert plain == ours and all(map(torch.equal, plain_seen, ours_seen))
    assert_same(plain_weights, weights)
    steps = [b - a for a, b in zip(sent, sent[1:])]
    # Each step changes most weights of so small a model, by few of bfloat16's values.
    assert all(0 < step < report.after.inter_node / 1.5 for step in steps), (steps, report.after)
    # Counted anew, of plain FSDP2's weights.
    found = zeropp.changes(model)
    moved = sum(int((a != b).sum()) for before, after in zip(shards, shards[1:]) for a, b in zip(before, after))
    padded = sum(-(-p.shape[0] // size) * p.shape[1:].numel() for p in model.parameters())
    assert (found.updates, found.elements, found.changed) == (11 * len(report.rows), 11 * padded, moved), (found, moved)
    assert found.sent == sum(steps) and 1 <= found.whole / (11 * 2 * padded) < 1.01, (found.sent, found.whole, padded)
    assert found.exact and found.bits == 16 * found.sent / found.whole
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*(row.unit for row in report.rows), "all", *("-" for _ in found.advice)]
    assert f"{found.bits:.2f} bits a weight" in found.advice[0] and '"2bit" (2.25)' in found.advice[2]


def test_exact_differences_train_as_plain_fsdp(ranks):
    ranks.run(4, exact)


def test_exact_bits_are_advised_beside_frozen_weights():
    updated = zeropp.Changes("layers", True, updates=1, elements=10, changed=5, sent=10, whole=20, whole_elements=10)
    assert "--exact-bits 8.00" in zeropp.Changes.of([updated, zeropp.Changes("embedding", False)]).advice[1]
    rounded = dataclasses.replace(updated, exact=False)
    assert not any("--exact-bits" in sentence for sentence in zeropp.Changes.of([updated, rounded]).advice)


def counted(rank, size):
    model = shard(network(), mp_policy=MIXED)
    report = zeropp.apply(model, ranks_per_node=PER_NODE, preset="2bit")
    assert report.rows[1].weights == "differences in " + INT2 and "again" not in report.rows[1].note
    train(model, rank, steps=1)
    before = zeropp.stats(model)
    loss = loss_of(model, batch(1, rank))
    forward = zeropp.stats(model) - before
    loss.backward()
    sent = zeropp.stats(model) - before
    assert (sent.intra_node, sent.inter_node) == (report.after.intra_node, report.after.inter_node), "to the byte, from the second step on"
    assert 0 < forward.inter_node < sent.inter_node


def test_the_report_is_what_is_sent(ranks):
    ranks.run(4, counted)


def computed_again(rank, size, implementation):
    model = shard(network(), mp_policy=MIXED)
    for i, block in enumerate(model.blocks):
        model.blocks[i] = checkpoint_wrapper(block, checkpoint_impl=implementation)
    report = zeropp.apply(model, ranks_per_node=PER_NODE, gradients=None, differences=INT2)
    train(model, rank, steps=2)
    loss = loss_of(model, batch(5, rank))
    before = zeropp.stats(model)
    loss.backward()
    assert (zeropp.stats(model) - before).inter_node == 0, "backward is served inside the node"
    assert "differences" in str(report)


@pytest.mark.parametrize("implementation", list(CheckpointImpl))
def test_backward_sends_nothing_across_nodes(ranks, implementation):
    ranks.run(4, computed_again, implementation)


def used_again(rank, size, formats, frozen):
    """What lies between a forward and its backward changes no bit of the weights, and sends nothing between nodes."""
    unit = torch.nn.Linear(64, 64, bias=False).requires_grad_(not frozen)
    model = zeropp.fully_shard(torch.nn.Sequential(zeropp.fully_shard(unit)))
    zeropp.apply(model, ranks_per_node=PER_NODE, **formats)
    seen = []
    unit.register_forward_pre_hook(lambda module, _: seen.append(module.weight.detach().clone()))
    other = torch.randn(4, 64)

    def evaluate():
        with torch.no_grad():
            model(other)
        return 0

    def evaluate_with_torch():
        with zeropp.disabled():
            return evaluate()

    def change(how):
        (weight,) = model.parameters()
        own = weight.to_local()
        new = own * 0.9 + 0.01 * (torch.arange(own.numel()).view_as(own) % 7)
        if how == "one rank":
            new = new if rank == 1 else own.clone()
        with torch.inference_mode() if how == "inference" else torch.no_grad():
            own.data.copy_(new) if how == "data" else own.copy_(new)

    def sent(call):
        before = zeropp.stats(model).inter_node
        return call(), zeropp.stats(model).inter_node - before

    between = [lambda: 0, lambda: model(other).square().sum(), evaluate, evaluate_with_torch, lambda: change("step") or 0]
    for step, call in enumerate(between):
        change(["data", "inference", "one rank", "step", "step"][step])
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(10 * step + rank)).requires_grad_()
        y, of_change = sent(lambda: model(x))
        assert of_change > 0, f"{step}: a change is sent"
        weights = seen[-1]
        more, of_none = sent(call)
        assert of_none == 0, f"{step}: no change, and {of_none} bytes"
        _, of_backward = sent((y.square().sum() + more).backward)
        assert torch.equal(x.grad, 2 * y.detach() @ weights), f"{step}: backward's weights are not its forward's"
        assert frozen == (of_backward == 0), "of gradients alone"


@pytest.mark.parametrize(
    "formats, frozen", [({"preset": "2bit"}, False), ({"keep_frozen": True}, True), ({"keep_weights": True}, False)]
)
def test_backward_has_the_weights_of_its_forward(ranks, formats, frozen):
    ranks.run(4, used_again, formats, frozen)


def accumulated(rank, size):
    """A step of four microbatches sends as much between nodes as one of one, and the report says what each adds."""
    kept = []
    for formats in ({"preset": "2bit"}, {"keep_weights": True}, {"preset": "lossless", "keep_weights": True}):
        model = shard(network(), mp_policy=MIXED)
        report = zeropp.apply(model, ranks_per_node=PER_NODE, **formats)
        kept.append(train(model, rank, steps=3))
        sent = []
        for count, synchronised in ((1, 0), (4, 3), (4, 0)):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(0.99)
            began = zeropp.stats(model)
            for microbatch in range(count):
                before = zeropp.stats(model)
                model.set_requires_gradient_sync(microbatch >= synchronised)
                loss_of(model, batch(microbatch, rank)).backward()
            sent.append(zeropp.stats(model) - began)
        assert sent[0].inter_node == sent[1].inter_node == report.after.inter_node, formats
        each = sum((row.microbatch for row in report.rows), zeropp.Traffic())
        assert sent[2].inter_node == report.after.inter_node + 3 * each.inter_node, formats
        assert (zeropp.stats(model) - before).intra_node == each.intra_node
        assert str(each.inter_node) in str(report).splitlines()[len(report.rows) + 1]
    # Nodes keep what they would gather again.
    for formats, losses in zip(({}, {"preset": "lossless"}), kept[1:]):
        model = shard(network(), mp_policy=MIXED)
        report = zeropp.apply(model, ranks_per_node=PER_NODE, **formats)
        assert train(model, rank, steps=3) == losses
        assert [row.microbatch for row in report.rows] == [row.after for row in report.rows]


def test_microbatches_do_not_send_weights_again(ranks):
    ranks.run(4, accumulated)


def loaded(rank, size, how):
    """The logits of a model that has taken over other weights, and of a plain one with them."""
    def sharded(model):
        if how == "by parts":
            zeropp.fully_shard([model.embed, model.head], mesh=init_device_mesh("cpu", (size,)), mp_policy=MIXED)
        return shard(model, mp_policy=MIXED)

    model = sharded(network())
    zeropp.apply(model, ranks_per_node=PER_NODE, preset="2bit")
    train(model, rank, steps=2)
    torch.manual_seed(99)
    other = type(network())()
    plain = sharded(other)
    if how == "by hand":
        with torch.no_grad():
            for ours, theirs in zip(model.parameters(), plain.parameters()):
                ours.copy_(theirs)
        zeropp.refresh(model)
    elif how == "whole":
        model.load_state_dict(plain.state_dict())
    else:
        # One of two modules that are one unit.
        plain.embed.load_state_dict(model.embed.state_dict())
        for ours, theirs in zip([*model.blocks, model.head], [*plain.blocks, plain.head]):
            ours.load_state_dict(theirs.state_dict())
    tokens, _ = batch(3, rank)
    with torch.no_grad():
        assert torch.equal(model(tokens), plain(tokens))


@pytest.mark.parametrize("how", ["whole", "by parts", "by hand"])
def test_loaded_weights_are_sent_whole(ranks, how):
    ranks.run(4, loaded, how)


def by_turns(rank, size):
    model = shard(network(), mp_policy=MIXED)
    zeropp.apply(model, ranks_per_node=PER_NODE, preset="2bit")
    train(model, rank, steps=2)
    before = zeropp.stats(model)
    with zeropp.disabled():
        loss = loss_of(model, batch(7, rank))
        loss.backward()
    assert zeropp.stats(model) == before
    # Backward with ours, of a forward without: there is nothing that it could be answered from.
    with zeropp.disabled():
        loss = loss_of(model, batch(8, rank))
    loss.backward()
    return train(model, rank, steps=3)


def test_with_and_without_by_turns(ranks):
    for losses in ranks.run(4, by_turns):
        assert all(loss == loss for loss in losses), losses
