"""Two ranks, of which the second leaves out a call: the first fails within the communicator's time, and so do its later calls."""

import jax
import jax.experimental.multihost_utils
import jax.numpy as jnp
import zeropp_jax as zeropp
from test_collectives import WHOLE, drawn, on_ranks

zeropp.initialize()
comm = zeropp.Communicator(1, seconds=1)
gather = on_ranks(comm, lambda x, token: zeropp.all_gather(comm, x, token), WHOLE)
part = drawn(comm, (100,), jnp.float32)
_, token = jax.block_until_ready(gather(part, comm.token()))
texts = []
for _ in range(2 if jax.process_index() == 0 else 0):
    try:
        jax.block_until_ready(gather(part, token))
    except Exception as raised:
        texts.append(str(raised).splitlines()[0])
jax.experimental.multihost_utils.sync_global_devices("the first rank has failed")
if jax.process_index() == 0:
    words = "timeout: a rank has died, or has not made this call"
    assert len(texts) == 2 and all(words in text for text in texts), texts
    print("passed")
