"""DDP by Lightning: torchrun --nproc-per-node 8 lightning_ddp.py [PRESET]"""

import os
import sys

import lightning
import torch
import zeropp_torch as zeropp
from torch import nn

preset = sys.argv[1] if len(sys.argv) > 1 else "8bit"
ranks, per_node = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1))

    # In place of DDPStrategy(ddp_comm_hook=): it needs the hook before process groups exist, and ignores hooks on CPUs.
    def on_fit_start(self):
        if preset != "none":
            self.hook = zeropp.ddp_hook(ranks_per_node=per_node, gradients=zeropp.PRESETS[preset]["gradients"], device=self.device)
            self.trainer.strategy.model.register_comm_hook(None, self.hook)

    def training_step(self, x):
        self.loss = (self.model(x).squeeze(1) - x.sum(1) / 8).square().mean()
        return self.loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


lightning.seed_everything(0)
module = Module()
options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
trainer = lightning.Trainer(strategy="ddp", devices=per_node, num_nodes=ranks // per_node, max_epochs=1, **options)
trainer.fit(module, torch.utils.data.DataLoader(torch.randn(20 * 64 * ranks, 64), batch_size=64))
sent = module.hook.traffic().bytes if preset != "none" else 0
print(f"loss {trainer.strategy.reduce(module.loss.detach()).item():.5f}, sent {sent} bytes", flush=True)
