"""DDP by Hugging Face accelerate: accelerate launch --num-processes 8 accelerate_ddp.py [PRESET]"""

import os
import sys

import torch
import zeropp_torch as zeropp
from accelerate import Accelerator
from transformers import LlamaConfig, LlamaForCausalLM

preset = sys.argv[1] if len(sys.argv) > 1 else "8bit"
accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, num_key_value_heads=2, **sizes))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer = accelerator.prepare(model, optimizer)
if preset != "none":
    formats = zeropp.PRESETS[preset]["gradients"]
    hook = zeropp.ddp_hook(
        ranks_per_node=int(os.environ["LOCAL_WORLD_SIZE"]), gradients=formats, device=accelerator.device
    )
    # In place of DistributedDataParallelKwargs(comm_hook=), which takes only hooks of accelerate.
    model.register_comm_hook(None, hook)

torch.manual_seed(accelerator.process_index)
for _ in range(10):
    tokens = torch.arange(32, device=accelerator.device) + torch.randint(90, (8, 1), device=accelerator.device)
    loss = model(input_ids=tokens, labels=tokens).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
loss = accelerator.reduce(loss.detach(), "mean")
sent = hook.traffic().bytes if preset != "none" else 0
print(f"loss {loss.item():.5f}, sent {sent} bytes", flush=True)
