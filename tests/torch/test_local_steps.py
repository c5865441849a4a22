"""Local steps against torch's own outer optimizer: islands of one rank, of FSDP2, and of DDP."""

import copy

import pytest
import torch
import zeropp_torch as zeropp
from models import refusals
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

STEPS, EVERY = 6, 2
OUTER = {"learning_rate": 0.5, "momentum": 0.6}


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))


def loss_of(model, island, step):
    inputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(1000 * island + step))
    return model(inputs).square().mean()


def inner_step(model, optimizer, island, step):
    optimizer.zero_grad()
    loss_of(model, island, step).backward()
    optimizer.step()


def expected_weights(islands):
    """All islands in one process, with torch.optim.SGD as the outer optimizer."""
    anchor = model_of(3)
    outer = torch.optim.SGD(
        anchor.parameters(), lr=OUTER["learning_rate"], momentum=OUTER["momentum"], nesterov=True
    )
    models = [copy.deepcopy(anchor) for _ in range(islands)]
    optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in models]
    for step in range(1, STEPS + 1):
        for island, (model, optimizer) in enumerate(zip(models, optimizers)):
            inner_step(model, optimizer, island, step)
        if step % EVERY == 0:
            for weight, *of_islands in zip(anchor.parameters(), *(model.parameters() for model in models)):
                weight.grad = torch.stack([weight.detach() - w.detach() for w in of_islands]).mean(0)
            outer.step()
            for model in models:
                model.load_state_dict(anchor.state_dict())
    return [weight.detach() for weight in anchor.parameters()]


def train(rank, size, islands, kind, exchange):
    per_island = size // islands
    mesh = init_device_mesh("cpu", (islands, per_island), mesh_dim_names=("island", "rank"))
    model = model_of(3)
    if kind == "fsdp":
        fully_shard(model, mesh=mesh["rank"])
    elif kind == "ddp":
        model = DistributedDataParallel(model, process_group=mesh.get_group("rank"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = zeropp.local_steps(optimizer, mesh["island"], every=EVERY, exchange=exchange, **OUTER)
    for step in range(1, STEPS + 1):
        # Every rank of an island has the same batch, so its gradient is that of one rank.
        inner_step(model, optimizer, rank // per_island, step)
    weights = [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in model.parameters()]
    assert (steps.traffic().inter_node > 0) == (islands > 1)
    assert steps.traffic().calls == STEPS // EVERY
    if exchange == "lossless":
        for weight, expected in zip(weights, expected_weights(islands)):
            torch.testing.assert_close(weight, expected, rtol=1e-4, atol=1e-5)
    for weight in weights:
        copies = [torch.empty_like(weight) for _ in range(size)]
        torch.distributed.all_gather(copies, weight.contiguous())
        assert all(torch.equal(weight, of_rank) for of_rank in copies)


@pytest.mark.parametrize(
    "size, islands, kind", [(1, 1, "plain"), (2, 2, "plain"), (3, 3, "plain"), (4, 2, "fsdp"), (4, 2, "ddp")]
)
def test_islands_train_as_with_torchs_outer_optimizer(ranks, size, islands, kind):
    ranks.run(size, train, islands, kind, "lossless")


@pytest.mark.parametrize("exchange", ["16bit", "4bit", "2bit"])
def test_islands_are_equal_in_few_bits(ranks, exchange):
    ranks.run(4, train, 2, "fsdp", exchange)


def save_and_restore(rank, size):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))
    runs = []
    for interrupted in (False, True):
        model = model_of(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = zeropp.local_steps(optimizer, mesh["island"], every=EVERY, exchange="lossless", **OUTER)
        for step in range(1, STEPS + 1):
            inner_step(model, optimizer, rank, step)
            if interrupted and step == 3:
                saved = copy.deepcopy((model.state_dict(), steps.state_dict()))
                steps.remove()
                model = model_of(3)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                steps = zeropp.local_steps(optimizer, mesh["island"], every=EVERY, exchange="lossless", **OUTER)
                model.load_state_dict(saved[0])
                steps.load_state_dict(saved[1])
        runs.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*runs))


def test_saved_state_continues(ranks):
    ranks.run(2, save_and_restore)


def refuse(rank, size):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))

    def steps_of(seed=3, **arguments):
        model = model_of(seed)
        return zeropp.local_steps(torch.optim.SGD(model.parameters(), lr=0.1), mesh["island"], **arguments)

    return refusals(
        {
            "local_steps: expected an exchange every 1 step or more, given 0": lambda: steps_of(every=0),
            "exchange: expected one of lossless, ": lambda: steps_of(exchange="int9"),
            "every 3, exchange 4bit": lambda: steps_of(every=2 + rank),
            "every 30, exchange 2bit": lambda: steps_of(exchange=("4bit", "2bit")[rank]),
            "momentum 0.5": lambda: steps_of(momentum=(0.9, 0.5)[rank]),
            "local_steps: expected the same on every rank": lambda: steps_of(seed=3 + rank),
        }
    )


def test_other_arguments_and_weights_are_refused_on_all_ranks(ranks):
    for wrong in ranks.run(2, refuse):
        assert wrong == []
