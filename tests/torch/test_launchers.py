"""The examples of launchers: two nodes of one rank each, with torch's own collectives and with zeropp's."""

import importlib.util
import os
import pathlib
import re
import socket
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples" / "torch" / "launchers"
HUGGING_FACE = ["accelerate", "transformers"]
PACKAGES = {"torchrun": [], "accelerate": HUGGING_FACE, "trainer": HUGGING_FACE}


def run(example, preset):
    """The loss that both ranks print, and the bytes that they print as sent."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    torchrun += ["--master-addr", "localhost", "--master-port", str(port)]
    nodes = [
        subprocess.Popen(
            [*torchrun, "--node-rank", str(node), HERE / "launched.py", example, preset],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )
        for node in range(2)
    ]
    texts = [node.communicate(timeout=300)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], "\n".join(texts)
    found = [re.search(r"^loss ([0-9.]+), sent ([0-9]+) bytes$", text, re.MULTILINE) for text in texts]
    assert all(found), "\n".join(texts)
    losses, sent = [{f.group(part) for f in found} for part in (1, 2)]
    assert len(losses) == len(sent) == 1, "both ranks have the same"
    return float(losses.pop()), int(sent.pop())


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_the_example_trains_as_with_torchs_collectives(example):
    launcher = example.stem.split("_")[0]
    for package in PACKAGES.get(launcher, [launcher]):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: tests/torch/run.sh --launchers installs it")
    assert len(example.read_text().splitlines()) <= 40
    plain, nothing = run(example, "none")
    ours, sent = run(example, "8bit")
    assert nothing == 0 < sent
    assert abs(ours / plain - 1) < 0.02, (ours, plain)
