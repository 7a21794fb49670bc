"""Building the record that takes a dead letter back to where it came from.

The value and the key are the dead letter's own bytes, which are the original's; every family of dead letter headers is
taken off, so that a second failure tells its own story; `ottla-redriven` counts how often it was sent back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.delivery.foreign import FAMILIES, DeadLetterView, describe_dead_letter
from ottla.records import Header, Headers, last_header

REDRIVEN_HEADER: Final = "ottla-redriven"

_FAMILY_NAMES: Final = frozenset(name for fields in FAMILIES.values() for name in fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """What to produce, and where to. `partition` is None: the key decides, as it did the first time."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    times: int
    origin: DeadLetterView


def build_redrive(
    *, key: bytes | None, value: bytes | None, headers: Headers, to_topic: str | None = None
) -> Redrive | None:
    """The record to send back, or None when neither the headers nor `to_topic` say where to."""
    view = describe_dead_letter(headers)
    if view is None:
        if to_topic is None:
            return None
        view = DeadLetterView(family="unknown")
    topic = to_topic or view.topic
    if topic is None:
        return None
    times = _times(headers) + 1
    kept = [header for header in headers if header[0] not in _FAMILY_NAMES and header[0] != REDRIVEN_HEADER]
    kept.append((REDRIVEN_HEADER, str(times).encode()))
    return Redrive(topic=topic, key=key, value=value, headers=kept, times=times, origin=view)


def _times(headers: Headers) -> int:
    given = last_header(headers, REDRIVEN_HEADER)
    return int(given) if given is not None and given.isdigit() else 0
