"""FSDP2 by the Trainer of torchtitan: torchrun --nproc-per-node 8 torchtitan_fsdp2.py [PRESET]"""

import dataclasses
import os
import sys

import torch
import zeropp_torch as zeropp
from torchtitan.config import ConfigManager
from torchtitan.protocols.train_spec import get_train_spec, register_train_spec
from torchtitan.train import Trainer

preset = sys.argv[1] if len(sys.argv) > 1 else "4bit"
llama = get_train_spec("llama3")


def parallelize(model, parallel_dims, job_config):
    model = llama.parallelize_fn(model, parallel_dims, job_config)
    if preset != "none":
        zeropp.apply(model, ranks_per_node=int(os.environ["LOCAL_WORLD_SIZE"]), preset=preset)
    return model


def batches(dp_rank, **others):
    generator = torch.Generator().manual_seed(dp_rank)
    while True:
        tokens = torch.arange(65) + torch.randint(1900, (4, 1), generator=generator)
        yield {"input": tokens[:, :-1]}, tokens[:, 1:]


spec = dataclasses.replace(llama, parallelize_fn=parallelize, build_dataloader_fn=batches, build_tokenizer_fn=None)
register_train_spec("quantized llama3", spec)
arguments = ["--model.name=quantized llama3", "--model.flavor=debugmodel", "--training.seq_len=64", "--training.steps=10"]
arguments += ["--training.local_batch_size=4", "--optimizer.lr=0.003", "--lr_scheduler.warmup_steps=1", "--debug.seed=0"]
trainer = Trainer(ConfigManager().parse_args(arguments))
losses = []
trainer.metrics_processor.log = lambda step, loss, *others, **more: losses.append(loss)
trainer.train()
sent = zeropp.stats(trainer.model_parts[0]).bytes if preset != "none" else 0
print(f"loss {losses[-1]:.5f}, sent {sent} bytes", flush=True)
