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


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_without_the_keys_nothing_changes(found, dtype):
    assert found[f"{dtype} imported"]["losses"] == found[f"{dtype} plain"]["losses"]
    assert found[f"{dtype} imported"]["inter_node"] == 0


@pytest.mark.parametrize("dtype, tolerance", [("fp32", 1e-4), ("bf16", 0.05), ("fp16", 0.05)])
@pytest.mark.parametrize("hpz", ["", " hpz"])
def test_lossless_formats_train_as_deepspeeds_own_collectives(found, dtype, hpz, tolerance):
    plain, ours = found[f"{dtype} plain"]["losses"], found[f"{dtype} lossless{hpz}"]["losses"]
    assert ours == pytest.approx(plain, rel=tolerance, abs=tolerance * plain[0])


@pytest.mark.parametrize("run", ["fp32 4bit", "bf16 4bit", "fp16 4bit", "bf16 4bit hpz", "fp32 2bit error feedback", "fp32 4bit frozen"])
def test_few_bits_train_too(found, run):
    dtype = run.split()[0]
    plain, ours = found[f"{dtype} plain"]["losses"], found[run]["losses"]
    last = slice(-8, None)
    assert sum(ours[last]) / 8 < 0.5 * plain[0], (ours, plain)
    if "frozen" not in run:
        assert sum(ours[last]) == pytest.approx(sum(plain[last]), rel=0.5, abs=0.02 * 8 * plain[0])


def test_nodes_exchange_the_bytes_of_the_plan(found):
    for name, run in found.items():
        if "planned" in run:
            assert (run["gathers"], run["reductions"]) == tuple(run["planned"]), name


def test_hpz_gathers_weights_once_a_step(found):
    # Two microbatches a step, each with a forward and a backward.
    of_all, of_groups = (found[f"bf16 lossless{hpz}"]["gathers"] for hpz in ("", " hpz"))
    assert of_all == 4 * of_groups


def test_what_is_refused(found):
    refused = found["refused"]
    assert "expected keys of preset, weights" in refused["unknown key"] and "'bits'" in refused["unknown key"]
    assert "ranks_per_node as a whole number from 1, given 0" in refused["no node"]
    assert "either preset or weights, given both" in refused["two formats"]
    assert "zero_quantized_weights acts in stage 3, given stage 1" in refused["stage 1"]
    assert "has no deepspeed.utils.groups._moved; 0.19.8 has" in refused["moved name"]
