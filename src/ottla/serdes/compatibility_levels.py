"""Compatibility levels of a schema registry: which versions have to read the data of which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)


def comparisons(new: T, earlier: Sequence[T], level: str) -> Iterator[tuple[T, T]]:
    """Yield the pairs (reader, writer) that have to fit before `new` is the next version after `earlier`, which are
    the oldest first."""
    for old in earlier if level.endswith("_TRANSITIVE") else earlier[-1:]:
        if level.startswith(("BACKWARD", "FULL")):
            yield new, old
        if level.startswith(("FORWARD", "FULL")):
            yield old, new
