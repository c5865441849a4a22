"""zeropp's collectives under PyTorch's own models and checks, as far as its wheel ships them."""

import copy
import dataclasses
import os
from unittest import mock

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh

pytest.importorskip("expecttest", reason="torch.testing._internal imports it")
harness = pytest.importorskip("torch.testing._internal.common_fsdp")
transformers = pytest.importorskip("torch.testing._internal.distributed._tensor.common_dtensor")
state_dicts = pytest.importorskip("torch.testing._internal.distributed.common_state_dict")
from torch.testing._internal.common_utils import TestCase  # noqa: E402

LOSSLESS = {"weights": "fp32", "gradients": ("fp32", "fp32")}

# Ranks, ranks of a node, hpZ's partition, and the mesh.
LAYOUTS = {"2": (2, 1, None, (2,)), "4": (4, 2, None, (4,)), "hpZ": (4, 2, 2, (4,)), "HSDP": (4, 1, None, (2, 2))}
everywhere = pytest.mark.parametrize("layout", LAYOUTS)

Adam = torch.optim.Adam
OF_FSDP = zeropp.communicator.all_gather_single, zeropp.communicator.reduce_scatter_single


class Checks(state_dicts.VerifyStateDictMixin, TestCase):
    """PyTorch's checks are methods of a test, or take one."""

    def runTest(self):
        pass


class Stack(harness.MLPStack):
    """With a parameter of the root's own, and its MLPs in whatever order."""

    def __init__(self):
        torch.manual_seed(42)
        super().__init__(10)
        self.scale = torch.nn.Parameter(torch.ones(10))

    def forward(self, x, order=(0, 1, 2)):
        for i in order:
            x = self[i](x)
        return x * self.scale


def sharded(model, units, layout, formats=LOSSLESS, **arguments):
    _, ranks_per_node, secondary, shape = LAYOUTS[layout]
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    for unit in (*units, model):
        zeropp.fully_shard(unit, mesh=mesh, secondary=secondary)
    zeropp.apply(model, ranks_per_node=ranks_per_node, **formats, **arguments)
    return model


def sample(step):
    """What this rank is given."""
    return torch.randn(8, 10, generator=torch.Generator().manual_seed(100 * step + dist.get_rank()))


def backward(output):
    loss = output.sum()
    loss.backward()
    return loss.detach()


def plain(model, step):
    return backward(model(sample(step)))


def parity(reference, model, run=plain, steps=2, left=(0, 0)):
    """Trains both, and compares every shard and its gradient with those of a reference that is whole on every rank and
    reduced in the open. `left` are the gathers and reductions of a step that FSDP2 does by itself."""
    check = Checks()
    optimizers = [Adam(m.parameters(), lr=1e-2) for m in (reference, model)]
    for step in range(steps):
        gather, reduce = (mock.Mock(wraps=function) for function in OF_FSDP)
        with harness.patch_all_gather(gather), harness.patch_reduce_scatter(reduce):
            losses = [run(m, step) for m in (reference, model)]
        assert (gather.call_count, reduce.call_count) == left
        for p in reference.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        check.assertEqual(*losses)
        harness.check_sharded_parity(check, reference, model)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 0)
    harness.check_sharded_parity(check, reference, model)
    return optimizers


def orders(rank, size, layout):
    model = Stack()
    reference = copy.deepcopy(model)
    sharded(model, list(model), layout)
    order = [(0, 1, 2), (2, 1, 0), (1, 0, 1, 1), (0, 2)]  # one is used several times, and then not at all
    parity(reference, model, lambda m, step: backward(m(sample(step), order[step])), steps=4)
    # Through the root, and then through a module without it.
    parity(reference, model, lambda m, step: plain(m[1] if step else m, step))


def skipping(rank, size, layout):
    torch.manual_seed(42)
    model = harness.SkipModel(double_nest=False)
    reference = copy.deepcopy(model)
    sharded(model, [model.linear, model.linear_skip, model.nested_linear], layout, exclude=("linear_skip",))
    # hpZ's backward gathers the excluded unit inside the node, with FSDP2's own function too.
    parity(reference, model, left=(2, 1))


def unused(rank, size, layout):
    torch.manual_seed(42)
    model = torch.nn.Sequential(harness.DoubleLinear(10), torch.nn.Linear(10, 10))
    model[0].register_forward_hook(lambda module, inputs, outputs: outputs[1] if module.use_second_linear else outputs)
    reference = copy.deepcopy(model)
    sharded(model, list(model), layout)

    def run(m, step):
        m[0].use_second_linear = step % 2 == 1  # what is reduced changes
        return plain(m, step)

    parity(reference, model, run)


@pytest.mark.parametrize("of", [orders, skipping, unused])
@everywhere
def test_modules_in_several_orders_or_skipped(ranks, layout, of):
    ranks.run(LAYOUTS[layout][0], of, layout)


def transformer(rank, size, layout, kind, options):
    torch.manual_seed(42)
    model = transformers.Transformer(transformers.ModelArgs(n_layers=2, vocab_size=61, dropout_p=0, **options))
    reference = copy.deepcopy(model)
    layers = model.layers
    if kind == "composable checkpoint":
        for layer in layers:
            harness.checkpoint(layer)
    sharded(model, [[layers[0], layers[1]]] if kind == "grouped" else layers, layout)
    if kind == "prefetching":
        layers[0].set_modules_to_forward_prefetch([layers[1]])
        layers[1].set_modules_to_backward_prefetch([layers[0]])

    def reduces(m, last):
        if m is model:
            m.set_is_last_backward(last)
            m.set_requires_gradient_sync(last)

    def run(m, step):
        tokens = torch.randint(0, 61, (2, 16), generator=torch.Generator().manual_seed(100 * step + rank))
        if kind != "1F1B":
            return backward(m(tokens) / 32)  # sums of some hundred have more rounding than PyTorch's check allows
        # Three microbatches, of which two are in flight.
        first, second = (m(tokens.roll(shift)) / 32 for shift in range(2))
        reduces(m, False)
        loss = backward(first)
        third = m(tokens.roll(2)) / 32
        loss += backward(second)
        reduces(m, True)
        return loss + backward(third)

    parity(reference, model, run)


TRANSFORMERS = {
    "tied": {"weight_tying": True},
    "untied": {"weight_tying": False},
    "tied and checkpointed": {"weight_tying": True, "checkpoint_activations": True},
    "untied and checkpointed": {"weight_tying": False, "checkpoint_activations": True},
    "composable checkpoint": {},
    "prefetching": {},
    "grouped": {},
    "1F1B": {"weight_tying": False},
    "experts": {"num_experts": 3},
}


@pytest.mark.parametrize(
    "layout, kind",
    [(layout, kind) for layout in ("2", "hpZ") for kind in TRANSFORMERS]
    + [("4", kind) for kind in ("tied", "untied and checkpointed", "1F1B")],
)
def test_transformers(ranks, layout, kind):
    lacking = TRANSFORMERS[kind].keys() - {field.name for field in dataclasses.fields(transformers.ModelArgs)}
    if lacking:
        pytest.skip(f"PyTorch's Transformer has no {', '.join(lacking)} yet")
    ranks.run(LAYOUTS[layout][0], transformer, layout, kind, TRANSFORMERS[kind])


def accumulation(rank, size, layout, waiting, reshard):
    model = Stack()
    reference = copy.deepcopy(model)
    sharded(model, list(model), layout)
    waits = model[1] if waiting == "one" else model

    def run(m, step):
        loss = 0
        for micro in range(3):
            if m is model:
                waits.set_requires_gradient_sync(micro == 2, recurse=waiting != "root")
                model.set_is_last_backward(micro == 2)
                model.set_reshard_after_backward(reshard or micro == 2)
            loss += plain(m, 10 * step + micro)
        return loss

    before = zeropp.stats(model)
    parity(reference, model, run)
    # The root keeps its parameters until backward, and hpZ's backward asks its group alone.
    forward, again = 4, 0 if layout == "hpZ" else 3
    gathers = 3 * (forward + again) if reshard else forward + 3 * again
    reductions = 4 if waiting == "all" else 10
    assert (zeropp.stats(model) - before).calls == 2 * (gathers + reductions)


@pytest.mark.parametrize(
    "layout, waiting, reshard",
    [("4", "all", False), ("hpZ", "all", False), ("hpZ", "all", True), ("hpZ", "root", True), ("hpZ", "one", True)],
)
def test_gradients_accumulate_over_microbatches(ranks, layout, waiting, reshard):
    ranks.run(4, accumulation, layout, waiting, reshard)


def saved(rank, size, layout):
    model, check = Stack(), Checks()
    reference = copy.deepcopy(model)
    of_reference, optimizer = parity(reference, sharded(model, list(model), layout))

    def verify(states, of_optimizer):
        check._verify_msd(reference.state_dict(), states)
        check._verify_osd(reference, of_reference, of_reference.state_dict(), of_optimizer)
        check._verify_osd_by_load(reference, of_reference, Adam(reference.parameters()), of_optimizer)

    states = get_state_dict(model, optimizer)
    verify(*states)
    # Where weights travel in few bits, the masters stay exact.
    again = Stack()
    other = Adam(sharded(again, list(again), layout, {"preset": "4bit"}).parameters())
    set_state_dict(again, other, model_state_dict=states[0], optim_state_dict=states[1])
    plain(again, 3)
    verify(*get_state_dict(again, other))


@pytest.mark.parametrize("layout", ["2", "4", "hpZ"])
def test_state_dicts_are_the_references(ranks, layout):
    ranks.run(LAYOUTS[layout][0], saved, layout)


class HookedDDP(torch.nn.parallel.DistributedDataParallel):
    """For PyTorch's tests that make their model themselves."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, gradients=LOSSLESS["gradients"]))
        self._comm_hooks.clear()  # these tests pickle the model as well, and the hook is a closure


def ddp(rank, size, as_view):
    # What PyTorch's launcher of these tests sets.
    with mock.patch.dict(os.environ, BACKEND="gloo", WORLD_SIZE=str(size)):
        from torch.testing._internal.distributed.distributed_test import DistributedTest

        check = type("OfDDP", (DistributedTest._DistTestBase, Checks), {"_barrier": lambda self: dist.barrier()})()
        hook = zeropp.ddp_hook(ranks_per_node=2, gradients=LOSSLESS["gradients"])
        check._test_accumulate_gradients_no_sync(num_iters=4, ddp_comm_hook=hook, gradient_as_bucket_view=as_view)
        with mock.patch.object(torch.nn.parallel, "DistributedDataParallel", HookedDDP):
            check._test_DistributedDataParallelCPU(gradient_as_bucket_view=as_view)


@pytest.mark.parametrize("as_view", [False, True])
@pytest.mark.parametrize("size", [2, 4])
def test_ddp_passes_pytorchs_own_tests(ranks, size, as_view):
    ranks.close()  # they share models that torch 2.9 makes where it imports them: at the same time on all ranks
    ranks.run(size, ddp, as_view)
