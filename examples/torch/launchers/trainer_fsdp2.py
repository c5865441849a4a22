"""FSDP2 by the Trainer of Hugging Face transformers: torchrun --nproc-per-node 8 trainer_fsdp2.py [PRESET]"""

import os
import sys
import tempfile

import torch
import zeropp_torch as zeropp
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

preset = sys.argv[1] if len(sys.argv) > 1 else "4bit"


class Quantized(TrainerCallback):
    def on_train_begin(self, args, state, control, model, **others):
        zeropp.apply(model, ranks_per_node=int(os.environ["LOCAL_WORLD_SIZE"]), preset=preset)


torch.manual_seed(0)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
model = LlamaForCausalLM(LlamaConfig(vocab_size=128, num_key_value_heads=2, **sizes))
texts = [{"input_ids": tokens, "labels": tokens} for tokens in torch.arange(32) + torch.randint(90, (160, 1))]
arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, max_steps=10, learning_rate=3e-3, logging_steps=10,
    save_strategy="no", report_to=[], use_cpu=not torch.cuda.is_available(),
    fsdp=True, fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]},
)
trainer = Trainer(model, arguments, train_dataset=texts, callbacks=[Quantized()] if preset != "none" else [])
trainer.train()
sent = zeropp.stats(trainer.model).bytes if preset != "none" else 0
print(f"loss {trainer.state.log_history[0]['loss']}, sent {sent} bytes", flush=True)
