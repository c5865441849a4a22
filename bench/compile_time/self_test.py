#!/usr/bin/env python3
"""Tests that the check of compile times fails on growth beyond the allowed, and only then; and that the program of standard
headers has those of the umbrella."""

import re
import sys

sys.dont_write_bytecode = True
from compile_time import ALLOWED, HERE, Measurement, grown, grown_in_turns


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


class Turns(Measurement):
    """In place of compilations: seconds of each program's turns."""

    def __init__(self, seconds):
        super().__init__({name: [] for name in seconds})
        self.samples = seconds

    def turns(self, n, names):
        for name in names:
            taken = len(self.seconds[name])
            self.seconds[name] += self.samples[name][taken:taken + n]
            self.memory[name] += [1.0] * n


was = {name: row(1.0, 1.0) for name in ("regex", "all_gather", "reduce_scatter")}
quick = [0.85] * 4
# Both that were slow at first are measured again, and a program that was not is not held against the base's later turns.
turns = Turns({"regex": [1.0, 1.0, 1.0, *quick], "all_gather": [1.0, 1.1, 1.1], "reduce_scatter": [1.3, 1.3, 1.3, *quick]})
assert grown_in_turns(turns, was) == []
assert {name: len(samples) for name, samples in turns.seconds.items()} == {"regex": 7, "all_gather": 3, "reduce_scatter": 7}
turns = Turns({"regex": [1.0] * 7, "all_gather": [1.0] * 7, "reduce_scatter": [1.3] * 7})
assert grown_in_turns(turns, was) == [("reduce_scatter", "processor time is 1.30 of regex's, and was 1.00")]


def included(file):
    return re.findall(r"^#include <([^>]+)>", file.read_text(), re.MULTILINE)


INCLUDE = HERE.parents[1] / "include"
reached = ["zeropp/zeropp.hpp"]
for header in reached:
    if header.startswith("zeropp/"):
        reached += [name for name in included(INCLUDE / header) if name not in reached]
standard = sorted(name for name in reached if "." not in name)
given = included(HERE / "standard_headers.cpp")
assert given == standard, f"standard_headers.cpp: expected {standard}, given {given}"
