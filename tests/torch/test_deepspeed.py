"""DeepSpeed's ZeRO-3 with zeropp's collectives, beside its own: four ranks on two nodes, in deepspeed_ranks.py."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("DeepSpeed is not installed: tests/torch/run.sh --launchers installs it", allow_module_level=True)

from deepspeed_ranks import MICROBATCHES, STEPS  # noqa: E402

RANKS = pathlib.Path(__file__).parent / "deepspeed_ranks.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    results = tmp_path_factory.mktemp("deepspeed") / "results.json"
    environment = {
        **os.environ, "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"
    }
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    ran = subprocess.run(
        [*torchrun, RANKS, results], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, timeout=600
    )
    assert results.exists(), ran.stdout[-4000:]
    return json.loads(results.read_text())


def test_without_the_keys_in_stage_2_and_disabled_nothing_changes(found):
    runs = {"fp32 imported": "fp32", "bf16 imported": "bf16", "fp32 stage 2": "fp32", "fp32 disabled": "fp32"}
    for run, plain in runs.items():
        losses = found[run]["losses"]
        assert losses == pytest.approx(found[f"{plain} plain"]["losses"][: len(losses)], rel=1e-5 if "stage" in run else 0)
        assert found[run]["inter_node"] == 0


# fp16's sums differ by rounding, as do bf16's.
@pytest.mark.parametrize("run, tolerance", [
    ("fp32 lossless", 1e-4), ("bf16 lossless", 0.05), ("fp16 lossless", 0.01), ("fp32 lossless hpz", 1e-4),
    ("bf16 lossless hpz", 0.05), ("fp32 lossless offloaded", 1e-4),
])
def test_lossless_formats_train_as_deepspeeds_own_collectives(found, run, tolerance):
    ours = found[run]["losses"]
    plain = found[f"{run.split()[0]} plain"]["losses"][: len(ours)]
    assert ours == pytest.approx(plain, rel=tolerance, abs=tolerance * plain[0])


@pytest.mark.parametrize("run", ["bf16 exact", "fp16 exact", "bf16 offloaded exact"])
def test_exact_differences_train_as_deepspeeds_own_gathers_to_the_bit(found, run):
    plain = found[f"{run.split()[0]} plain"]
    assert found[run]["losses"] == plain["losses"]
    assert found[run]["reductions"] == 0
    # Once a step, and fewer bytes for a change.
    assert 0 < found[run]["gathers"] < found["bf16 lossless"]["gathers"] / 4
    assert found[run]["untrained"] == ["No weights have changed between two forward passes."]
    changes = found[run]["changes"]
    assert max(part["updates"] for part in changes["parts"]) == STEPS - 1 - plain.get("skipped", 0)
    assert 0 < changes["sent"] < found[run]["gathers"] and 0.5 < changes["changed"] / changes["elements"] < 1


def test_backward_has_the_weights_of_a_forward_that_deepspeed_gathers(found):
    assert found["bf16 exact gathered"]["losses"] == found["bf16 plain"]["losses"]


@pytest.mark.parametrize("run", ["fp32 4bit", "fp16 4bit offloaded", "fp32 2bit error feedback", "fp32 4bit lora"])
def test_few_bits_train_too(found, run):
    dtype, lora = run.split()[0], " lora" if "lora" in run else ""
    plain, ours = found[f"{dtype} plain{lora}"]["losses"], found[run]["losses"]
    assert sum(ours[-8:]) == pytest.approx(sum(plain[-8:]), rel=0.25), (ours, plain)


def test_loss_scales_skip_the_steps_that_they_skip_with_deepspeeds_own(found):
    skipped = {run: found[f"fp16 {run}"]["skipped"] for run in ("plain", "lossless", "4bit offloaded")}
    assert skipped["plain"] > 0 and len(set(skipped.values())) == 1, skipped


def test_a_restart_goes_on_with_the_same_losses(found):
    assert found["bf16 4bit hpz restarted"]["losses"] == found["bf16 4bit hpz went on"]["losses"]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_bytes_between_nodes_are_those_of_the_shards(found, dtype):
    run = found[f"{dtype} lossless"]
    passes = 2 * MICROBATCHES * STEPS
    # Of each tensor up to 31 elements, and 15 bytes of each message, are padding. DeepSpeed chooses what shares a message.
    padding = 6 * (31 * (4 if dtype == "fp32" else 2) + 15)
    assert 0 <= run["gathers"] - passes * run["pass"] <= passes * padding
    assert 0 <= run["reductions"] - passes / 2 * run["pass"] <= passes / 2 * padding


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_hpz_gathers_weights_between_nodes_once_a_step(found, dtype):
    of_all, of_groups = (found[f"{dtype} lossless{hpz}"]["gathers"] for hpz in ("", " hpz"))
    steps = len(found[f"{dtype} lossless hpz"]["losses"]) // MICROBATCHES
    # Groups have the initial weights from the start.
    assert of_all * (steps - 1) == of_groups * 2 * MICROBATCHES * STEPS


def test_parameters_have_the_formats_of_their_configuration(found):
    assert found["of zero.Init"] == ["int8:256:bf16 + int8:256:bf16"]
    words = "expected deepspeed.zero.Init with the configuration of deepspeed.initialize, given one without"
    assert words in found["refused"]["zero.Init without a configuration"]


def test_attributes_of_deepspeed_are_listed_and_exist(found):
    version = importlib.metadata.version("deepspeed")
    assert found["missing"] == [], f"DeepSpeed {version} lacks attributes that zeropp_torch.deepspeed uses"
    # ds_zeropp is ours, ds_config an argument, and ds_quant_scale an attribute of frozen weights in 8 bits alone.
    package = pathlib.Path(importlib.util.find_spec("zeropp_torch").origin).parent
    used = set(re.findall(r"\b(ds_\w+)", (package / "deepspeed.py").read_text()))
    assert sorted(used - {"ds_zeropp", "ds_config", "ds_quant_scale"}) == found["listed"]


def test_what_is_refused(found):
    refused = found["refused"]
    assert "expected keys of preset, weights" in refused["unknown key"] and "'bits'" in refused["unknown key"]
    assert "ranks_per_node as a whole number from 1, given 0" in refused["no node"]
    assert "ranks_per_node as a whole number from 1, given '2'" in refused["a text"]
    assert "the launcher's number in LOCAL_WORLD_SIZE or LOCAL_SIZE, given two" in refused["a launcher's text"]
    assert refused["a launcher's text unread"] == ""
    assert "either preset or weights, given both" in refused["two formats"]
    assert "expected no differences but exact, given int2:64:signed:bf16:h32" in refused["differences in 2 bits"]
    assert "expected zero_hpz_partition_size 1 with differences, for which" in refused["exact with hpZ"]
    assert "expected weights gathered in 16 bits for exact differences, given fp32" in refused["exact fp32"]
    assert refused["changes"] == 'changes: expected "differences" in the section "zeropp", given none'
    assert "acts with zero_quantized_weights or zero_quantized_gradients, given neither" in refused["no keys"]
    assert 'differences of the section "zeropp" acts with zero_quantized_weights, given without' in refused["differences alone"]
    assert 'error_feedback of the section "zeropp" acts with zero_quantized_gradients' in refused["error_feedback alone"]
    assert "gradient_allreduce_op='sum' is not supported with ZeRO stage 3" in refused["sum"]
    for stage in (1, 2):
        assert f"zero_quantized_weights, zero_quantized_gradients acts in stage 3, given stage {stage}" in refused[f"stage {stage}"]
    assert "has no deepspeed.utils.groups._moved; 0.19.8 has" in refused["moved name"]
