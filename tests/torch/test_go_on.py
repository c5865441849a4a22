"""examples/torch/go_on.py: a training loses a rank, and goes on."""

import pathlib
import re
import subprocess
import sys

import torch
from models import assert_same, whole_parameters

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "torch" / "go_on.py"


def test_the_ranks_of_whole_nodes_go_on():
    done = subprocess.run([sys.executable, EXAMPLE, "--steps", "7"], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    steps = re.findall(r"^step ([0-9]): loss ([0-9.]+), ([0-9]) ranks", done.stdout, re.MULTILINE)
    assert [(int(step), int(ranks)) for step, _, ranks in steps] == [(n, 6 if n <= 4 else 4) for n in range(1, 8)]
    losses = [float(loss) for _, loss, _ in steps]
    assert max(losses[4:]) < min(losses[:4]), losses


def moves_and_trains_on(rank, size):
    sys.path.insert(0, str(EXAMPLE.parent))
    import go_on

    task = go_on.Text(None)
    draws = torch.Generator().manual_seed(rank)

    def step(model, optimizer, batch):
        loss = task.loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.detach())

    old, new = go_on.build(task), go_on.build(task)
    for _ in range(3):
        step(*old, task.batch(4, draws))
    go_on.move(old, new)
    assert_same(whole_parameters(old[0]), whole_parameters(new[0]))
    for parameters in zip(old[0].parameters(), new[0].parameters()):
        states = [trained.state[parameter] for (_, trained), parameter in zip((old, new), parameters)]
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            given, expected = (state[name] for state in states)
            if hasattr(given, "full_tensor"):
                given, expected = given.full_tensor(), expected.full_tensor()
            assert torch.equal(given, expected), name
    return step(*new, task.batch(4, draws)) < 6


def test_a_model_on_another_mesh_has_the_same_weights_and_moments(ranks):
    assert ranks.run(6, moves_and_trains_on) == [True] * 6
