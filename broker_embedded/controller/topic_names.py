"""Validity of topic names."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import product, zip_longest

MAX_LENGTH = 249
_EITHER = re.compile("[._]")
_FEW_MARKS = 6
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def problem_with(name: str) -> str | None:
    """Return why `name` is no valid topic name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: {name!r} is not allowed"
    if len(name) > MAX_LENGTH:
        return (
            f"Topic name is invalid: the length of {name!r} is longer than the max allowed length {MAX_LENGTH}:"
            f" {len(name)}"
        )
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: {name!r} contains one or more characters other than ASCII alphanumerics, '.', '_'"
            " and '-'"
        )
    return None


def collision_with(name: str, existing: Collection[str]) -> str | None:
    """Return an existing topic whose metric name would be the same, because `.` and `_` are equal in it; None without
    one."""
    pieces = _EITHER.split(name)
    if len(pieces) == 1:
        return None
    if len(pieces) - 1 <= _FEW_MARKS:  # the names that would collide are looked up, not searched for among thousands
        variants = product("._", repeat=len(pieces) - 1)
        candidates = ("".join(map("".join, zip_longest(pieces, marks, fillvalue=""))) for marks in variants)
        return next((other for other in candidates if other != name and other in existing), None)
    folded = name.replace(".", "_")
    return next((other for other in existing if other != name and other.replace(".", "_") == folded), None)
