"""Two ranks that end while a computation of theirs is under way, the second one later: it completes, and both end without an
error."""

import time

import jax
import jax.numpy as jnp
import zeropp_jax as zeropp
from test_collectives import WHOLE, drawn, on_ranks

zeropp.initialize()
comm = zeropp.Communicator(1)


def many(x, token):
    # XLA runs a program with little arithmetic before it returns.
    for _ in range(20):
        x, token = zeropp.all_reduce(comm, 0.5 * x + 1, token, mean=True)
    return x, token


reduced = on_ranks(comm, many, WHOLE)
part = drawn(comm, (100_000,), jnp.float32)
_, token = jax.block_until_ready(reduced(part, comm.token()))
_, token = jax.block_until_ready(reduced(part, token))
_, token = reduced(part, token)
if jax.process_index() == 1:
    time.sleep(0.2)
