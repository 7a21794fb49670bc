"""Topics with partitions, and positions in them, as people type them: `orders`, `orders:0,2-4`, `3:1200`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from ottla.errors import InputError

_MOST_PARTITIONS: Final = 1_000_000
_AT: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


def parse_topics(texts: Iterable[str]) -> dict[str, Collection[int] | None]:
    """Parse `TOPIC` (None: all its partitions) or `TOPIC:P,P-P`, one text for each topic."""
    found: dict[str, Collection[int] | None] = {}
    for text in texts:
        topic, colon, partitions = text.partition(":")
        if not topic or topic in found:
            raise InputError(f"--topic: found {text!r}, wanted each topic once, as orders or orders:0,2-4")
        found[topic] = _partitions(partitions, text) if colon else None
    return found


def parse_place(text: str) -> tuple[int, int] | None:
    """Return (partition, offset) of `P:O`, None where the text is something else: a time, `earliest`, `latest`."""
    found = _AT.fullmatch(text.strip())
    return None if found is None else (int(found[1]), int(found[2]))


def _partitions(text: str, whole: str) -> list[int]:
    found: set[int] = set()
    for each in text.split(","):
        first, dash, last = each.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(each) > 20:
            raise InputError(f"--topic: found {each!r} in {whole!r}, wanted partitions as 0,2-4")
        low, high = int(first), int(last or first)
        if high < low or high >= _MOST_PARTITIONS:
            raise InputError(
                f"--topic: found {each!r} in {whole!r}, wanted the smaller first, below {_MOST_PARTITIONS:,}"
            )
        found.update(range(low, high + 1))
    return sorted(found)
