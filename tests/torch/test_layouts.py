"""FSDP2 on device meshes of more than one dimension, and units of which not all can be quantized."""

import pytest
import torch
import zeropp_torch as zeropp
from models import assert_same, network, plain_and_ours, refusals, shard
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

LOSSLESS = {"preset": "lossless"}
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def compare(rank, make, ranks_per_node=2):
    """Trains what make() returns, plain and with lossless formats, and compares parameters. Returns the report."""
    (_, plain), (_, ours), report = plain_and_ours(rank, make, ranks_per_node, LOSSLESS, steps=3)
    assert_same(plain, ours, **CLOSE)
    return report


def replicated_over_nodes(rank, size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    report = compare(rank, lambda: shard(network(), mesh=mesh))
    assert all("all-reduce between replicas stays torch's" in row.note for row in report.rows)
    for row in report.rows:
        assert row.before.inter_node == row.after.inter_node == row.replicas_after.inter_node == row.replicas_before.inter_node > 0
    assert report.after.intra_node > 0
    assert len(report.advice) == 1 and "between replicas crosses nodes, and stays torch's" in report.advice[0]


def replicated_inside_nodes(rank, size):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    report = compare(rank, lambda: shard(network(), mesh=mesh), ranks_per_node=1)
    assert report.after.inter_node > 0 and report.after.intra_node == 0


@pytest.mark.parametrize("layout", [replicated_over_nodes, replicated_inside_nodes])
def test_hybrid_sharding(ranks, layout):
    ranks.run(4, layout)


def tensor_parallel_network(mesh):
    model = network()
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def tensor_parallel(rank, size):
    # Ranks of one shard group are on two nodes, those of tensor parallelism on one.
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    report = compare(rank // 2, lambda: shard(tensor_parallel_network(mesh), mesh=mesh["dp"]))
    assert report.before.inter_node > 0 and all(row.weights == "fp32" for row in report.rows)
    return refusals(
        {"leave secondary out for this module": lambda: shard(tensor_parallel_network(mesh), mesh=mesh["dp"], secondary=2)}
    )


def test_tensor_parallelism_without_hpz_and_refused_with_it(ranks):
    assert ranks.run(4, tensor_parallel) == [[]] * 4


class Mixture(nn.Module):
    """Two experts, of which each half of the ranks has one, beside what all ranks share."""

    def __init__(self, expert: int):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList([nn.Linear(37, 37)])
        self.embed = nn.Embedding(61, 37)
        self.head = nn.Linear(37, 61)
        torch.manual_seed(40 + expert)
        self.expert = nn.Linear(37, 37)

    def forward(self, tokens):
        x = self.embed(tokens)
        return self.head(x + self.expert(torch.relu(self.blocks[0](x))))


def experts_on_a_mesh_of_their_own(rank, size):
    experts = init_device_mesh("cpu", (2, 2), mesh_dim_names=("expert", "shard"))

    def make():
        model = Mixture(rank // 2)
        fully_shard(model.expert, mesh=experts["shard"])
        return shard(model)

    report = compare(rank, make)
    rows = {row.unit: row for row in report.rows}
    assert rows["expert"].after.inter_node == 0 < rows["(root)"].after.inter_node
    of_all, of_experts = zeropp.apply(make(), ranks_per_node=2).advice
    assert of_all.startswith("(root), blocks.0: No gain expected, because at 100 Gbit/s between nodes")
    assert of_experts.startswith("expert: No gain expected on one node")


def test_experts_in_units_of_their_own(ranks):
    ranks.run(4, experts_on_a_mesh_of_their_own)


def unlike_arguments_of_replicas(rank, size):
    """The root, which comes first, has the same ranks for its shards, and no replicas."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    model = network()
    fully_shard(model.blocks[0], mesh=mesh)
    fully_shard(model, mesh=mesh["shard"])
    return refusals({
        "apply: expected the same on every rank, given preset '8bit' on rank 3, '4bit' on the others": lambda: zeropp.apply(
            model, ranks_per_node=2, preset="8bit" if rank == 3 else "4bit"
        ),
    })


def test_replicas_with_other_arguments_are_an_error_on_all_ranks(ranks):
    assert ranks.run(4, unlike_arguments_of_replicas) == 4 * [[]]


def several_meshes_in_a_unit(rank, size):
    try:
        from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo, ShardPlacementResult
    except ImportError:
        return "this torch has one mesh for each unit"
    from torch.distributed.tensor import Shard

    experts = FSDPMeshInfo(init_device_mesh("cpu", (2, 2), mesh_dim_names=("expert", "shard"))["shard"], shard_mesh_dim=0)

    def make():
        model = Mixture(rank // 2)
        fully_shard(model.blocks[0])
        own = set(model.expert.parameters())
        placed = {"shard_placement_fn": lambda p: ShardPlacementResult(Shard(0), experts) if p in own else None}
        return fully_shard(model, **placed)

    with pytest.warns(UserWarning, match="apply: left to torch: .root.: left out: parameters on several meshes"):
        report = compare(rank, make)
    notes = {row.unit: row.note for row in report.rows}
    assert notes == {"(root)": "left out: parameters on several meshes; give each mesh a unit of its own", "blocks.0": ""}


def test_units_with_several_meshes_are_left_to_torch(ranks):
    missing = ranks.run(4, several_meshes_in_a_unit)[0]
    if missing:
        pytest.skip(missing)


def ranks_in_another_order(rank, size):
    mesh = DeviceMesh("cpu", torch.tensor([0, 2, 1, 3]))
    report = compare(rank, lambda: shard(network(), mesh=mesh, secondary=2))
    return [row.note for row in report.rows]


def test_hpz_on_ranks_that_are_not_in_the_order_of_nodes_is_told(ranks):
    for notes in ranks.run(4, ranks_in_another_order):
        assert notes.count("hpZ's groups cross nodes") == 3


def several_types(rank, size):
    def make():
        model = network()
        for block in model.blocks:
            block.down.to(torch.bfloat16).requires_grad_(False)
            block.down.register_forward_pre_hook(lambda module, given: given[0].bfloat16())
        return shard(model)

    report = compare(rank, make)
    rows = {row.unit: row for row in report.rows}
    assert rows["blocks.0"].note == "weights are gathered as they are, several types"
    assert rows["blocks.0"].weights == "-" and rows["blocks.0"].gradients == "fp32 + fp32"
    assert rows["(root)"].weights == "fp32"
    # A rank's shards: of norm, bias and up 1084 elements in fp32, of down 1120 in bf16. Weights are gathered twice.
    assert rows["blocks.0"].before.inter_node == rows["blocks.0"].after.inter_node == 2 * (4 * 1084 + 2 * 1120) + 4 * 1084
    with pytest.warns(UserWarning, match="weights are gathered as they are, torch.float64.*gradients are reduced as they are"):
        wide = zeropp.apply(shard(network().double()), ranks_per_node=2)
    plain = zeropp.apply(shard(network()), ranks_per_node=2, weights=None, gradients=None)
    assert wide.before == wide.after and wide.before.inter_node == 2 * plain.before.inter_node


def test_units_of_several_types_gather_as_they_are(ranks):
    ranks.run(4, several_types)


def part_of_the_ranks(rank, size):
    """Two models, each on half of the ranks, as two process groups have them."""
    halves = init_device_mesh("cpu", (2, 2), mesh_dim_names=("model", "shard"))
    report = compare(rank, lambda: shard(network(), mesh=halves["shard"]), ranks_per_node=1)
    assert report.after.inter_node > 0
    group = halves["shard"].get_group()
    gradient = torch.full((100,), float(rank))
    communicator = zeropp.Communicator(group, ranks_per_node=1)
    zeropp.all_reduce(communicator, gradient, "fp32", mean=True)
    assert gradient.unique().tolist() == [rank // 2 * 2 + 0.5]


def test_several_process_groups(ranks):
    ranks.run(4, part_of_the_ranks)


def gathered_by_the_parameter(rank, size):
    model = shard(network())
    (group,) = zeropp.units.units_of(model.blocks[0])[0].groups
    # As a float8 parameter would have it.
    group.fsdp_params[0]._sharded_local_tensor.fsdp_pre_all_gather = None
    notes = {row.unit: row.note for row in zeropp.apply(model, ranks_per_node=2).rows}
    assert "fsdp_pre_all_gather" in notes["blocks.0"] and notes["blocks.1"] == ""


def test_parameters_that_say_what_is_gathered_are_left_to_torch(ranks):
    ranks.run(4, gathered_by_the_parameter)


def two_modules_in_one_unit(rank, size):
    def make():
        model = network()
        zeropp.fully_shard([model.blocks[0], model.blocks[1]])
        zeropp.fully_shard(model.blocks[2])
        return zeropp.fully_shard(model)

    report = compare(rank, make)
    assert [row.unit for row in report.rows] == ["(root)", "blocks.0, blocks.1", "blocks.2"]
    assert report.rows[1].elements == 2 * report.rows[2].elements
    excluded = zeropp.apply(make(), ranks_per_node=2, exclude=("blocks.1",))
    assert [row.weights for row in excluded.rows] == ["int8:256:fp16", "-", "int8:256:fp16"]


def test_several_modules_in_one_unit(ranks):
    ranks.run(4, two_modules_in_one_unit)
