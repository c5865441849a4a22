"""One of four ranks on two nodes: trains by DeepSpeed's ZeRO-3, with its own collectives and with zeropp's, and writes losses
and bytes: deepspeed_ranks.py RESULTS"""

import contextlib
import dataclasses
import json
import math
import os
import sys
import warnings

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.accelerator import get_accelerator
from torch import nn

STEPS, MICROBATCHES = 15, 2
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# No parameter stays gathered between modules, so that each pass gathers all.
GATHER_ALL = {
    "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0,
    "stage3_prefetch_bucket_size": 0,
}
# DeepSpeed's defaults, on which gathers of later modules begin before their turn, and both kinds of offload.
OFFLOADED = {
    "stage3_max_live_parameters": 10**9, "stage3_max_reuse_distance": 10**9, "stage3_prefetch_bucket_size": 5 * 10**7,
    "overlap_comm": True, "offload_param": {"device": "cpu"}, "offload_optimizer": {"device": "cpu"},
}
KEYS = {"zero_quantized_weights": True, "zero_quantized_gradients": True}


def configuration(dtype, zero=None, ours=None, **others):
    config = {
        "train_micro_batch_size_per_gpu": 16, "gradient_accumulation_steps": MICROBATCHES,
        "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, **GATHER_ALL, **(zero or {})}, **others,
    }
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    elif dtype == "fp16":
        # The first scales are too large: their steps are skipped.
        config["fp16"] = {"enabled": True, "initial_scale_power": 18, "hysteresis": 1, "loss_scale_window": 8}
    return config if ours is None else {**config, "zeropp": ours}


def sizes():
    return [(33, 257), (257, 129), (129, 1)]


class LoRA(nn.Module):
    """A frozen layer with a trained one of rank 4 beside it."""

    def __init__(self, rows, columns):
        super().__init__()
        self.base = nn.Linear(rows, columns).requires_grad_(False)
        self.down, self.up = nn.Linear(rows, 4, bias=False), nn.Linear(4, columns, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def engine_of(dtype, zero=None, ours=None, lora=False, init=contextlib.nullcontext()):
    """No size divides by four. `init` may be a deepspeed.zero.Init."""
    torch.manual_seed(0)
    with init:
        layers = [layer for number, size in enumerate(sizes())
                  for layer in (LoRA(*size) if lora and number == 1 else nn.Linear(*size), nn.GELU())]
        model = nn.Sequential(*layers[:-1])
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=torch.optim.Adam(trained, lr=0.003), config=configuration(dtype, zero, ours)
    )
    return engine


def train(engine, steps=STEPS, first=0, gathered=False):
    """Mean losses of all ranks' microbatches. If `gathered`, DeepSpeed itself gathers all weights for every second step's forward."""
    dtype = next(engine.module.parameters()).dtype
    torch.manual_seed(100 * (1 + first) + dist.get_rank())
    losses = []
    parameters = list(engine.module.parameters())
    for microbatch in range(steps * MICROBATCHES):
        x = torch.randn(16, 33)
        with deepspeed.zero.GatheredParameters(parameters, enabled=gathered and microbatch // MICROBATCHES % 2 == 1):
            y = engine(x.to(dtype))
        loss = (y.float().squeeze(1) - x.sum(1) / 8).square().mean()
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    return losses


def main(results):
    deepspeed.ops.__compatible_ops__.clear()  # nothing is compiled
    get_accelerator().is_fp16_supported = lambda: True  # which depends on the processor, and torch computes fp16 on all
    deepspeed.init_distributed("gloo")
    found = {f"{dtype} plain": {"losses": train(engine_of(dtype))} for dtype in ("fp32", "bf16")}
    engine = engine_of("fp16")
    found["fp16 plain"] = {"losses": train(engine), "skipped": engine.skipped_steps}
    found["fp32 plain lora"] = {"losses": train(engine_of("fp32", lora=True))}

    import zeropp_torch.deepspeed as zeropp
    from zeropp_torch import ZeroppError, disabled

    def ours(name, section, zero=None, lora=False, steps=STEPS):
        engine = engine_of(name.split()[0], KEYS | (zero or {}), {"ranks_per_node": 2, **section}, lora)
        exact = "differences" in section
        untrained = zeropp.changes(engine).advice if exact else None
        losses = train(engine, steps)
        by_use = {"gathers": 0, "reductions": 0}
        for settings in zeropp._settings_in("stats", engine):
            for (_, use), communicator in settings._communicators.items():
                by_use[use] += communicator.traffic().inter_node
        found[name] = {
            "losses": losses, "inter_node": zeropp.stats(engine).inter_node, "skipped": engine.skipped_steps, **by_use,
            "changes": dataclasses.asdict(zeropp.changes(engine)) if exact else None, "untrained": untrained,
        }
        return engine

    for dtype in ("fp32", "bf16"):
        engine = engine_of(dtype)
        found[f"{dtype} imported"] = {"losses": train(engine, steps=3), "inter_node": zeropp.stats(engine).inter_node}
    engine = engine_of("fp32", KEYS, {"ranks_per_node": 2})
    with disabled():
        found["fp32 disabled"] = {"losses": train(engine, steps=3), "inter_node": zeropp.stats(engine).inter_node}
    for dtype in TYPES:
        ours(f"{dtype} lossless", {"preset": "lossless"})
    # Gradients are DeepSpeed's own, as in the plain training.
    for name, zero in {"bf16": {}, "fp16": {}, "bf16 offloaded": OFFLOADED}.items():
        ours(f"{name} exact", {"differences": "exact"}, {"zero_quantized_gradients": False, **zero})
    engine = engine_of("bf16", KEYS | {"zero_quantized_gradients": False}, {"ranks_per_node": 2, "differences": "exact"})
    found["bf16 exact gathered"] = {"losses": train(engine, gathered=True)}
    ours("fp32 lossless offloaded", {"preset": "lossless"}, OFFLOADED, steps=6)
    engine = ours("fp32 4bit", {})
    ours("fp16 4bit offloaded", {}, OFFLOADED)
    ours("fp32 4bit lora", {"preset": "4bit"}, lora=True)
    ours("fp32 2bit error feedback", {
        "weights": "int8:256:fp16", "gradients": ["int8:256:bf16:h32", "int2:64:signed:bf16:h32"], "error_feedback": True
    })
    # Last, because DeepSpeed keeps the groups of hpZ for all later engines of a process.
    hpz = {"zero_hpz_partition_size": 2}
    for dtype in ("fp32", "bf16"):
        ours(f"{dtype} lossless hpz", {"preset": "lossless"}, hpz, steps=6)

    of = {"parameter": engine.module[0].weight, "configuration": engine._config, "optimizer": engine.optimizer}
    found["missing"] = [
        f"{name}.{attribute}" for name, attributes in zeropp.PRIVATE_ATTRIBUTES.items()
        for attribute in attributes if not hasattr(of[name], attribute)
    ]
    found["listed"] = sorted(zeropp.PRIVATE_ATTRIBUTES["parameter"])

    # A restart goes on with the same losses.
    restarted = "bf16", KEYS | hpz, {"ranks_per_node": 2, "error_feedback": True}
    engine = engine_of(*restarted)
    train(engine, steps=3)
    folder = os.path.join(os.path.dirname(results), "checkpoint")
    engine.save_checkpoint(folder)
    zeropp.reset_feedback(engine)
    found["bf16 4bit hpz went on"] = {"losses": train(engine, steps=3, first=1)}
    engine = engine_of(*restarted)
    engine.load_checkpoint(folder)
    found["bf16 4bit hpz restarted"] = {"losses": train(engine, steps=3, first=1)}

    # Of rank 0: a shard of each parameter crosses once in a gather, the sum of a node in a reduction.
    shards = sum(math.ceil(n / 4) for a, b in sizes() for n in (a * b, b))
    for dtype, size in {"fp32": 4, "bf16": 2}.items():
        found[f"{dtype} lossless"]["pass"] = shards * size

    refused = {}

    def read(name, config):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                deepspeed.DeepSpeedConfig(config)
                refused[name] = "\n".join(str(warning.message) for warning in warned)
            except (ZeroppError, ValueError) as error:
                refused[name] = str(error)

    for name, section in {
        "unknown key": {"bits": 4}, "no node": {"ranks_per_node": 0}, "a text": {"ranks_per_node": "2"},
        "two formats": {"preset": "4bit", "weights": "bf16"},
        "differences in 2 bits": {"preset": "2bit"},
    }.items():
        read(name, configuration("fp32", KEYS, section))
    launched = os.environ["LOCAL_WORLD_SIZE"]
    os.environ["LOCAL_WORLD_SIZE"] = "two"
    read("a launcher's text", configuration("fp32", KEYS, {}))
    read("a launcher's text unread", configuration("fp32", KEYS, {"ranks_per_node": 2}))
    os.environ["LOCAL_WORLD_SIZE"] = launched
    read("exact with hpZ", configuration("bf16", KEYS | hpz, {"differences": "exact"}))
    try:
        engine_of("fp32", KEYS, {"ranks_per_node": 2, "differences": "exact"})
    except ZeroppError as error:
        refused["exact fp32"] = str(error)
    # Parameters have the formats of their zero.Init, whichever configuration was read last.
    init = deepspeed.zero.Init(config_dict_or_path=configuration("fp32", KEYS, {"ranks_per_node": 2, "preset": "8bit"}))
    read("no keys", configuration("fp32", ours={"ranks_per_node": 2, "preset": "6bit"}))
    model = engine_of("fp32", KEYS, {"ranks_per_node": 2, "preset": "8bit"}, init=init).module
    found["of zero.Init"] = sorted({str(parameter.ds_zeropp.gradients) for parameter in model.parameters()})
    try:
        train(engine_of("fp32", KEYS, {"ranks_per_node": 2}, init=deepspeed.zero.Init()), steps=1)
    except ZeroppError as error:
        refused["zero.Init without a configuration"] = str(error)
    for key, value in {"differences": "exact", "error_feedback": True}.items():
        switched = {"zero_quantized_gradients" if key == "differences" else "zero_quantized_weights": True}
        read(f"{key} alone", configuration("bf16", switched, {"ranks_per_node": 2, key: value}))
    read("sum", configuration("fp32", KEYS, gradient_allreduce_op="sum"))
    try:
        zeropp.changes(engine)
    except ZeroppError as error:
        refused["changes"] = str(error)
    for stage in (1, 2):
        read(f"stage {stage}", configuration("fp32", {"stage": stage} | KEYS))
    engine = engine_of("fp32", {"stage": 2, "zero_quantized_weights": True})
    found["fp32 stage 2"] = {"losses": train(engine, steps=2), "inter_node": zeropp.stats(engine).inter_node}
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
