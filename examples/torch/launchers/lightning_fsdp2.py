"""FSDP2 by Lightning's ModelParallelStrategy: torchrun --nproc-per-node 8 lightning_fsdp2.py [PRESET]"""

import os
import sys

import lightning
import torch
import zeropp_torch as zeropp
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn

preset = sys.argv[1] if len(sys.argv) > 1 else "4bit"
ranks, ranks_per_node = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])


class Module(lightning.LightningModule):
    def configure_model(self):
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))
        for layer in [*self.model, self.model]:
            zeropp.fully_shard(layer, mesh=self.device_mesh["data_parallel"])
        if preset != "none":
            zeropp.apply(self.model, ranks_per_node=ranks_per_node, preset=preset)

    def training_step(self, x):
        self.loss = (self.model(x).squeeze(1) - x.sum(1) / 8).square().mean()
        return self.loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


lightning.seed_everything(0)
module = Module()
strategy = ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(strategy=strategy, devices=ranks_per_node, num_nodes=ranks // ranks_per_node, max_epochs=1, **options)
trainer.fit(module, torch.utils.data.DataLoader(torch.randn(20 * 64 * ranks, 64), batch_size=64))
sent = zeropp.stats(module.model).bytes if preset != "none" else 0
print(f"loss {strategy.reduce(module.loss.detach()).item():.5f}, sent {sent} bytes", flush=True)
