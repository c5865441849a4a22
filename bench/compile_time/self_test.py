#!/usr/bin/env python3
"""The check of compile times can fail: on what has grown by more than is allowed, and on nothing less."""

import sys

sys.dont_write_bytecode = True
from compile_time import ALLOWED, grown

was = {"regex": {"of_regex": 1.0, "memory_of_regex": 1.0}, "all_gather": {"of_regex": 1.0, "memory_of_regex": 1.4}}


def rows(time, memory):
    return {"regex": {"of_regex": 2.0, "memory_of_regex": 2.0}, "new": {"of_regex": 9.0, "memory_of_regex": 9.0},
            "all_gather": {"of_regex": time, "memory_of_regex": memory}}


assert grown(rows(1.0, 1.4), was) == []
assert grown(rows(ALLOWED, 1.4 * ALLOWED), was) == []
assert grown(rows(0.5, 0.7), was) == []
assert grown(rows(ALLOWED + 0.01, 1.4), was) == ["all_gather: processor time is 1.16 of <regex>'s, and was 1.00"]
assert grown(rows(1.0, 1.4 * ALLOWED + 0.01), was) == ["all_gather: memory is 1.62 of <regex>'s, and was 1.40"]
