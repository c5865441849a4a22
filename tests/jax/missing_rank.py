"""Two ranks, of which the second leaves out a call, and then a communicator: the first fails within the communicator's time, and
so do its later calls."""

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


def gather_anew():
    alone = zeropp.Communicator(1, seconds=1)
    on_ranks(alone, lambda x, token: zeropp.all_gather(alone, x, token), WHOLE)(part, alone.token())[1].block_until_ready()


texts = []
calls = [*2 * [lambda: jax.block_until_ready(gather(part, token))], gather_anew]
for call in calls if jax.process_index() == 0 else ():
    try:
        call()
    except Exception as raised:
        texts.append(str(raised).splitlines()[0])
jax.experimental.multihost_utils.sync_global_devices("the first rank has failed")
if jax.process_index() == 0:
    words = "timeout: a rank has died, or has not made this call"
    assert len(texts) == 3 and all(words in text for text in texts), texts
    print("passed")
