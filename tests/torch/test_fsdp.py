"""FSDP2 with zeropp's collectives beside FSDP2 as it is."""

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import zeropp_torch as zeropp
from models import assert_same, batch, loss_of, network, plain_and_ours, refusals, shard, train, whole_parameters
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import MixedPrecisionPolicy

LOSSLESS = {"preset": "lossless"}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def compare(rank, size, ranks_per_node, formats, make, sharded=None, each=None):
    plain, ours, _ = plain_and_ours(
        rank, lambda: shard(make(), **(sharded or {})), ranks_per_node, formats, each=each
    )
    return plain, ours


def lossless(rank, size, ranks_per_node, exact, make=network, sharded=None, each=None):
    (plain_losses, plain), (our_losses, ours) = compare(rank, size, ranks_per_node, LOSSLESS, make, sharded, each)
    if exact:
        assert plain_losses == our_losses
        assert_same(plain, ours)
    else:
        assert torch.allclose(torch.tensor(plain_losses), torch.tensor(our_losses), rtol=1e-5)
        assert_same(plain, ours, **CLOSE)


def test_lossless_is_plain_fsdp_to_the_bit_where_sums_have_one_order(ranks):
    ranks.run(2, lossless, 1, True)
    ranks.run(2, lossless, 2, True)


@pytest.mark.parametrize("size, ranks_per_node", [(4, 2), (3, 1), (6, 3)])
def test_lossless_is_plain_fsdp(ranks, size, ranks_per_node):
    ranks.run(size, lossless, ranks_per_node, False)


def quantized(rank, size, formats):
    (plain, _), (ours, _) = compare(rank, size, 2, formats, network)
    return plain, ours


@pytest.mark.parametrize("preset", sorted(zeropp.PRESETS))
def test_presets_train_as_plain_fsdp_does(ranks, preset):
    for plain, ours in ranks.run(4, quantized, {"preset": preset}):
        assert ours[-1] < ours[0]
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)


def test_error_feedback_trains(ranks):
    gradients = ("int4:128:signed:bf16", "int4:128:signed:bf16")
    formats = {"weights": "int8:256:fp16", "gradients": gradients, "error_feedback": True}
    for plain, ours in ranks.run(4, quantized, formats):
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)


def used_by_turns(rank, size):
    model = shard(network())
    block = model.blocks[1]
    whole = block.forward
    block.forward = lambda x: whole(x) if block.all_used else x + block.norm(x)
    report = zeropp.apply(model, ranks_per_node=2, weights=None, gradients="int4:128:signed:bf16", error_feedback=True)
    assert report.rows[2].gradients.startswith("int4")

    def each(model, step):
        block.all_used = step % 2 == 0

    each(model, 0)
    return train(model, rank, steps=6, each=each)


def test_error_feedback_where_not_all_of_a_unit_is_used(ranks):
    for losses in ranks.run(4, used_by_turns):
        assert losses[-1] < losses[0], losses


def mixed(rank, size, parameters, reduction):
    policy = {"mp_policy": MixedPrecisionPolicy(param_dtype=parameters, reduce_dtype=reduction)}
    (plain, _), (ours, _) = compare(rank, size, 2, {"preset": "4bit"}, network, policy)
    return plain, ours


@pytest.mark.parametrize(
    "parameters, reduction",
    [(torch.bfloat16, torch.float32), (torch.bfloat16, None), (torch.float16, torch.float16), (None, torch.bfloat16)],
)
def test_mixed_precision(ranks, parameters, reduction):
    for plain, ours in ranks.run(4, mixed, parameters, reduction):
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)


def secondary(rank, size):
    model = shard(network(), secondary=2)
    groups = {id(g.post_forward_mesh_info.mesh) for b in model.blocks for g in [b._get_fsdp_state()._fsdp_param_group]}
    assert len(groups) == 1, "one mesh for all modules"
    report = zeropp.apply(model, ranks_per_node=2, **LOSSLESS)
    (root, *blocks) = report.rows
    loss = loss_of(model, batch(0, rank))
    forward = zeropp.stats(model)
    assert forward.calls == 1 + len(blocks)
    loss.backward()
    backward = zeropp.stats(model) - forward
    assert backward.calls == 1 + len(blocks), "backward reduces, and gathers nothing from all ranks"
    assert forward.inter_node + backward.inter_node == report.after.inter_node
    (plain_losses, plain), (losses, ours) = compare(rank, size, 2, LOSSLESS, network, {"secondary": 2})
    assert_same(plain, ours, **CLOSE)


def test_backward_of_hpz_sends_nothing_across_nodes(ranks):
    ranks.run(4, secondary)


def hpz_of_all_ranks(rank, size):
    report = zeropp.apply(shard(network(), secondary=size), ranks_per_node=2)
    alone = zeropp.apply(shard(network()), ranks_per_node=2)
    assert report.rows == alone.rows, "it is torch's reshard_after_forward=True"


def test_hpz_of_all_ranks_is_none(ranks):
    ranks.run(4, hpz_of_all_ranks)


def hpz_in_groups_that_cross_nodes(rank, size):
    model = shard(network(), secondary=2)
    report = zeropp.apply(model, ranks_per_node=1, **LOSSLESS)
    return [row.note for row in report.rows]


def test_hpz_groups_that_cross_nodes_are_told(ranks):
    for notes in ranks.run(4, hpz_in_groups_that_cross_nodes):
        assert "hpZ's groups cross nodes" in notes


def accumulation(rank, size):
    def make():
        return network()

    results = []
    for ours in (False, True):
        model = shard(make())
        if ours:
            zeropp.apply(model, ranks_per_node=2, **LOSSLESS)
        before = zeropp.stats(model) if ours else None
        for micro in range(3):
            model.set_requires_gradient_sync(micro == 2)
            loss_of(model, batch(micro, rank)).backward()
            if ours and micro < 2:
                gathers = zeropp.stats(model) - before
                assert gathers.calls == (micro + 1) * 7, "gathers alone: four of forward, three of backward"
        results.append({n: p.grad.full_tensor() for n, p in model.named_parameters()})
    assert_same(*results, **CLOSE)


def test_gradients_are_accumulated_without_sending(ranks):
    ranks.run(4, accumulation)


def state_dict(rank, size):
    model = shard(network())
    zeropp.apply(model, ranks_per_node=2, preset="4bit")
    train(model, rank, steps=2)
    saved = {n: t.full_tensor().clone() for n, t in get_model_state_dict(model).items()}
    masters = whole_parameters(model)
    assert_same(saved, masters)
    again = shard(network())
    zeropp.apply(again, ranks_per_node=2, preset="4bit")
    set_model_state_dict(again, get_model_state_dict(model))
    assert_same(whole_parameters(again), masters)
    assert float(loss_of(again, batch(9, rank))) == float(loss_of(model, batch(9, rank)))


def test_state_dict_is_of_the_master_parameters(ranks):
    ranks.run(4, state_dict)


def saved_and_loaded(rank, size, folder):
    def state(model, optimizer):
        parameters, moments = get_state_dict(model, optimizer)
        return {"model": parameters, "optimizer": moments}

    def made():
        model = shard(network(), secondary=2)
        zeropp.apply(model, ranks_per_node=2, preset="4bit")
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(model, optimizer, number):
        loss_of(model, batch(number, rank)).backward()
        optimizer.step()
        optimizer.zero_grad()

    model, optimizer = made()
    step(model, optimizer, 0)
    dcp.save(state(model, optimizer), checkpoint_id=folder)
    again, its_optimizer = made()
    step(again, its_optimizer, 5)  # elsewhere, before it is brought back
    restored = state(again, its_optimizer)
    dcp.load(restored, checkpoint_id=folder)
    set_state_dict(again, its_optimizer, model_state_dict=restored["model"], optim_state_dict=restored["optimizer"])
    step(model, optimizer, 1)
    step(again, its_optimizer, 1)
    assert_same(whole_parameters(model), whole_parameters(again))


def test_a_training_goes_on_from_a_checkpoint_to_the_bit(ranks, tmp_path):
    ranks.run(4, saved_and_loaded, str(tmp_path))


def compiled():
    model = network()
    for block in model.blocks:
        block.compile(backend="aot_eager")
    return model


def checkpointed():
    model = network()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = checkpoint_wrapper(block)
    return model


def frozen():
    model = network()
    for p in model.blocks[0].parameters():
        p.requires_grad_(False)
    model.blocks[1].norm.weight.requires_grad_(False)
    return model


def tied():
    return network(tied=True)


def narrow():
    return network(width=1, blocks=2)  # shards of most parameters are empty on most ranks


@pytest.mark.parametrize("make", [checkpointed, compiled, frozen, tied, narrow])
@pytest.mark.parametrize("secondary", [None, 2])
def test_models_of_all_kinds(ranks, make, secondary):
    ranks.run(4, lossless, 2, False, make, {"secondary": secondary})


def counted(rank, size, make):
    model = shard(make())
    report = zeropp.apply(model, ranks_per_node=2, preset="4bit")
    loss_of(model, batch(0, rank)).backward()
    sent = zeropp.stats(model)
    assert (sent.intra_node, sent.inter_node) == (report.after.intra_node, report.after.inter_node)


@pytest.mark.parametrize("make", [network, frozen, tied, narrow])
def test_the_report_is_what_is_sent(ranks, make):
    ranks.run(4, counted, make)


def clips(model, step):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)


def evaluates(model, step):
    with torch.no_grad():
        loss_of(model, batch(77, dist.get_rank()))
    # Or else the next forward would have the weights of before the optimizer's step, with plain FSDP2 too.
    for module in [*model.blocks, model]:
        module.reshard()


@pytest.mark.parametrize("each", [clips, evaluates])
@pytest.mark.parametrize("secondary", [None, 2])
def test_what_happens_between_steps(ranks, each, secondary):
    ranks.run(4, lossless, 2, False, network, {"secondary": secondary}, each)


def reports(rank, size):
    model = shard(network())
    slow = zeropp.Machine(inter_node_gbit=0.2)
    report = zeropp.apply(model, ranks_per_node=2, preset="4bit", exclude=("blocks.1",), machine=slow)
    rows = {row.unit: row for row in report.rows}
    assert list(rows) == ["(root)", "blocks.0", "blocks.1", "blocks.2"]
    assert rows["blocks.1"].note == "left out: excluded" and rows["blocks.1"].weights == "-"
    assert rows["blocks.0"].gradients == "int8:256:bf16 + int4:128:signed:bf16"
    assert rows["blocks.0"].before.inter_node > 3 * rows["blocks.0"].after.inter_node
    assert report.advice == []
    fast = zeropp.apply(shard(network()), ranks_per_node=2, preset="4bit", machine=zeropp.Machine(inter_node_gbit=1600))
    assert [advice.split(" because")[0] for advice in fast.advice] == ["No gain expected,"]
    loss_of(model, batch(0, rank)).backward()
    assert zeropp.stats(model).inter_node == (report.after - rows["blocks.1"].after).inter_node, "what is left out is not counted"
    text = str(report)
    assert "int4:128:signed:bf16" in text and "left out: excluded" in text and str(report.before.inter_node) in text
    nothing = zeropp.apply(shard(network()), ranks_per_node=2, preset="4bit", exclude=("norm",), machine=slow)
    assert len(nothing.advice) == 1 and 'Nothing is excluded by "norm"' in nothing.advice[0]
    alone = zeropp.apply(shard(network()), ranks_per_node=size)
    assert [advice.split(",")[0] for advice in alone.advice] == ["No gain expected on one node"]


def test_the_report_says_what_is_done_and_left_out(ranks):
    ranks.run(4, reports)


def without_ours(rank, size):
    model = shard(network())
    zeropp.apply(model, ranks_per_node=2, preset="4bit")
    with zeropp.disabled():
        train(model, rank, steps=1)
    assert zeropp.stats(model).calls == 0
    train(model, rank, steps=1)
    assert zeropp.stats(model).calls > 0


def test_disabled_is_plain(ranks):
    ranks.run(4, without_ours)


def refused(rank, size):
    return refusals(
        {
            "ranks_per_node from 1, given 0": lambda: zeropp.apply(shard(network()), ranks_per_node=0),
            "a sequence of patterns": lambda: zeropp.apply(shard(network()), ranks_per_node=2, exclude="blocks"),
            "FSDP2 units": lambda: zeropp.apply(network(), ranks_per_node=2),
            "expected one of lossless, fp32, fp16": lambda: zeropp.apply(shard(network()), ranks_per_node=2, weights="int3"),
            "given int4:128:signed:bf16 + bf16": lambda: zeropp.apply(
                shard(network()), ranks_per_node=2, gradients=("int4:128:signed:bf16", "bf16")
            ),
            "preset: expected one of lossless, 16bit": lambda: zeropp.apply(shard(network()), ranks_per_node=2, preset="5bit"),
            "given both": lambda: zeropp.fully_shard(network(), secondary=2, reshard_after_forward=True),
            "apply() has been called on": lambda: zeropp.stats(network()),
        }
    )


def test_what_cannot_be_done_is_refused(ranks):
    for wrong in ranks.run(4, refused):
        assert wrong == []


def test_deepspeeds_keys_are_understood():
    section = {"zero_quantized_weights": True, "zero_quantized_gradients": False, "zero_hpz_partition_size": 8}
    assert zeropp.from_deepspeed({"zero_optimization": section}) == {"weights": "int8:256:fp16", "gradients": None}
