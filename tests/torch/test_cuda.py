"""CUDA tensors over NCCL: the host's bits, and trainings beside plain PyTorch's. All ranks share one GPU."""

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import assert_same, network, plain_and_ours, shard, slice_of, train, whole_parameters
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from workers import Workers


def why_not():
    """Why nothing can run here; empty if it can."""
    if not torch.cuda.is_available():
        return "no GPU here"
    try:
        zeropp._library.library("cuda")
    except zeropp.ZeroppError as error:
        return str(error)
    return ""


REASON = why_not()
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

SIZES = [1, 5, 997, 4096, 100003]
INT8, INT4 = "int8:256:bf16", "int4:128:signed:bf16"
INT4_ROTATED, INT2_ROTATED = "int4:128:signed:bf16:h32", "int2:64:signed:bf16:h32"
CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(scope="module")
def gpu_ranks():
    workers = Workers(shared_gpu=True)
    yield workers
    workers.close()


def tensors_of(device, dtype, seed):
    return [torch.randn(n, generator=torch.Generator().manual_seed(seed + n)).to(dtype).to(device) for n in SIZES]


def results_of_collectives(rank, size, device, dtype):
    """Results of every function on tensors of `device`, each under its name and on the host."""
    communicator = zeropp.Communicator(ranks_per_node=2, device=device)
    weights, gradients = tensors_of(device, dtype, 0), tensors_of(device, dtype, 1000 * (rank + 1))
    shards = [slice_of(w, rank, size) for w in weights]
    results = {}

    def keep(name, tensors):
        results[name] = [t.cpu().clone() for t in tensors]

    for weights_format in ("int8:256:fp16", INT4):
        fulls = [torch.full_like(w, float("nan")) for w in weights]
        zeropp.all_gather(communicator, shards, fulls, weights_format)
        keep(f"all_gather {weights_format}", fulls)
    for formats in ((INT8, INT4), (INT8 + ":h32", INT2_ROTATED), (INT8, INT8)):
        parts = [torch.full_like(s, float("nan")) for s in shards]
        zeropp.reduce_scatter(communicator, gradients, parts, *formats, mean=True)
        keep(f"reduce_scatter {formats}", parts)
        reduced = [g.clone() for g in gradients]
        zeropp.all_reduce(communicator, reduced, *formats)
        keep(f"all_reduce {formats}", reduced)
    feedback = zeropp.ErrorFeedback(communicator, gradients, INT4, INT4)
    for step in range(3):
        zeropp.reduce_scatter(communicator, gradients, parts, INT4, INT4, feedback=feedback)
        keep(f"reduce_scatter with error feedback, step {step}", parts)
    replica = zeropp.Replica(communicator, weights)
    for step in range(3):
        moved = [s + 0.01 * (step + 1) * s for s in shards]
        zeropp.update_gather(communicator, moved, fulls, replica, INT4_ROTATED)
        keep(f"update_gather, step {step}", fulls)
        zeropp.replica_gather(communicator, fulls, replica)
        keep(f"replica_gather, step {step}", fulls)
    message = zeropp.quantize(gradients[-1], INT4)
    keep("quantize", [message])
    keep("dequantize", [zeropp.dequantize(message, INT4, gradients[-1].size(), dtype)])
    traffic = communicator.traffic()
    return results, (traffic.intra_node, traffic.inter_node, traffic.calls)


def the_same_on_both(rank, size, dtype):
    (expected, host_traffic), (given, traffic) = (
        results_of_collectives(rank, size, device, dtype) for device in ("cpu", "cuda")
    )
    differing = [
        f"{name}: {(a != b).sum()} of {a.numel()} elements"
        for name, tensors in expected.items()
        for a, b in zip(tensors, given[name])
        if not torch.equal(a, b)
    ]
    assert not differing, differing
    assert traffic == host_traffic


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_collectives_have_the_hosts_bits(gpu_ranks, dtype):
    gpu_ranks.run(4, the_same_on_both, dtype)


def model_on_gpu():
    return network().cuda()


def of_all_ranks():
    return init_device_mesh("cuda", (dist.get_world_size(),))


def fsdp(rank, size, formats, secondary, policy):
    def make():
        return shard(model_on_gpu(), mesh=of_all_ranks(), secondary=secondary, **policy)

    return plain_and_ours(rank, make, 2, formats)[:2]


@pytest.mark.parametrize("secondary", [None, 2])
def test_lossless_is_plain_fsdp(gpu_ranks, secondary):
    for (plain_losses, plain), (losses, ours) in gpu_ranks.run(4, fsdp, {"preset": "lossless"}, secondary, {}):
        torch.testing.assert_close(torch.tensor(losses), torch.tensor(plain_losses), rtol=1e-5, atol=0)
        assert_same(plain, ours, **CLOSE)


BF16 = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}


@pytest.mark.parametrize(
    "formats, policy",
    [
        ({"preset": "4bit"}, {}),
        ({"preset": "4bit"}, BF16),
        ({"weights": "int8:256:fp16", "gradients": (INT4, INT4), "error_feedback": True}, {}),
        ({"differences": INT4_ROTATED, "gradients": (INT8, INT4)}, BF16),
    ],
)
def test_formats_train_as_plain_fsdp_does(gpu_ranks, formats, policy):
    for (plain, _), (ours, _) in gpu_ranks.run(4, fsdp, formats, 2, policy):
        assert ours[-1] < ours[0]
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)


def hsdp(rank, size):
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard"))
    formats = {"preset": "4bit", "replicas": "4bit"}
    return plain_and_ours(rank, lambda: shard(model_on_gpu(), mesh=mesh), 2, formats)[:2]


def test_hsdp_trains_as_plain_hsdp_does(gpu_ranks):
    for (plain, _), (ours, _) in gpu_ranks.run(4, hsdp):
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)


def ddp(rank, size, gradients):
    results = []
    for ours in (False, True):
        model = DistributedDataParallel(model_on_gpu())
        if ours:
            model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2, gradients=gradients, device="cuda"))
        results.append((train(model, rank), whole_parameters(model)))
    return results


def test_ddp(gpu_ranks):
    for (_, plain), (_, ours) in gpu_ranks.run(4, ddp, "lossless"):
        assert_same(plain, ours, **CLOSE)
    for (plain, _), (ours, _) in gpu_ranks.run(4, ddp, (INT8, INT4)):
        assert abs(ours[-1] / plain[-1] - 1) < 0.02, (plain, ours)


def islands(rank, size, exchange):
    """Weights after local steps on two islands of FSDP2; each island has one batch."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=("island", "rank"))
    model = fully_shard(model_on_gpu(), mesh=mesh["rank"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = zeropp.local_steps(optimizer, mesh["island"], every=2, exchange=exchange, learning_rate=0.5, momentum=0.6)
    losses = train(model, rank // 2, steps=6, optimizer=optimizer)
    assert steps.traffic().calls == 3 and steps.traffic().inter_node > 0
    return losses, whole_parameters(model)


@pytest.mark.parametrize("exchange", ["lossless", "2bit"])
def test_islands_are_equal_after_an_exchange(gpu_ranks, exchange):
    (losses, weights), *others = gpu_ranks.run(4, islands, exchange)
    assert losses[-1] < losses[0]
    for _, of_rank in others:
        assert_same(weights, of_rank)
