"""LoRA by peft on a Llama of random weights, which come from a safetensors file, beside plain FSDP2."""

import pytest
import torch
import torch.distributed as dist
import zeropp_torch as zeropp
from models import as_torch_sums
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy

peft = pytest.importorskip("peft", reason="tests/torch/run.sh --launchers installs it")
transformers = pytest.importorskip("transformers")
safetensors = pytest.importorskip("safetensors.torch")


def llama():
    torch.manual_seed(5)
    sizes = {"vocab_size": 61, "hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 2, "num_attention_heads": 4}
    whole = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    return peft.get_peft_model(whole, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))


def sharded(size):
    model = llama()
    arguments = {
        "mesh": init_device_mesh("cpu", (size,)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
    }
    for layer in model.base_model.model.model.layers:
        frozen = [m for m in layer.modules() if isinstance(m, nn.Linear) and not m.weight.requires_grad]
        zeropp.fully_shard(frozen, **arguments)
        zeropp.fully_shard(layer, **arguments)
    return as_torch_sums(zeropp.fully_shard(model, **arguments))


def step(model, optimizer, rank, number):
    tokens = torch.randint(0, 61, (4, 12), generator=torch.Generator().manual_seed(100 * number + rank))
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss.detach_())
    return loss.item() / dist.get_world_size()


def lora(rank, size, preset, folder):
    """Losses of plain FSDP2 and of ours, before and after other weights are loaded; bytes of a step between nodes."""
    path = f"{folder}/weights-{rank}.safetensors"
    safetensors.save_file({name: 3 * p.detach() for name, p in llama().named_parameters()}, path)
    losses, sent = [], []
    for ours in (False, True):
        model = sharded(size)
        if ours:
            report = zeropp.apply(model, ranks_per_node=2, preset=preset, keep_frozen=True)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
        of = [step(model, optimizer, rank, number) for number in range(4)]
        options = StateDictOptions(full_state_dict=True, strict=False)
        set_model_state_dict(model, safetensors.load_file(path), options=options)
        of += [step(model, optimizer, rank, number) for number in range(4, 6)]
        if ours:
            before = zeropp.stats(model)
            of.append(step(model, optimizer, rank, 6))
            sent = [(zeropp.stats(model) - before).inter_node, report.before.inter_node]
        else:
            of.append(step(model, optimizer, rank, 6))
        losses.append(of)
    return losses, sent


@pytest.mark.parametrize("preset, close, fewer", [("lossless", 2e-3, 3), ("4bit", 0.02, 10)])
def test_peft_trains_as_with_torchs_collectives(ranks, tmp_path, preset, close, fewer):
    for (plain, ours), (sent, before) in ranks.run(4, lora, preset, str(tmp_path)):
        assert ours == pytest.approx(plain, rel=close)
        assert abs(plain[4] - plain[3]) > 0.2, "other weights have another loss"
        assert 0 < sent < before / fewer, (sent, before)
