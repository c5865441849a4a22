#!/usr/bin/env python3
"""Tests that the check of compile times fails on growth beyond the allowed, and only then."""

import sys

sys.dont_write_bytecode = True
from compile_time import ALLOWED, grown, turns_for_check


def row(time, memory, other=""):
    return {"of_base": time, "memory_of_base": memory, "with": other}


was = {"regex": row(1.0, 1.0), "all_gather": row(1.0, 1.4), "codec_cuda": row(1.0, 1.0, "nvcc 12")}


def rows(time, memory):
    return {"regex": row(2.0, 2.0), "new": row(9.0, 9.0), "codec_cuda": row(9.0, 9.0, "nvcc 13"),
            "all_gather": row(time, memory)}


assert grown(rows(1.0, 1.4), was) == []
assert grown(rows(ALLOWED, 1.4 * ALLOWED), was) == []
assert grown(rows(0.5, 0.7), was) == []
assert grown({"codec_cuda": row(1.5, 1.0, "nvcc 12")}, was) == []
assert grown({"codec_cuda": row(1.5, 1.2, "nvcc 12")}, was) == [("codec_cuda", "memory is 1.20 of regex's, and was 1.00")]
assert grown({"standard_headers": row(9.0, 9.0)}, {**was, "standard_headers": row(1.0, 1.0)}) == []
assert grown(rows(ALLOWED + 0.01, 1.4), was) == [("all_gather", "processor time is 1.16 of regex's, and was 1.00")]
assert grown(rows(1.0, 1.4 * ALLOWED + 0.01), was) == [("all_gather", "memory is 1.62 of regex's, and was 1.40")]


class Turns:
    """In place of a Measurement: programs whose first turns were slow."""

    def __init__(self, slow):
        self.slow = slow
        self.commands = {"regex": [], "umbrella": [], "all_gather": []}
        self.taken = {name: 0 for name in self.commands}

    def turns(self, n, names):
        for name in names:
            self.taken[name] += n

    def rows(self):
        return {"regex": row(1.0, 1.0), "all_gather": row(2.0 if self.slow and self.taken["all_gather"] < 9 else 1.0, 1.4)}


for slow, taken in (False, [2, 2, 2]), (True, [9, 2, 9]):
    turns = Turns(slow)
    turns_for_check(turns, was)
    assert list(turns.taken.values()) == taken, turns.taken
