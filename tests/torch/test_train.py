"""The example's training, as its README starts it."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

TRAIN = pathlib.Path(__file__).parents[2] / "examples" / "torch" / "train.py"


@pytest.mark.parametrize(
    "size, per_node, arguments",
    [
        (4, 2, []),
        (2, 1, ["--ddp", "--preset", "8bit", "--nodes-per-site", "1"]),
        (2, 1, ["--digits", "--exact", "--steps", "40"]),
        (2, 1, ["--hsdp", "--exact"]),  # no weights are gathered
    ],
)
def test_the_example_trains(size, per_node, arguments, tmp_path):
    if "--digits" in arguments:
        pytest.importorskip("sklearn")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    sizes = ["--steps", "10", "--lr", "0.003", "--layers", "2", "--width", "64"]
    command = [*torchrun, TRAIN, "--ranks-per-node", str(per_node), *sizes, *arguments]
    environment = dict(os.environ)
    if "--digits" not in arguments:
        # torch does not bring NumPy along.
        (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module named numpy')")
        environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), *filter(None, [environment.get("PYTHONPATH")])])
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    losses = [float(loss) for loss in re.findall(r"held out ([0-9.]+),", done.stdout)]
    assert len(losses) == 10 and losses[-1] < losses[0] - 0.3, done.stdout
    if not arguments:
        assert "int8:256:bf16 + int4:128:signed:bf16" in done.stdout
        sent = float(re.search(r"sent ([0-9.]+) MB across nodes in a step", done.stdout).group(1))
        planned = int(re.search(r"^all .* ([0-9]+)$", done.stdout, re.MULTILINE).group(1))
        assert sent == pytest.approx(planned / 1e6, rel=0.01)
