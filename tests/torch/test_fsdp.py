"""FSDP2 with zeropp's collectives beside FSDP2 as it is."""

import math
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import zeropp_torch as zeropp
from models import (
    Given, as_torch_sums, assert_same, batch, frozen, loss_of, network, plain_and_ours, refusals, shard, tied, train,
    whole_parameters,
)
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
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


INT4 = "int4:128:signed:bf16"
FORMATS = [{"preset": preset} for preset in sorted(zeropp.PRESETS)]
FORMATS += [{"weights": "int8:256:fp16", "gradients": (INT4, INT4), "error_feedback": True}]


def quantized(rank, size):
    results = plain_and_ours(rank, lambda: shard(network()), 2, *FORMATS)
    return [losses for losses, _ in results[: 1 + len(FORMATS)]]


def test_formats_train_as_plain_fsdp_does(ranks):
    for plain, *of_formats in ranks.run(4, quantized):
        for ours, formats in zip(of_formats, FORMATS, strict=True):
            assert ours[-1] < ours[0] and abs(ours[-1] / plain[-1] - 1) < 0.02, (formats, plain, ours)


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


class Pair(nn.Module):
    """Two parameters of one size, one with much larger gradients."""

    def __init__(self):
        super().__init__()
        self.large, self.small = Given(64), Given(64)

    def forward(self, gradient):
        return self.large(100 * gradient) + self.small(gradient)


def trained_by_turns(rank, size):
    """Errors of a gradient that follows one of another parameter: sharded, and of replicas."""
    gradient = torch.randn(64, generator=torch.Generator().manual_seed(rank))
    mean = gradient.clone()
    dist.all_reduce(mean)
    errors = []
    for shape, which in (((size,), "gradients"), ((size, 1), "replicas")):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[: len(shape)])
        model = zeropp.fully_shard(Pair(), mesh=mesh)
        zeropp.apply(model, ranks_per_node=1, **{"gradients": None, which: "int4:128:signed:bf16"}, error_feedback=True)
        for trained, frozen in ((model.large, model.small), (model.small, model.large)):
            frozen.weight.requires_grad_(False)
            trained.weight.requires_grad_(True)
            model(gradient).backward()
        errors.append(float((model.small.weight.grad.full_tensor() - mean / size).abs().max()))
    return errors


def test_error_feedback_is_of_the_parameters_that_are_trained(ranks):
    for errors in ranks.run(2, trained_by_turns):
        assert max(errors) < 0.5, errors


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
    of_all, alone = (zeropp.apply(shard(network(), secondary=group), ranks_per_node=2) for group in (size, None))
    assert of_all.rows == alone.rows, "it is torch's reshard_after_forward=True"


def test_backward_of_hpz_sends_nothing_across_nodes(ranks):
    ranks.run(4, secondary)


def scheduled(rank, size):
    """Reduces after backward, as torch.distributed.pipelining does (PipelineStage, REDUCE_GRAD)."""
    results = []
    for ours in (False, True):
        model = shard(network())
        if ours:
            zeropp.apply(model, ranks_per_node=2, **LOSSLESS)
        for setting in (model.set_is_last_backward, model.set_reshard_after_backward, model.set_requires_gradient_sync):
            setting(False)
        for micro in range(2):
            loss_of(model, batch(micro, rank)).backward()
        for setting in (model.set_is_last_backward, model.set_reshard_after_backward, model.set_requires_gradient_sync):
            setting(True)
        for unit in zeropp.units.units_of(model):
            unit.groups[0].post_backward()
        model._get_fsdp_state()._root_post_backward_final_callback()
        results.append({n: p.grad.full_tensor() for n, p in model.named_parameters()})
    assert_same(*results, **CLOSE)


def test_gradients_are_reduced_after_backward(ranks):
    ranks.run(4, scheduled)


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


def narrow():
    return network(width=1, blocks=2)  # shards of most parameters are empty on most ranks


@pytest.mark.parametrize("make", [compiled, frozen, narrow])
@pytest.mark.parametrize("secondary", [None, 2])
def test_models_of_all_kinds(ranks, make, secondary):
    ranks.run(4, lossless, 2, False, make, {"secondary": secondary})


def counted(rank, size):
    for make in (network, frozen, tied, narrow):
        model = shard(make())
        report = zeropp.apply(model, ranks_per_node=2, preset="4bit")
        loss_of(model, batch(0, rank)).backward()
        sent = zeropp.stats(model)
        assert (sent.intra_node, sent.inter_node) == (report.after.intra_node, report.after.inter_node), make


def test_the_report_is_what_is_sent(ranks):
    ranks.run(4, counted)


def clips_and_evaluates(model, step):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with torch.no_grad():
        loss_of(model, batch(77, dist.get_rank()))
    # Or else the next forward would have the weights of before the optimizer's step, with plain FSDP2 too.
    for module in [*model.blocks, model]:
        module.reshard()


@pytest.mark.parametrize("secondary", [None, 2])
def test_what_happens_between_steps(ranks, secondary):
    ranks.run(4, lossless, 2, False, network, {"secondary": secondary}, clips_and_evaluates)


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
    columns = "intra-node bytes, before bytes, after inter-node bytes, before bytes, after bytes between nodes, further microbatch"
    assert text.splitlines()[0].split()[-len(columns.split()) :] == columns.split()
    assert "int4:128:signed:bf16" in text and "left out: excluded" in text and str(report.before.inter_node) in text
    def excluded(*patterns):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            of = zeropp.apply(shard(network(width=8, blocks=11)), ranks_per_node=2, exclude=patterns, machine=slow)
        return [row.unit for row in of.rows if row.note], of.advice, [str(w.message) for w in warned]

    units, (advice,), (warned,) = excluded("norm")
    assert units == [] and 'Nothing is excluded by "norm"' in advice and warned == "apply: " + advice
    assert excluded("blocks.1")[0] == ["blocks.1"], "and not blocks.10"
    assert excluded("10", "(root)")[0] == ["(root)", "blocks.10"]
    assert excluded("blocks")[0] == [f"blocks.{i}" for i in range(11)]
    assert excluded("*1*") == (["blocks.1", "blocks.10"], [], [])
    assert excluded("*")[1:] == (["Nothing goes through zeropp: all units are left out."], [])
    alone = zeropp.apply(shard(network()), ranks_per_node=size)
    assert [advice.split(",")[0] for advice in alone.advice] == ["No gain expected on one node"]


def test_the_report_says_what_is_done_and_left_out(ranks):
    ranks.run(4, reports)


def refused(rank, size):
    """Problems of refusals. None may change the model."""
    model = shard(network())

    def settings():
        return [zeropp.units.settings_of(unit.groups[0]) for unit in zeropp.units.units_of(model)]

    def given(**arguments):
        return lambda: zeropp.apply(model, **{"ranks_per_node": 2, **arguments})

    before = settings()
    problems = refusals(
        {
            "apply: expected ranks_per_node as a whole number from 1, given 0": given(ranks_per_node=0),
            "apply: expected ranks_per_node as a whole number from 1, given '2'": given(ranks_per_node="2"),
            "apply: expected compared_steps as a whole number from 0, given -1": given(compared_steps=-1),
            "apply: expected compared_steps as a whole number from 0, given 2.5": given(compared_steps=2.5),
            "apply: expected compared_steps as a whole number from 0, given True": given(compared_steps=True),
            "apply: expected error_feedback as a bool, given 'no'": given(error_feedback="no"),
            "formats of gradients or replicas with error_feedback, given neither": given(error_feedback=True, gradients=None),
            "apply: expected keep_frozen as a bool, given None": given(keep_frozen=None),
            "apply: expected keep_weights as a bool, given 1": given(keep_weights=1),
            "a format of weights with keep_weights, given differences": given(keep_weights=True, preset="2bit"),
            "a format of weights with keep_weights, given None": given(keep_weights=True, weights=None),
            "apply: expected machine as a Machine, given {'inter_node_gbit': 10}": given(machine={"inter_node_gbit": 10}),
            "expected fewer than the 24 of a GPU's memory, given 30": given(
                machine=zeropp.Machine(memory_gb=24, other_memory_gb=30)
            ),
            "apply: expected exclude as a sequence of patterns, given 'blocks'": given(exclude="blocks"),
            "apply: expected exclude as a sequence of patterns, given None": given(exclude=None),
            "apply: expected exclude as a sequence of patterns, given [1]": given(exclude=[1]),
            "expected one of lossless, fp32, fp16": given(weights="int3"),
            "mxfp4, given 8": given(weights=8),
            "fp8_e4m3:128:bf16 + mxfp4, given int4:128:signed:bf16 + bf16": given(gradients=("int4:128:signed:bf16", "bf16")),
            "int2:64:signed:bf16:h32, given bf16 + bf16 + fp32": given(gradients=("bf16", "bf16", "fp32")),
            "gradients: expected one of lossless, 16bit, 8bit": given(gradients="5bit"),
            "fp8_e4m3:128:bf16 + mxfp4, given 4": given(gradients=4),
            "fp8_e4m3:128:bf16 + mxfp4, given bf16": given(gradients=("bf16",)),
            "replicas: expected one of lossless, 16bit": given(replicas=4),
            "preset: expected one of lossless, 16bit": given(preset="5bit"),
            "2bit, given ['4bit']": given(preset=["4bit"]),
            "apply: expected either preset or weights, given both": given(preset="8bit", weights=None),
            "apply: expected either preset or gradients and differences, given both": given(
                preset="8bit", gradients="8bit", differences="int2:64:signed:bf16:h32"
            ),
            "apply: expected either weights or differences, given both": given(
                weights="bf16", differences="int2:64:signed:bf16:h32"
            ),
            "differences: expected one of int4": given(differences=2),
            "FSDP2 units": lambda: zeropp.apply(network(), ranks_per_node=2),
            "apply: expected model as a torch.nn.Module, given None": lambda: zeropp.apply(None, ranks_per_node=2),
            "given both": lambda: zeropp.fully_shard(network(), secondary=2, reshard_after_forward=True),
            "fully_shard: expected secondary as a whole number from 1, given '2'": lambda: zeropp.fully_shard(
                network(), secondary="2"
            ),
            "stats: expected a model that apply() has been called on": lambda: zeropp.stats(model),
            "remove: expected a model that apply() has been called on": lambda: zeropp.remove(model),
        }
    )
    if settings() != before:
        problems.append("a refused call has changed the model")
    return problems


def test_what_cannot_be_done_is_refused(ranks):
    for wrong in ranks.run(4, refused):
        assert wrong == []


def applied_again(rank, size):
    """Losses of plain FSDP2, and of models on which several calls have followed each other."""
    def losses(*calls):
        model = shard(network())
        before = [zeropp.units.settings_of(unit.groups[0]) for unit in zeropp.units.units_of(model)]
        for call in calls:
            call(model)
        if calls[-1:] == (zeropp.remove,):
            assert refusals({"apply() has been called on": lambda: zeropp.stats(model)}) == []
        same = [zeropp.units.settings_of(unit.groups[0]) for unit in zeropp.units.units_of(model)] == before
        hooks = [len(module._load_state_dict_post_hooks) for module in model.modules()]
        return train(model, rank, steps=2), same, sum(hooks)

    def apply(**arguments):
        return lambda model: zeropp.apply(model, ranks_per_node=2, **arguments)

    def of_a_part(model):
        zeropp.apply(model, ranks_per_node=2, preset="2bit", exclude=["(root)", "blocks.0", "blocks.2"])
        zeropp.apply(model.blocks[1], ranks_per_node=2, weights=None, gradients=None)

    two_bits, lossless = apply(preset="2bit", error_feedback=True), apply(preset="lossless")
    plain, of_lossless = losses(), losses(lossless)
    assert losses(two_bits)[0] != plain[0]
    assert losses(two_bits, zeropp.remove) == plain, "nothing is left"
    assert losses(two_bits, apply(weights=None, gradients=None)) == plain
    with warnings.catch_warnings(record=True):
        assert losses(two_bits, apply(preset="2bit", exclude=["*"])) == plain
    assert losses(of_a_part) == plain
    assert losses(two_bits, lossless) == of_lossless

    def fails(*_, **__):
        raise KeyError("by the test")

    original, zeropp.installation.ReduceScatter = zeropp.installation.ReduceScatter, fails
    try:
        assert losses(lambda model: pytest.raises(KeyError, two_bits, model)) == plain, "a failed call leaves nothing behind"
    finally:
        zeropp.installation.ReduceScatter = original


def test_a_second_call_replaces_the_first_and_remove_takes_it_back(ranks):
    ranks.run(4, applied_again)


def of_a_later_type(rank, size, formats, meshes):
    """fp32 weights in a model that was of bfloat16 when apply() ran, with plain FSDP2 and with ours."""
    results = []
    for ours in (False, True):
        model = shard(network().bfloat16(), mesh=init_device_mesh("cpu", meshes[0], mesh_dim_names=meshes[1]))
        if ours:
            report = zeropp.apply(model, ranks_per_node=1, **formats)
            assert "bf16" in report.rows[1].gradients
        as_torch_sums(model).float()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(1 + 2**-12)
        results.append((train(model, rank, steps=2), whole_parameters(model)))
    (plain_losses, plain), (our_losses, ours) = results
    assert plain_losses == our_losses and next(iter(ours.values())).dtype == torch.float32
    assert_same(plain, ours)


@pytest.mark.parametrize(
    "formats, meshes",
    [(LOSSLESS, ((2,), ("shard",))), ({"preset": "lossless", "replicas": "lossless"}, ((2, 2), ("replicate", "shard")))],
)
def test_lossless_is_of_the_type_that_tensors_have(ranks, formats, meshes):
    ranks.run(2 * len(meshes[0]), of_a_later_type, formats, meshes)


def spiked(rank, size):
    """Norms of gradients after a batch with a loss 1e5 times too large, that the caller skips."""
    def norms(feedback, spike, forget):
        model = shard(network())
        zeropp.apply(model, ranks_per_node=2, weights="lossless", gradients="4bit", error_feedback=feedback)
        found = []
        for step in range(5):
            factor = spike if step == 1 and rank == 1 else 1.0
            (loss_of(model, batch(step, rank)) * factor).backward()
            found.append(float(nn.utils.clip_grad_norm_(model.parameters(), float("inf")).full_tensor()))
            model.zero_grad()
            if step == 1:
                forget(model)
        return found

    def reset(model):
        zeropp.reset_feedback(model)

    def load(model):
        model.load_state_dict(model.state_dict())

    def nothing(model):
        pass

    plain = norms(False, 1.0, nothing)
    kept = norms(True, 1e5, nothing)
    assert kept[2] > 10 * plain[2], (kept, plain)
    for forget in (reset, load):
        forgotten = norms(True, 1e5, forget)
        assert forgotten[1] > 1000 * plain[1]
        assert forgotten[2:] == pytest.approx(plain[2:], rel=0.1), (forgotten, plain)
    # A GradScaler skips steps of infinite gradients. Their errors are no numbers, and are not kept.
    for spike in (float("inf"), float("nan")):
        skipped = norms(True, spike, nothing)
        assert not math.isfinite(skipped[1])
        assert skipped[2:] == pytest.approx(plain[2:], rel=0.1), (skipped, plain)


def test_error_feedback_of_skipped_steps(ranks):
    ranks.run(4, spiked)


def test_deepspeeds_keys_are_understood():
    section = {"stage": 3, "zero_quantized_weights": True, "zero_quantized_gradients": False, "zero_hpz_partition_size": 1}
    found = {"weights": "int8:256:fp16", "gradients": None}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert zeropp.from_deepspeed({"zero_optimization": section}) == zeropp.from_deepspeed(section) == found
        ours = {"preset": "8bit", "nodes_per_site": 2, "error_feedback": True}
        assert zeropp.from_deepspeed({"zero_optimization": section | {"zero_quantized_gradients": True}, "zeropp": ours}) == {
            "weights": "int8:256:fp16", "gradients": ("int8:256:bf16", "int8:256:bf16", None),
            "nodes_per_site": 2, "error_feedback": True
        }
        assert zeropp.from_deepspeed({"zero_optimization": section, "zeropp": {"differences": "exact"}}) == {
            "weights": None, "gradients": None, "differences": "exact"
        }
    # apply() would refuse error feedback without gradients.
    with pytest.warns(UserWarning, match='error_feedback of the section "zeropp" acts with zero_quantized_gradients, given without'):
        assert zeropp.from_deepspeed({"zero_optimization": section, "zeropp": {"error_feedback": True}}) == found
    section |= {"zero_hpz_partition_size": 8, "zero_quantized_nontrainable_weights": True, "zeropp_loco_param": {"err_beta": 0.8}}
    dropped = "zero_hpz_partition_size 8, zero_quantized_nontrainable_weights True, zeropp_loco_param {'err_beta': 0.8}"
    with pytest.warns(UserWarning, match=f"from_deepspeed: apply.. does not take {dropped}; "):
        assert zeropp.from_deepspeed({"zero_optimization": section}) == found
    with pytest.warns(UserWarning, match="from_deepspeed: apply.. does not take zeropp.ranks_per_node 8; "):
        zeropp.from_deepspeed({"zeropp": {"ranks_per_node": 8}})
    for key in "differences of the section", "gradients of the section":
        with pytest.warns(UserWarning, match=f"from_deepspeed: {key} .zeropp. acts with zero_quantized"):
            zeropp.from_deepspeed({"zeropp": {"differences": "exact", "gradients": "bf16"}})
    assert refusals(
        {
            "expected config as a mapping, as json.load() makes, given 'ds_config.json'": lambda: zeropp.from_deepspeed(
                "ds_config.json"
            ),
            "expected formats of weights and gradients": lambda: zeropp.from_deepspeed({"zeropp": {"weights": None}}),
            "expected zero_optimization as a mapping": lambda: zeropp.from_deepspeed({"zero_optimization": 3}),
            "expected zero_quantized_weights as a bool, given 'false'": lambda: zeropp.from_deepspeed(
                {"zero_quantized_weights": "false"}
            ),
        }
    ) == []
