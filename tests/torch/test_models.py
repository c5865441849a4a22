"""Models and trainings that users bring, beside plain FSDP2: experts, LoRA, Muon, offload, meta devices, loaded weights, and
skipped steps."""

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import assert_same, batch, loss_of, network, shard, train, whole_parameters
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy

LOSSLESS = {"preset": "lossless"}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def as_torch_sums(model):
    """`model`, which sums before it divides, as models of apply() do."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model


class Experts(nn.Module):
    """A router that gives each token to one expert of several. The last expert never has a token."""

    def __init__(self, width=23, experts=4):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 41), nn.ReLU(), nn.Linear(41, width)) for _ in range(experts))
        with torch.no_grad():
            self.router.bias[-1] = -100

    def forward(self, x):
        weights, chosen = self.router(x).softmax(-1).max(-1)
        out = x
        for i, expert in enumerate(self.experts):
            mask = (chosen == i).unsqueeze(-1)
            # A gather is collective: every rank calls every expert, if only on nothing.
            out = out + torch.zeros_like(x).masked_scatter(mask, expert(x[mask.squeeze(-1)]) * weights[mask.squeeze(-1)].unsqueeze(-1))
        return out


def mixture(units):
    torch.manual_seed(7)
    model = network(width=23, blocks=0)
    model.blocks.extend(Experts() for _ in range(2))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    if units == "experts":
        for block in model.blocks:
            for expert in block.experts:
                zeropp.fully_shard(expert, mesh=mesh)
    return as_torch_sums(shard(model, mesh=mesh))


def experts(rank, size, formats, units):
    plain, ours = mixture(units), mixture(units)
    zeropp.apply(ours, ranks_per_node=2, **formats)
    return [(train(m, rank), whole_parameters(m)) for m in (plain, ours)]


@pytest.mark.parametrize(
    "preset, units",
    [("lossless", "blocks"), ("lossless", "experts"), ("8bit", "blocks"), ("4bit", "experts"), ("2bit", "experts")],
)
def test_experts_without_tokens(ranks, preset, units):
    for (plain, parameters), (losses, ours) in ranks.run(4, experts, {"preset": preset}, units):
        assert losses[-1] < losses[0]
        if preset == "lossless":
            assert_same(parameters, ours, **CLOSE)
        assert losses[-1] == pytest.approx(plain[-1], rel=1e-5 if preset == "lossless" else 0.02)


class Lora(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Linear(base.in_features, 3, bias=False)
        self.b = nn.Linear(3, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.b(self.a(x))


def with_lora(**arguments):
    """Frozen weights in units of their own, so that they can be kept."""
    model = network().requires_grad_(False)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        block.up, block.down = Lora(block.up), Lora(block.down)
        zeropp.fully_shard([block.up.base, block.down.base], mesh=mesh, **arguments)
    return as_torch_sums(shard(model, mesh=mesh, **arguments))


def inter_node(model, action):
    before = zeropp.stats(model)
    action()
    return (zeropp.stats(model) - before).inter_node


def lora(rank, size, formats):
    plain, ours = with_lora(mp_policy=BF16), with_lora(mp_policy=BF16)
    report = zeropp.apply(ours, ranks_per_node=2, keep_frozen=True, **formats)
    rows = [row for row in report.rows if row.weights == "bf16, kept on each node"]
    assert len(rows) == 4 and all(row.after.inter_node == 0 < row.before.inter_node for row in rows)
    losses = train(ours, rank, steps=3), train(plain, rank, steps=3)
    before = zeropp.stats(ours)
    loss_of(ours, batch(9, rank)).backward()
    sent = zeropp.stats(ours) - before
    assert (sent.intra_node, sent.inter_node) == (report.after.intra_node, report.after.inter_node)
    again = with_lora(mp_policy=BF16)
    anew = zeropp.apply(again, ranks_per_node=2, **formats).after.inter_node
    train(again, rank, steps=1)
    assert inter_node(again, lambda: loss_of(again, batch(9, rank)).backward()) == anew
    # With differences, nodes keep all weights, and send none that are unchanged.
    assert anew == sent.inter_node if "2bit" in formats.values() else anew > sent.inter_node
    return (*losses, whole_parameters(ours), whole_parameters(plain))


@pytest.mark.parametrize("preset", ["lossless", "8bit", "4bit", "2bit"])
def test_frozen_weights_cross_nodes_once(ranks, preset):
    for losses, plain_losses, ours, plain in ranks.run(4, lora, {"preset": preset}):
        assert losses[-1] == pytest.approx(plain_losses[-1], rel=1e-5 if preset == "lossless" else 0.01)
        if preset == "lossless":
            assert_same(ours, plain, rtol=1e-2, atol=1e-4)


def change(model, rank, how):
    base = model.blocks[1].up.base
    if how == "unfrozen":
        base.requires_grad_(True)
        train(model, rank, steps=2)
    elif how == "loaded":
        state = {name: 2 * tensor for name, tensor in whole_parameters(model).items()}
        set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))
    elif how == "assigned":
        model.load_state_dict({name: 2 * tensor.detach() for name, tensor in model.state_dict().items()}, assign=True)
    elif how == "by data, which counts no versions":
        base.weight.data.to_local().mul_(2)
    elif rank == 1:
        with torch.no_grad():
            base.weight.to_local().add_(0.5)


def changed(rank, size, how, secondary):
    # torch chooses the type of gradients at a unit's first forward, so it cannot train frozen weights in bf16 later.
    policy = {} if how == "unfrozen" else {"mp_policy": BF16}
    ours, plain = (with_lora(secondary=secondary, **policy) for _ in range(2))
    report = zeropp.apply(ours, ranks_per_node=2, preset="lossless", keep_frozen=True)
    if how == "unfrozen":
        assert [row.note for row in report.rows].count("frozen; torch reduces its gradients if it is trained later") == 4
    train(ours, rank, steps=2)
    change(ours, rank, how)
    with torch.no_grad():
        for theirs, own in zip(plain.parameters(), ours.parameters()):
            theirs.to_local().copy_(own.to_local())
    losses = []
    for model in (ours, plain, ours):
        loss = loss_of(model, batch(3, rank))
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == losses[1] == losses[2]


@pytest.mark.parametrize(
    "how, secondary",
    [("unfrozen", None), ("loaded", None), ("assigned", None), ("by data, which counts no versions", 2), ("on one rank", None)],
)
def test_kept_weights_are_never_stale(ranks, how, secondary):
    ranks.run(4, changed, how, secondary)


def offloaded(rank, size):
    plain, ours = (as_torch_sums(shard(network(), offload_policy=CPUOffloadPolicy(pin_memory=False))) for _ in range(2))
    zeropp.apply(ours, ranks_per_node=2, **LOSSLESS)
    assert train(ours, rank) == pytest.approx(train(plain, rank), rel=1e-5)
    assert_same(whole_parameters(ours), whole_parameters(plain), **CLOSE)


def test_offload_to_the_processor(ranks):
    ranks.run(4, offloaded)


def initialised(rank, size, apply_first, preset):
    def made(ours):
        with torch.device("meta"):
            model = network()
        as_torch_sums(shard(model))
        if ours and apply_first:
            zeropp.apply(model, ranks_per_node=2, preset=preset)
        model.to_empty(device="cpu")
        torch.manual_seed(11)
        whole = network()
        set_model_state_dict(model, whole.state_dict(), options=StateDictOptions(full_state_dict=True))
        if ours and not apply_first:
            zeropp.apply(model, ranks_per_node=2, preset=preset)
        return model

    plain, ours = made(False), made(True)
    return train(plain, rank), train(ours, rank)


@pytest.mark.parametrize("apply_first, preset", [(True, "lossless"), (True, "2bit"), (False, "2bit")])
def test_models_from_the_meta_device(ranks, apply_first, preset):
    for plain, ours in ranks.run(4, initialised, apply_first, preset):
        assert ours[-1] == pytest.approx(plain[-1], rel=1e-5 if preset == "lossless" else 0.02)


def loaded(rank, size, formats):
    """Logits after other weights were loaded, and of a new model with them."""
    models = []
    for steps in (3, 0):
        model = shard(network(), mp_policy=BF16)
        zeropp.apply(model, ranks_per_node=2, **formats)
        train(model, rank, steps=steps)
        torch.manual_seed(99)
        other = type(network())()
        set_model_state_dict(
            model, other.state_dict(), options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        )
        models.append(model)
    tokens, _ = batch(3, rank)
    with torch.no_grad():
        assert torch.equal(models[0](tokens), models[1](tokens))


@pytest.mark.parametrize("preset", ["8bit", "2bit"])
def test_loaded_state_is_gathered_next(ranks, preset):
    ranks.run(4, loaded, {"preset": preset})


def skipping(rank, size, preset, feedback):
    """Losses and weights of a training in which a scaler skips steps 2 and 3."""
    def training(ours):
        model = as_torch_sums(shard(network(), mp_policy=BF16))
        if ours:
            zeropp.apply(model, ranks_per_node=2, preset=preset, error_feedback=feedback)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=1000)
        losses, scales = [], []
        for step in range(8):
            loss = loss_of(model, batch(step, rank))
            # One rank's gradients overflow, or are NaN.
            spoilt = {2: float("inf"), 3: float("nan")}.get(step, 1.0) if rank == 1 else 1.0
            scaler.scale(loss * spoilt).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
            scales.append(scaler.get_scale())
        return losses, scales, whole_parameters(model)

    return training(False), training(True)


@pytest.mark.parametrize("preset, feedback", [("lossless", False), ("8bit", True), ("4bit", True), ("2bit", True), ("2bit", False)])
def test_steps_that_a_scaler_skips(ranks, preset, feedback):
    for (plain, scales, parameters), (losses, our_scales, ours) in ranks.run(4, skipping, preset, feedback):
        assert our_scales == scales == [1024.0] * 2 + [512.0] + [256.0] * 5
        assert all(torch.isfinite(p).all() for p in ours.values())
        assert losses == pytest.approx(plain, rel=1e-5 if preset == "lossless" else 0.02)


def muon(rank, size, formats):
    """Parameters after steps of Muon: of a whole model, of plain FSDP2, and of ours."""
    results = []
    for kind in ("whole", "plain", "ours"):
        model = network()
        if kind != "whole":
            as_torch_sums(shard(model))
        if kind == "ours":
            zeropp.apply(model, ranks_per_node=2, **formats)
        matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "blocks" in n]
        optimizer = torch.optim.Muon(matrices, lr=0.02)
        losses = []
        for step in range(4):
            loss = loss_of(model, batch(step, rank))
            loss.backward()
            if kind == "whole":
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                    p.grad /= size
            optimizer.step()
            model.zero_grad()
            dist.all_reduce(loss.detach_())
            losses.append(loss.item() / size)
        results.append((losses, whole_parameters(model)))
    return results


@pytest.mark.parametrize("preset", ["lossless", "4bit"])
def test_muon_has_whole_matrices(ranks, preset):
    for (whole, _), (plain, _), (ours, _) in ranks.run(4, muon, {"preset": preset}):
        assert plain == pytest.approx(whole, rel=1e-3)
        assert ours == pytest.approx(plain, rel=1e-3 if preset == "lossless" else 0.02)
