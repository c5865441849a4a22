"""FSDP2 by plain torchrun: torchrun --nproc-per-node 8 torchrun_fsdp2.py [PRESET]"""

import os
import sys

import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

preset = sys.argv[1] if len(sys.argv) > 1 else "4bit"
device = "cuda" if torch.cuda.is_available() else "cpu"
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl" if device == "cuda" else "gloo")
mesh = init_device_mesh(device, (dist.get_world_size(),))

torch.manual_seed(0)
layers = [nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.Linear(64, 1)]
model = nn.Sequential(*layers).to(device)
for layer in model:
    zeropp.fully_shard(layer, mesh=mesh)
zeropp.fully_shard(model, mesh=mesh)
if preset != "none":
    zeropp.apply(model, ranks_per_node=int(os.environ["LOCAL_WORLD_SIZE"]), preset=preset)

optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
torch.manual_seed(dist.get_rank())
for _ in range(20):
    x = torch.randn(64, 64, device=device)
    loss = (model(x).squeeze(1) - x.sum(1) / 8).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.all_reduce(loss.detach())
sent = zeropp.stats(model).bytes if preset != "none" else 0
print(f"loss {loss.item() / dist.get_world_size():.5f}, sent {sent} bytes", flush=True)
