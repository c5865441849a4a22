"""Ranks for tests: processes that stay, forked after torch was imported once, and join a new group for every test: gloo's, or
also NCCL's if they share a GPU."""

from __future__ import annotations

import datetime
import gc
import multiprocessing
import os
import tempfile
import time
import traceback

LIMIT = 240  # seconds for one test


def _share_gpu(rank: int) -> None:
    """Lets ranks share a GPU. NCCL refuses two ranks of one host on one GPU, so that each rank names a host of its own."""
    os.environ |= {"NCCL_HOSTID": f"zeropp-test-{rank}", "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1",
                   "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo"}


def _serve(rank: int, pipe, shared_gpu: bool) -> None:
    import torch
    import torch.distributed as dist

    if shared_gpu:
        _share_gpu(rank)
    torch.set_num_threads(1)
    gc.freeze()  # A collection that visits all of torch's objects takes a quarter of a second.
    while True:
        task = pipe.recv()
        if task is None:
            return
        function, arguments, size, store, timeout = task
        try:
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if shared_gpu else "gloo", init_method=f"file://{store}", rank=rank, world_size=size,
                timeout=datetime.timedelta(seconds=timeout),
            )
            try:
                torch.manual_seed(0)
                result = function(rank, size, *arguments)
                dist.barrier()
                time.sleep(0.05)  # as train.py does
            finally:
                dist.destroy_process_group()
            # Groups live on in cycles of references, each with a thread of gloo's that wakes a hundred times a second.
            gc.collect()
            pipe.send((True, result))
        except BaseException:  # noqa: BLE001 - whatever it was belongs to the test that waits
            pipe.send((False, traceback.format_exc()))


class Workers:
    """run(size, function, ...) calls function(rank, size, ...) on so many ranks and returns what they returned.

    Where ranks are to be lost, it returns what became of the others, in words: all of them have to fail."""

    def __init__(self, shared_gpu: bool = False) -> None:
        self._shared_gpu = shared_gpu
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["torch.distributed.fsdp", "zeropp_torch"])
        self._ranks: list = []

    def run(self, size: int, function, *arguments, timeout: float = 60, lost: tuple = ()):
        while len(self._ranks) < size:
            here, there = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(len(self._ranks), there, self._shared_gpu), daemon=True)
            process.start()
            self._ranks.append((process, here))
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            for _, pipe in self._ranks[:size]:
                pipe.send((function, arguments, size, store, timeout))
            results, problems = [], []
            for rank, (process, pipe) in enumerate(self._ranks[:size]):
                if rank in lost:
                    continue
                try:
                    if not pipe.poll(LIMIT):
                        raise EOFError(f"no answer within {LIMIT} s")
                    good, result = pipe.recv()
                except EOFError as ended:
                    good, result = False, f"ended without a word: {ended}"
                    process.kill()
                results.append(result)
                if not good:
                    problems.append(f"rank {rank}: {result}")
            if lost or any("without a word" in problem for problem in problems):
                self.close()
            if lost:
                return problems
            assert not problems, "\n".join(problems)
            return results

    def close(self) -> None:
        for process, _ in self._ranks:
            process.kill()
            process.join()
        self._ranks.clear()
