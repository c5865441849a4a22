"""FSDP2 by Hugging Face accelerate: accelerate launch --num-processes 8 accelerate_fsdp2.py [PRESET]"""

import os
import sys

import torch
import zeropp_torch as zeropp
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import LlamaConfig, LlamaForCausalLM

preset = sys.argv[1] if len(sys.argv) > 1 else "4bit"
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["LlamaDecoderLayer"]
)
accelerator = Accelerator(fsdp_plugin=plugin, cpu=not torch.cuda.is_available())
torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, num_key_value_heads=2, **sizes))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer = accelerator.prepare(model, optimizer)
if preset != "none":
    zeropp.apply(model, ranks_per_node=int(os.environ["LOCAL_WORLD_SIZE"]), preset=preset)

torch.manual_seed(accelerator.process_index)
for _ in range(10):
    tokens = torch.arange(32, device=accelerator.device) + torch.randint(90, (8, 1), device=accelerator.device)
    loss = model(input_ids=tokens, labels=tokens).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
loss = accelerator.reduce(loss.detach(), "mean")
sent = zeropp.stats(model).bytes if preset != "none" else 0
print(f"loss {loss.item():.5f}, sent {sent} bytes", flush=True)
