"""What becomes of a training whose peer is killed, or stops, in the middle of a step."""

import os
import signal
import time

import pytest
import zeropp_torch as zeropp
from models import network, shard, train
from torch.nn.parallel import DistributedDataParallel
from zeropp_torch import communicator

TIMEOUT = 6  # seconds, of the process group


def loses_a_peer(rank, size, lost, how, ddp):
    model = network()
    blocks = model.blocks
    if ddp:
        communicator.EXCHANGED_BYTES = 1
        model = DistributedDataParallel(model)
        model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=2))
    else:
        shard(model)
        zeropp.apply(model, ranks_per_node=2)
    train(model, rank, steps=1)
    if rank == lost:
        blocks[1].register_full_backward_pre_hook(lambda *_: os.kill(os.getpid(), how))
    start = time.monotonic()
    try:
        train(model, rank, steps=3)
    except Exception as error:
        raise RuntimeError(f"after {time.monotonic() - start:.0f} seconds") from error


# With DDP, gathers are single messages, as of large buckets.
@pytest.mark.parametrize("ddp", [False, True])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_peer_is_an_error_on_all_others(ranks, how, ddp):
    lost = 2
    problems = ranks.run(4, loses_a_peer, lost, how, ddp, timeout=TIMEOUT, lost=(lost,))
    assert len(problems) == 3, "every other rank has failed"
    for problem in problems:
        assert "ended without a word" not in problem
        waited = int(problem.split("RuntimeError: after ")[1].split()[0])
        assert waited <= 2 * TIMEOUT, problem


def breaks_in_a_bucket(rank, size):
    model = DistributedDataParallel(network(), bucket_cap_mb=0.01)
    model.register_comm_hook(None, zeropp.ddp_hook(ranks_per_node=1))
    train(model, rank, steps=1)

    def fails(*arguments, **keywords):
        raise KeyError("by the test")

    original, zeropp.ddp.all_reduce = zeropp.ddp.all_reduce, fails
    try:
        train(model, rank, steps=1)
    except KeyError as raised:
        return str(raised)
    finally:
        zeropp.ddp.all_reduce = original
    return "nothing was raised"


def test_an_exception_in_a_bucket_comes_out_of_backward(ranks):
    assert ranks.run(2, breaks_in_a_bucket) == ["'by the test'"] * 2
