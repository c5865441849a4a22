"""Each rank of mpirun runs all tests, in one order."""

import pytest
import zeropp_jax as zeropp


@pytest.fixture(scope="session")
def comm():
    """All four ranks, on two nodes."""
    zeropp.initialize()
    made = zeropp.Communicator(2)
    assert made.size == 4, "expected mpirun -n 4"
    return made
