"""Checks of arguments, in one wording."""

from __future__ import annotations

import numbers
from typing import Any, Union

from ._library import ZeroppError


def integer(function: str, name: str, value: Any, least: int) -> int:
    """Returns `value`. Raises ZeroppError unless it is a whole number, no bool, from `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ZeroppError(f"{function}: expected {name} as a whole number from {least}, given {value!r}")
    return int(value)


def instance(function: str, name: str, value: Any, types: Union[type, tuple[type, ...]], words: str) -> Any:
    """Returns `value`. Raises ZeroppError, which describes `types` by `words`, unless it is an instance of them."""
    if not isinstance(value, types):
        raise ZeroppError(f"{function}: expected {name} as {words}, given {value!r}")
    return value
