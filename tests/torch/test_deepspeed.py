"""DeepSpeed's ZeRO-3 with zeropp's collectives, beside its own: four ranks on two nodes, in deepspeed_ranks.py."""

import importlib.util
import json
import os
import pathlib
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


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_without_the_keys_nothing_changes(found, dtype):
    assert found[f"{dtype} imported"]["losses"] == found[f"{dtype} plain"]["losses"]
    assert found[f"{dtype} imported"]["inter_node"] == 0


@pytest.mark.parametrize("dtype, tolerance", [("fp32", 1e-4), ("bf16", 0.05)])
@pytest.mark.parametrize("hpz", ["", " hpz"])
def test_lossless_formats_train_as_deepspeeds_own_collectives(found, dtype, hpz, tolerance):
    plain, ours = found[f"{dtype} plain"]["losses"], found[f"{dtype} lossless{hpz}"]["losses"]
    assert ours == pytest.approx(plain, rel=tolerance, abs=tolerance * plain[0])


@pytest.mark.parametrize("run", ["fp32 4bit", "bf16 4bit", "bf16 4bit hpz", "fp32 2bit error feedback", "fp32 4bit frozen"])
def test_few_bits_train_too(found, run):
    dtype, frozen = run.split()[0], " frozen" if "frozen" in run else ""
    plain, ours = found[f"{dtype} plain{frozen}"]["losses"], found[run]["losses"]
    assert sum(ours[-8:]) == pytest.approx(sum(plain[-8:]), rel=0.25), (ours, plain)


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
    # Groups have the initial weights from the start.
    assert of_all * (STEPS - 1) == of_groups * 2 * MICROBATCHES * STEPS


def test_what_is_refused(found):
    refused = found["refused"]
    assert "expected keys of preset, weights" in refused["unknown key"] and "'bits'" in refused["unknown key"]
    assert "ranks_per_node as a whole number from 1, given 0" in refused["no node"]
    assert "either preset or weights, given both" in refused["two formats"]
    assert "zero_quantized_weights acts in stage 3, given stage 1" in refused["stage 1"]
    assert "has no deepspeed.utils.groups._moved; 0.19.8 has" in refused["moved name"]
