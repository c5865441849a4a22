"""One of four ranks on two nodes: trains by DeepSpeed's ZeRO-3, with its own collectives and with zeropp's, and writes losses
and bytes: deepspeed_ranks.py RESULTS"""

import json
import math
import sys
import warnings

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

STEPS, MICROBATCHES = 15, 2
# DeepSpeed refuses fp16 on processors.
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def configuration(dtype, zero=None, ours=None):
    config = {
        "train_micro_batch_size_per_gpu": 16,
        "gradient_accumulation_steps": MICROBATCHES,
        "zero_allow_untested_optimizer": True,
        # No parameter stays gathered between modules, so that each pass gathers all.
        "zero_optimization": {
            "stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0,
            "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0, **(zero or {})
        },
    }
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    return config if ours is None else {**config, "zeropp": ours}


def sizes():
    return [(33, 257), (257, 129), (129, 1)]


def train(dtype, zero=None, ours=None, frozen=False):
    """Losses of this rank's microbatches, and the engine. No size divides by four."""
    torch.manual_seed(0)
    layers = [layer for size in sizes() for layer in (nn.Linear(*size), nn.GELU())]
    model = nn.Sequential(*layers[:-1])
    if frozen:
        model[2].requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.Adam(trained, lr=0.003), config=configuration(dtype, zero, ours)
    )
    torch.manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(STEPS * MICROBATCHES):
        x = torch.randn(16, 33)
        loss = (engine(x.to(TYPES[dtype])).float().squeeze(1) - x.sum(1) / 8).square().mean()
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses, engine


def main(results):
    deepspeed.ops.__compatible_ops__.clear()  # nothing is compiled
    deepspeed.init_distributed("gloo")
    found = {f"{dtype} plain": {"losses": train(dtype)[0]} for dtype in TYPES}
    found["fp32 plain frozen"] = {"losses": train("fp32", frozen=True)[0]}

    import zeropp_torch.deepspeed as zeropp
    from zeropp_torch import ZeroppError
    
    def ours(name, dtype, section, hpz=1, frozen=False):
        keys = {"zero_quantized_weights": True, "zero_quantized_gradients": True, "zero_hpz_partition_size": hpz}
        losses, engine = train(dtype, keys, {"ranks_per_node": 2, **section}, frozen)
        by_use = {"gathers": 0, "reductions": 0}
        for settings in zeropp._settings_in("stats", engine):
            for (_, use), communicator in settings._communicators.items():
                by_use[use] += communicator.traffic().inter_node
        found[name] = {"losses": losses, "inter_node": zeropp.stats(engine).inter_node, **by_use}

    for dtype in TYPES:
        losses, engine = train(dtype)
        found[f"{dtype} imported"] = {"losses": losses, "inter_node": zeropp.stats(engine).inter_node}
        ours(f"{dtype} lossless", dtype, {"preset": "lossless"})
        ours(f"{dtype} 4bit", dtype, {})
    ours("fp32 4bit frozen", "fp32", {"preset": "4bit"}, frozen=True)
    ours("fp32 2bit error feedback", "fp32", {
        "weights": "int8:256:fp16", "gradients": ["int8:256:bf16:h32", "int2:64:signed:bf16:h32"], "error_feedback": True
    })
    # Last, because DeepSpeed keeps the groups of hpZ for all later engines of a process.
    for dtype in TYPES:
        ours(f"{dtype} lossless hpz", dtype, {"preset": "lossless"}, hpz=2)
    ours("bf16 4bit hpz", "bf16", {"preset": "4bit"}, hpz=2)

    # Of rank 0: a shard of each parameter crosses once in a gather, the sum of a node in a reduction.
    shards = sum(math.ceil(n / 4) for a, b in sizes() for n in (a * b, b))
    for dtype, size in {"fp32": 4, "bf16": 2}.items():
        found[f"{dtype} lossless"]["pass"] = shards * size

    refused = {}
    for name, section in {
        "unknown key": {"bits": 4}, "no node": {"ranks_per_node": 0}, "two formats": {"preset": "4bit", "weights": "bf16"}
    }.items():
        try:
            train("fp32", {"zero_quantized_weights": True}, section)
        except ZeroppError as error:
            refused[name] = str(error)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        train("fp32", {"stage": 1, "zero_quantized_weights": True})
    refused["stage 1"] = "\n".join(str(warning.message) for warning in warned)
    zeropp.PRIVATE_NAMES["deepspeed.utils.groups"] += ("_moved",)
    try:
        zeropp._install()
    except ZeroppError as error:
        refused["moved name"] = str(error)
    found["refused"] = refused
    if dist.get_rank() == 0:
        with open(results, "w", encoding="utf-8") as file:
            json.dump(found, file)
    dist.barrier()


if __name__ == "__main__":
    main(sys.argv[1])
