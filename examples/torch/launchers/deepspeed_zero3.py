"""DeepSpeed's ZeRO-3 with ZeRO++: torchrun --nproc-per-node 8 deepspeed_zero3.py [PRESET]"""

import sys

import deepspeed
import torch
import torch.distributed as dist
import zeropp_torch.deepspeed as zeropp  # before deepspeed.initialize
from torch import nn

preset = sys.argv[1] if len(sys.argv) > 1 else "4bit"
config = {
    "train_micro_batch_size_per_gpu": 64,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {
        "stage": 3,
        "stage3_param_persistence_threshold": 0,
        "zero_quantized_weights": preset != "none",
        "zero_quantized_gradients": preset != "none",
    },
    "zeropp": {} if preset == "none" else {"preset": preset},
}
deepspeed.init_distributed()

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
torch.manual_seed(dist.get_rank())
for _ in range(20):
    x = torch.randn(64, 64, device=engine.device)
    loss = (engine(x).squeeze(1) - x.sum(1) / 8).square().mean()
    engine.backward(loss)
    engine.step()
loss = loss.detach()
dist.all_reduce(loss)
print(f"loss {loss.item() / dist.get_world_size():.5f}, sent {zeropp.stats(engine).bytes} bytes", flush=True)
