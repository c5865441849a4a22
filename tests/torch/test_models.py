"""Models and trainings that users bring, beside plain FSDP2: experts, LoRA, Muon, offload, meta devices, loaded weights, and
skipped steps."""

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import as_torch_sums, assert_same, batch, loss_of, network, plain_and_ours, shard, train, whole_parameters
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

LOSSLESS = {"preset": "lossless"}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
BF16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


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


def experts(rank, size, units, presets):
    formats = [{"preset": preset} for preset in presets]
    return plain_and_ours(rank, lambda: mixture(units), 2, *formats)[: 1 + len(presets)]


@pytest.mark.parametrize("units, presets", [("blocks", ["lossless", "8bit"]), ("experts", ["lossless", "4bit", "2bit"])])
def test_experts_without_tokens(ranks, units, presets):
    for (plain, parameters), *of_presets in ranks.run(4, experts, units, presets):
        for (losses, ours), preset in zip(of_presets, presets, strict=True):
            assert losses[-1] < losses[0], preset
            if preset == "lossless":
                assert_same(parameters, ours, **CLOSE)
            assert losses[-1] == pytest.approx(plain[-1], rel=1e-5 if preset == "lossless" else 0.02), preset


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


def lora(rank, size):
    plain = with_lora(mp_policy=BF16)
    plain_losses, plain_parameters = train(plain, rank, steps=3), whole_parameters(plain)
    for preset in ("lossless", "8bit", "4bit", "2bit"):
        ours = with_lora(mp_policy=BF16)
        report = zeropp.apply(ours, ranks_per_node=2, keep_frozen=True, preset=preset)
        rows = [row for row in report.rows if row.weights == "bf16, kept on each node"]
        assert len(rows) == 4 and all(row.after.inter_node == 0 < row.before.inter_node for row in rows), preset
        losses = train(ours, rank, steps=3)
        assert losses[-1] == pytest.approx(plain_losses[-1], rel=1e-5 if preset == "lossless" else 0.01), preset
        if preset == "lossless":
            assert_same(whole_parameters(ours), plain_parameters, rtol=1e-2, atol=1e-4)
        before = zeropp.stats(ours)
        loss_of(ours, batch(9, rank)).backward()
        sent = zeropp.stats(ours) - before
        assert (sent.intra_node, sent.inter_node) == (report.after.intra_node, report.after.inter_node), preset
        again = with_lora(mp_policy=BF16)
        anew = zeropp.apply(again, ranks_per_node=2, preset=preset).after.inter_node
        train(again, rank, steps=1)
        assert inter_node(again, lambda: loss_of(again, batch(9, rank)).backward()) == anew, preset
        # With differences, nodes keep all weights, and send none that are unchanged.
        assert anew == sent.inter_node if preset == "2bit" else anew > sent.inter_node, preset


def test_frozen_weights_cross_nodes_once(ranks):
    ranks.run(4, lora)


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


def loaded(rank, size):
    """Logits after other weights were loaded, and of a new model with them."""
    models = []
    for steps in (3, 0):
        model = shard(network(), mp_policy=BF16)
        zeropp.apply(model, ranks_per_node=2, preset="2bit")
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


def test_loaded_state_is_gathered_next(ranks):
    ranks.run(4, loaded)


FORMATS = [
    {"preset": preset, "error_feedback": feedback}
    for preset, feedback in (("lossless", False), ("8bit", True), ("4bit", True), ("2bit", True), ("2bit", False))
]


def skipping(rank, size):
    """Losses, scales and weights of trainings in which a scaler skips steps 2 and 3: plain, and in formats."""
    def training(formats):
        model = as_torch_sums(shard(network(), mp_policy=BF16))
        if formats is not None:
            zeropp.apply(model, ranks_per_node=2, **formats)
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

    return [training(formats) for formats in (None, *FORMATS)]


def test_steps_that_a_scaler_skips(ranks):
    for (plain, scales, _), *of_formats in ranks.run(4, skipping):
        for (losses, our_scales, ours), formats in zip(of_formats, FORMATS, strict=True):
            assert our_scales == scales == [1024.0] * 2 + [512.0] + [256.0] * 5, formats
            assert all(torch.isfinite(p).all() for p in ours.values()), formats
            assert losses == pytest.approx(plain, rel=1e-5 if formats["preset"] == "lossless" else 0.02), formats


def muon(rank, size):
    """Losses of steps of Muon: of a whole model, of plain FSDP2, and of ours in two presets."""
    results = []
    for kind in ("whole", "plain", "lossless", "4bit"):
        model = network()
        if kind != "whole":
            as_torch_sums(shard(model))
        if kind in zeropp.PRESETS:
            zeropp.apply(model, ranks_per_node=2, preset=kind)
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
        results.append(losses)
    return results


def test_muon_has_whole_matrices(ranks):
    for whole, plain, lossless, four_bits in ranks.run(4, muon):
        assert plain == pytest.approx(whole, rel=1e-3)
        assert lossless == pytest.approx(plain, rel=1e-3)
        assert four_bits == pytest.approx(plain, rel=0.02)
