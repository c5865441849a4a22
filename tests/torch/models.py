"""Models and trainings for tests of FSDP2 and DDP."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule


class Block(nn.Module):
    """Sizes that nothing divides."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 3 * width + 1)
        self.down = nn.Linear(3 * width + 1, width, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Network(nn.Module):
    def __init__(self, width: int = 37, blocks: int = 3, tied: bool = False):
        super().__init__()
        self.embed = nn.Embedding(61, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 61, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def network(**arguments) -> Network:
    torch.manual_seed(7)
    return Network(**arguments)


def frozen():
    """With units without trained parameters, and with some."""
    model = network()
    model.blocks[0].requires_grad_(False)
    model.blocks[1].norm.weight.requires_grad_(False)
    return model


def tied():
    return network(tied=True)


def drawn(n, seed, dtype=torch.float32):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed)).to(dtype)


def batch(step: int, rank: int, size: int = 8):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    tokens = torch.randint(0, 61, (size, 12), generator=generator)
    return tokens, (3 * tokens + 1) % 61


def loss_of(model, data):
    device = next(model.parameters()).device
    tokens, targets = (x.to(device) for x in data)
    return nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), targets.flatten())


def shard(model, secondary=None, mesh=None, **arguments):
    """Every block a unit, and the rest; on all ranks, or on a mesh."""
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        zeropp.fully_shard(block, mesh=mesh, secondary=secondary, **arguments)
    return zeropp.fully_shard(model, mesh=mesh, **arguments)


def as_torch_sums(model):
    """`model`, which sums before it divides, as models of apply() do."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    return model


def train(model, rank, steps=6, lr=0.05, each=None, optimizer=None):
    """The losses of some steps of `optimizer`, by default SGD with momentum, of all ranks together."""
    optimizer = optimizer or torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    losses = []
    for step in range(steps):
        loss = loss_of(model, batch(step, rank))
        loss.backward()
        if each is not None:
            each(model, step)
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(float(total) / dist.get_world_size())
    return losses


def plain_and_ours(rank, make, ranks_per_node, *formats, **training):
    """Losses and parameters of a training with plain FSDP2 and of the same with each of our `formats`, and our reports."""
    model, reports = as_torch_sums(make()), []
    results = [(train(model, rank, **training), whole_parameters(model))]
    for ours in formats:
        model = make()
        reports.append(zeropp.apply(model, ranks_per_node=ranks_per_node, **ours))
        results.append((train(model, rank, **training), whole_parameters(model)))
    return *results, *reports


def whole_parameters(model):
    """Copies on the host of all parameters, as all ranks have them together."""
    return {
        name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().cpu().clone()
        for name, p in model.named_parameters()
    }


def slice_of(tensor, rank, size):
    """A copy of the part of `tensor` that is a rank's shard."""
    part = -(-tensor.numel() // size)
    return tensor[rank * part : (rank + 1) * part].clone()


def through(tensor, format):
    """`tensor` as its message in `format` has it."""
    return zeropp.dequantize(zeropp.quantize(tensor, format), format, tensor.size(), tensor.dtype)


def assert_same(a, b, **tolerance):
    assert a.keys() == b.keys()
    for name in a:
        if tolerance:
            torch.testing.assert_close(a[name], b[name], msg=lambda text: f"{name}: {text}", **tolerance)
        else:
            assert torch.equal(a[name], b[name]), name


def the_same_on_all_ranks(tensor):
    copies = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(copies, tensor)
    return all(torch.equal(tensor, copy) for copy in copies)


def words_of(call):
    with pytest.raises(zeropp.ZeroppError) as raised:
        call()
    return str(raised.value)


def refusals(calls):
    """Of calls by the words that their refusal should have: what was not refused, or in other words."""
    wrong = []
    for words, call in calls.items():
        try:
            call()
            wrong.append(f"{words}: nothing was raised")
        except zeropp.ZeroppError as error:
            if words not in str(error):
                wrong.append(f"{words}: {error}")
    return wrong


class Given(nn.Module):
    """A parameter with the gradient that forward is given."""

    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n))

    def forward(self, gradient):
        return (self.weight * gradient).sum()
