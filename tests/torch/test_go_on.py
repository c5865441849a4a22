"""examples/torch/go_on.py: a training loses a rank, and goes on."""

import pathlib
import re
import subprocess
import sys

import pytest
import torch
from models import assert_same, whole_parameters

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "torch" / "go_on.py"
sys.path.insert(0, str(EXAMPLE.parent))

import go_on  # noqa: E402


def loses(*ranks):
    """The example in the background, without these ranks from the fifth step on."""
    command = [sys.executable, EXAMPLE, "--steps", "7", "--lost", *map(str, ranks)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_ranks_of_whole_nodes_go_on_and_without_any_the_training_fails():
    one, of_all_nodes = loses(2), loses(0, 2, 4)
    output, errors = one.communicate(timeout=240)
    assert one.returncode == 0, output + errors
    steps = re.findall(r"^step ([0-9]): loss ([0-9.]+), ([0-9]) ranks", output, re.MULTILINE)
    assert [(int(step), int(ranks)) for step, _, ranks in steps] == [(n, 6 if n <= 4 else 4) for n in range(1, 8)]
    losses = [float(loss) for _, loss, _ in steps]
    assert max(losses[4:]) < min(losses[:4]), losses
    output, errors = of_all_nodes.communicate(timeout=240)
    assert of_all_nodes.returncode == 1, output + errors
    assert "rank 1: no whole node is left to go on after step 4" in output
    assert errors.endswith("the training has not ended: ranks [1, 3, 5] have given up\n")


def test_a_rank_has_to_be_left(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["go_on.py", "--lost", *"012345"])
    with pytest.raises(SystemExit, match="2"):
        go_on.main()
    assert capsys.readouterr().err.endswith("--lost must leave a rank\n")


def moves_and_trains_on(rank, size):
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
