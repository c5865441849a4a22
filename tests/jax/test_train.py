"""The training of examples/jax/train.py: a step by zeropp gives the losses of a step by JAX."""

import pathlib
import re
import sys

import numpy as np
import pytest
import zeropp_jax as zeropp

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "jax"
sys.path.insert(0, str(EXAMPLE))
import train  # noqa: E402

STEPS, BATCH = 5, 32


@pytest.fixture(scope="module")
def losses_of_jax(comm):
    return train.losses_of(comm, lambda number, shape, function: train.jax_unit(comm, function), STEPS, BATCH)


def test_losses_are_those_of_jax(comm, losses_of_jax):
    lossless = zeropp.Formats.lossless()
    losses = train.losses_of(comm, lambda number, shape, function: zeropp.unit(comm, function, lossless), STEPS, BATCH)
    np.testing.assert_allclose(losses, losses_of_jax, rtol=1e-5)


@pytest.mark.parametrize("hpz", [False, True])
def test_losses_in_8_and_4_bits_are_near(comm, losses_of_jax, hpz):
    def unit(number, shape, function):
        return zeropp.unit(comm, function, replica=zeropp.Replica(comm, shape) if hpz else None)

    before = comm.traffic()
    losses = train.losses_of(comm, unit, STEPS, BATCH)
    np.testing.assert_allclose(losses, losses_of_jax, rtol=0.02)
    assert losses != losses_of_jax
    # A layer's three collectives. By hpZ, backward's gather stays within the node.
    layers = len(train.WIDTHS) - 1
    assert comm.traffic().calls - before.calls == 3 * layers * STEPS


def test_program_of_the_readme_runs(comm, monkeypatch):
    program = re.search(r"```python\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)[1]
    monkeypatch.setattr(zeropp, "initialize", lambda: None)
    names = {}
    exec(program, names)
    assert float(names["token"]) == 3
    # Weights of 1 and points of 1: each rank's gradient is 128 per element, and the step 0.01 of the mean.
    np.testing.assert_allclose(np.asarray(names["shard"].addressable_shards[0].data), 1 - 0.01 * 128, rtol=0.02)
