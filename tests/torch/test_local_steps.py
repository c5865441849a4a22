"""Local steps against torch's own outer optimizer: islands of one rank, of FSDP2, and of DDP."""

import contextlib
import copy
from unittest import mock

import pytest
import torch
import zeropp_torch as zeropp
from models import refusals, the_same_on_all_ranks
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


def train(rank, size, islands, kind, exchange, ours=True):
    per_island = size // islands
    mesh = init_device_mesh("cpu", (islands, per_island), mesh_dim_names=("island", "rank"))
    model = model_of(3)
    if kind == "fsdp":
        fully_shard(model, mesh=mesh["rank"])
    elif kind == "ddp":
        model = DistributedDataParallel(model, process_group=mesh.get_group("rank"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = zeropp.local_steps(optimizer, mesh["island"], every=EVERY, exchange=exchange, **OUTER)
    if kind == "compiled":
        optimizer.step = torch.compile(optimizer.step, backend="eager")
    with contextlib.nullcontext() if ours else zeropp.disabled():
        for step in range(1, STEPS + 1):
            # Every rank of an island has the same batch, so its gradient is that of one rank.
            inner_step(model, optimizer, rank // per_island, step)
    weights = [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in model.parameters()]
    assert (steps.traffic().inter_node > 0) == (islands > 1 and ours)
    assert steps.traffic().calls == (STEPS // EVERY if ours else 0)
    if exchange == "lossless":
        for weight, expected in zip(weights, expected_weights(islands)):
            torch.testing.assert_close(weight, expected, rtol=1e-4, atol=1e-5)
    assert all([the_same_on_all_ranks(weight.contiguous()) for weight in weights])


@pytest.mark.parametrize(
    "size, islands, kind",
    [(1, 1, "plain"), (2, 2, "plain"), (3, 3, "plain"), (2, 2, "compiled"), (4, 2, "fsdp"), (4, 2, "ddp")],
)
def test_islands_train_as_with_torchs_outer_optimizer(ranks, size, islands, kind):
    ranks.run(size, train, islands, kind, "lossless")


def test_disabled_exchanges_are_torchs(ranks):
    ranks.run(2, train, 2, "plain", "lossless", False)


@pytest.mark.parametrize("exchange", ["16bit", "4bit", "2bit"])
def test_islands_are_equal_in_few_bits(ranks, exchange):
    ranks.run(4, train, 2, "fsdp", exchange)


def in_turns(islands, every, fragments, delay, alpha, steps):
    """Weights of all islands in one process. Of two fragments, the first is the first of the model's four parameters."""
    anchors = [weight.detach().clone() for weight in model_of(3).parameters()]
    fragment_of = [0, *3 * [fragments - 1]]
    momenta = [torch.zeros_like(anchor) for anchor in anchors]
    models = [model_of(3) for _ in range(islands)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    means = {}
    for step in range(1, steps + 1):
        for island, (model, optimizer) in enumerate(zip(models, optimizers)):
            inner_step(model, optimizer, island, step)
        for place, anchor in enumerate(anchors):
            turn = (fragment_of[place] + 1) * every // fragments
            weights = [list(model.parameters())[place].data for model in models]
            if step % every == turn % every:
                means[place] = step, torch.stack([anchor - weight for weight in weights]).mean(0)
            if place in means and step == means[place][0] + delay:
                mean = means.pop(place)[1]
                momenta[place] = OUTER["momentum"] * momenta[place] + mean
                anchor -= OUTER["learning_rate"] * (mean + OUTER["momentum"] * momenta[place])
                for weight in weights:
                    weight.copy_(alpha * weight + (1 - alpha) * anchor)
    return [list(model.parameters()) for model in models]


def save_and_restore(rank, size):
    """Restarts after every step, also while exchanges are under way, change no bit."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))
    for options in (
        {"every": 2}, {"every": 4, "fragments": 2, "nodes_per_site": 1}, {"every": 4, "fragments": 2, "delay": 3, "alpha": 0.25}
    ):
        runs = []
        for restarts in (False, True):
            def begin():
                model = model_of(3)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                return model, optimizer, zeropp.local_steps(optimizer, mesh["island"], exchange="lossless", **OUTER, **options)

            model, optimizer, steps = begin()
            for step in range(1, 10):
                inner_step(model, optimizer, rank, step)
                if restarts:
                    saved = copy.deepcopy((model.state_dict(), steps.state_dict()))
                    steps.remove()
                    model, optimizer, steps = begin()
                    model.load_state_dict(saved[0])
                    steps.load_state_dict(saved[1])
            runs.append([p.detach().clone() for p in model.parameters()])
        assert all(torch.equal(a, b) for a, b in zip(*runs))
        schedule = {"fragments": 1, "delay": 0, "alpha": 0, **options}
        sites = schedule.pop("nodes_per_site", None)
        for weight, expected in zip(runs[0], in_turns(2, steps=9, **schedule)[rank]):
            torch.testing.assert_close(weight, expected.detach(), rtol=1e-5, atol=1e-6)
        steps.exchange()
        assert all([the_same_on_all_ranks(p.detach()) for p in model.parameters()])
        assert (steps.traffic().inter_site > 0) == (sites is not None)


def test_fragments_take_turns_and_saved_states_go_on(ranks):
    ranks.run(2, save_and_restore)


def moved_in_floats(weights, anchor, momentum, alpha):
    """An outer step in single operations, each rounded to fp32, from all islands' weights. Returns the islands' new weights."""
    rate, factor, alpha = (torch.tensor(number) for number in (*OUTER.values(), alpha))
    differences = [anchor - weight.float() for weight in weights]
    mean = (differences[0] + differences[1]) / 2
    mean[~mean.isfinite()] = float("nan")
    momentum.copy_(factor * momentum + mean)
    anchor.copy_(anchor - rate * (mean + factor * momentum))
    moved = [anchor if alpha == 0 else alpha * weight.float() + (1 - alpha) * anchor for weight in weights]
    return [weight.to(of.dtype, copy=True) for weight, of in zip(moved, weights)]


def states_of_exchanges_under_way(rank, size):
    """Of a double of the exchanges' stream on a GPU: whether an exchange was enqueued when the current stream waits."""
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))
    model = model_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = zeropp.local_steps(optimizer, mesh["island"], every=2, delay=1, **OUTER)
    for step in (1, 2):
        inner_step(model, optimizer, rank, step)
    (fragment,) = steps._fragments
    enqueued = []
    with mock.patch.object(steps, "_stream"), mock.patch("torch.cuda.current_stream") as current:
        current().wait_stream.side_effect = lambda stream: enqueued.append(stream is steps._stream and fragment.mean.done())
        saved = steps.state_dict()
        steps.load_state_dict(saved)
    return enqueued


def test_states_wait_for_the_stream_of_exchanges(ranks):
    assert ranks.run(2, states_of_exchanges_under_way) == 2 * [[True, True]]


def after_a_failed_exchange(rank, size, every, delay):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))
    model = model_of(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps = zeropp.local_steps(optimizer, mesh["island"], every=every, delay=delay, exchange="lossless", **OUTER)
    with mock.patch.object(steps, "_mean", side_effect=RuntimeError("timeout")), pytest.raises(RuntimeError, match="timeout"):
        for step in range(every + delay):
            inner_step(model, optimizer, rank, step)
    # An exchange that has failed has no result to wait for.
    saved = copy.deepcopy(steps.state_dict())
    assert saved["means"] == 4 * [None] and saved["steps"] == every + delay
    steps.load_state_dict(saved)
    for step in range(every):
        inner_step(model, optimizer, rank, step)
    assert all([the_same_on_all_ranks(p.detach()) for p in model.parameters()])


@pytest.mark.parametrize("every, delay", [(1, 0), (2, 1)])
def test_a_failed_exchange_leaves_a_state_to_save_and_to_go_on_from(ranks, every, delay):
    ranks.run(2, after_a_failed_exchange, every, delay)


def equal_bits(a, b):
    """True if two tensors have the same bits, except those of NaN."""
    words = {2: torch.int16, 4: torch.int32}[a.element_size()]
    return torch.equal(a.isnan(), b.isnan()) and torch.equal(a[~a.isnan()].view(words), b[~b.isnan()].view(words))


def bits_of_outer_steps(rank, size, dtype, alpha):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))
    start = torch.Generator().manual_seed(5)
    parameters = [torch.nn.Parameter(torch.randn(n, generator=start).to(dtype)) for n in (1003, 70001)]
    weights = [[p.detach().clone() for _ in range(2)] for p in parameters]
    anchors = [p.detach().float().clone() for p in parameters]
    momenta = [torch.zeros_like(anchor) for anchor in anchors]
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    versions = []
    optimizer.register_step_post_hook(lambda *_: versions.extend(p._version for p in parameters))
    steps = zeropp.local_steps(optimizer, mesh["island"], every=1, exchange="lossless", alpha=alpha, **OUTER)
    for step in range(4):
        for p, of_islands in zip(parameters, weights):
            for island, weight in enumerate(of_islands):
                weight += torch.randn(p.shape, generator=torch.Generator().manual_seed(10 * step + island)).to(dtype) / 8
                if step == 2 and island == 1:
                    weight[100], weight[200] = float("inf"), float("nan")
            p.data.copy_(of_islands[rank])
            p.grad = torch.zeros_like(p)
        optimizer.step()
        assert all(p._version > was for p, was in zip(parameters, versions[-2:])), "autograd knows that weights have changed"
        weights = [moved_in_floats(*of, alpha) for of in zip(weights, anchors, momenta)]
        state = steps.state_dict()
        for p, of_islands in zip(parameters, weights):
            assert equal_bits(p.detach(), of_islands[rank])
            assert p.isnan().sum() == (0 if step < 2 else 2)
        for given, expected in zip(state["anchors"] + state["momenta"], anchors + momenta):
            assert equal_bits(given, expected)


@pytest.mark.parametrize("alpha", [0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_anchors_and_momenta_have_the_bits_of_single_operations(ranks, dtype, alpha):
    ranks.run(2, bits_of_outer_steps, dtype, alpha)


def state_and_parameters(rank, size):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))
    model = model_of(3)
    optimizers = [torch.optim.SGD(model[part].parameters(), lr=0.1) for part in (0, 2)]
    steps = [zeropp.local_steps(optimizer, mesh["island"], every=EVERY, **OUTER) for optimizer in optimizers]

    def train():
        for step in range(1, STEPS + 1):
            loss_of(model, rank, step).backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    train()
    # Weights that take other memory are found there.
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    train()
    assert all([the_same_on_all_ranks(p.detach()) for p in model.parameters()])
    saved = copy.deepcopy(steps[0].state_dict())
    lower = {"learning_rate": 0.25, "momentum": 0.6}
    fresh = torch.optim.SGD(model_of(3)[0].parameters(), lr=0.1)
    other = zeropp.local_steps(fresh, mesh["island"], every=EVERY, **lower)

    def load(**changes):
        return lambda: steps[0].load_state_dict({**saved, **changes})

    wrong = refusals(
        {
            "the saved options, {'every': 2, 'learning_rate': 0.5, 'momentum': 0.6, 'fragments': 1, 'delay': 0, 'alpha': 0.0}, given":
                lambda: other.load_state_dict(saved),
            "'every': 3": load(every=3),
            "given steps 12 on rank 0, 11 on rank 1": load(steps=12 - rank),
            "given digest": load(anchors=[anchor + rank for anchor in saved["anchors"]]),
            "of shapes [[7, 5], [7]], given [[5], [7]]": load(anchors=[torch.ones(5), torch.ones(7)]),
            "of shapes [[7, 5], [7]], given [[7, 5]]": load(momenta=saved["momenta"][:1]),
            "expected the same on every rank, given problem": load(every=EVERY + rank),
            # Of one rank alone.
            "'expected anchors of shapes [[7, 5], [7]], given [None]' on rank 0": load(anchors=(None, saved["anchors"])[rank]),
            "given ['none']\" on rank 1": load(momenta=(saved["momenta"], ["none"])[rank]),
            "momenta, means, given steps": lambda: steps[0].load_state_dict({"steps": 1}),
            "momenta, means, given None": lambda: steps[0].load_state_dict(None),
        }
    )
    assert all(torch.equal(a, b) for a, b in zip(steps[0].state_dict()["anchors"], saved["anchors"])), "nothing is changed"
    load(learning_rate=0.5)()
    optimizers[0].add_param_group({"params": list(model_of(4)[0].parameters())})
    before = copy.deepcopy(model.state_dict())
    wrong += refusals(
        {
            "expected the 2 parameters that the optimizer had, given others, 4 in all": optimizers[0].step,
            "optimizer without local steps, given one with": lambda: zeropp.local_steps(optimizers[0], mesh["island"]),
        }
    )
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    steps[0].remove()
    optimizers[0].step()
    zeropp.local_steps(optimizers[0], mesh["island"])
    return wrong


def test_states_and_parameters_that_do_not_fit_are_refused(ranks):
    assert ranks.run(2, state_and_parameters) == [[], []]


class Wrapper(torch.optim.Optimizer):
    """As accelerate's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer


def refuse(rank, size):
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("island", "rank"))

    def steps_of(seed=3, **arguments):
        model = model_of(seed)
        return zeropp.local_steps(torch.optim.SGD(model.parameters(), lr=0.1), mesh["island"], **arguments)

    def step_of(weight, then=None):
        parameter = torch.nn.Parameter(weight)
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        zeropp.local_steps(optimizer, mesh["island"], every=1)
        parameter.data = weight if then is None else then
        optimizer.step()

    return refusals(
        {
            "local_steps: expected every as a whole number from 1, given 0": lambda: steps_of(every=0),
            "every as a whole number from 1, given 2.5": lambda: steps_of(every=2.5),
            "expected a learning rate above 0, given nan": lambda: steps_of(learning_rate=float("nan")),
            "expected a learning rate above 0, given 0": lambda: steps_of(learning_rate=0),
            "expected a momentum from 0 to less than 1, given 1": lambda: steps_of(momentum=1),
            "momentum as a number, given '1'": lambda: steps_of(momentum="1"),
            "expected an alpha from 0 to 1, given 2": lambda: steps_of(alpha=2),
            "fragments as a whole number from 1, given 0": lambda: steps_of(fragments=0),
            "a delay below every, 3, given 3": lambda: steps_of(every=3, delay=3),
            "expected nodes_per_site with a format between sites": lambda: steps_of(exchange=("bf16", "bf16", "bf16")),
            "islands as a mesh or process group, given 2": lambda: zeropp.local_steps(
                torch.optim.SGD(model_of(3).parameters(), lr=0.1), 2
            ),
            "an optimizer that takes hooks, given a Wrapper; of accelerate's wrapper, pass optimizer.optimizer": lambda: (
                zeropp.local_steps(Wrapper(torch.optim.SGD(model_of(3).parameters(), lr=0.1)), mesh["island"])
            ),
            "exchange: expected one of lossless, ": lambda: steps_of(exchange="int9"),
            "given every 2 on rank 0, 3 on rank 1": lambda: steps_of(every=2 + rank),
            "exchange '4bit' on rank 0, '2bit' on rank 1": lambda: steps_of(exchange=("4bit", "2bit")[rank]),
            "momentum 0.9 on rank 0, 0.5 on rank 1": lambda: steps_of(momentum=(0.9, 0.5)[rank]),
            "local_steps: expected the same on every rank": lambda: steps_of(seed=3 + rank),
            # The same elements, in other places.
            "given digest of weights": lambda: step_of(torch.arange(9.0).flip(0) if rank == 1 else torch.arange(9.0)),
            "expected contiguous tensors, given one of strides (1, 3)": lambda: step_of(torch.ones(2, 3).t()),
            # Of one rank alone.
            "contiguous weights True on rank 0, False on rank 1": lambda: step_of(torch.ones(2, 3).t() if rank else torch.ones(3, 2)),
            "expected tensors of torch.float32, torch.float16, torch.bfloat16, given torch.float64":
                lambda: step_of(torch.ones(3, dtype=torch.float64)),
            "expected a weight of [3] on cpu, as local_steps() was given, given [1] on cpu":
                lambda: step_of(torch.ones(3), torch.ones(1)),
        }
    )


def test_other_arguments_and_weights_are_refused_on_all_ranks(ranks):
    for wrong in ranks.run(2, refuse):
        assert wrong == []


def refuse_without_elements(rank, size):
    """A weight of one row: in each island of two ranks, one rank has no element."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("island", "rank"))

    def given(dtype=torch.float32, **rates):
        model = fully_shard(torch.nn.Linear(3, 1, bias=False, dtype=dtype), mesh=mesh["rank"])
        assert model.weight.to_local().numel() == (3 if mesh["rank"].get_local_rank() == 0 else 0)
        return lambda: zeropp.local_steps(torch.optim.SGD(model.parameters(), lr=0.1), mesh["island"], **rates)

    torch.manual_seed(0)
    return refusals(
        {
            "a learning rate above 0, given 0": given(learning_rate=0),
            "expected a momentum from 0 to less than 1, given 1": given(momentum=1),
            "an alpha from 0 to 1, given 2": given(alpha=2),
            "torch.bfloat16, given torch.float64": given(torch.float64),
        }
    )


def test_rates_and_types_are_refused_also_on_ranks_without_elements(ranks):
    assert ranks.run(4, refuse_without_elements) == 4 * [[]]
