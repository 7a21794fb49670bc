"""Building the record that takes a dead letter back to where it came from.

The value and the key are the dead letter's own bytes, which are the original's; every family of dead letter headers is
removed, so that a second failure has headers of its own; `ottla-redriven` counts how often it was sent back, and
`ottla-redriven-timestamp` says when the record was first produced: its time to live goes on from there. A claim (a dead
letter without its value) is sent back as the record that its position names, which has to be fetched first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from ottla.failures.foreign import FAMILIES, DeadLetterView, describe_dead_letter
from ottla.records import Header, Headers, escaped, last_header, time_header, topic_problem

REDRIVEN_HEADER: Final = "ottla-redriven"
FIRST_TIMESTAMP_HEADER: Final = "ottla-redriven-timestamp"

_MOST_TIMES: Final = 2**31 - 1
"""The highest count. A longer number is forged, and reading it would cost time."""

_OWN_NAMES: Final = frozenset({REDRIVEN_HEADER, FIRST_TIMESTAMP_HEADER})
_FAMILY_NAMES: Final = frozenset(name for fields in FAMILIES.values() for name in fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A record as it was produced, read at the position that a claim names."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Redrive:
    """The record to produce, and its topic. `partition` None: the key decides, as in the first send."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    times: int
    origin: DeadLetterView


def build_redrive(
    *,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    to_topic: str | None = None,
    original: Original | None = None,
    left_out: Collection[str] = (),
) -> Redrive | None:
    """Return the record to send back; None if neither the headers nor `to_topic` name a topic.

    None also for a claim without its `original`: without its value it would be a tombstone, which deletes. Headers
    named in `left_out` are not sent back.
    """
    view = describe_dead_letter(headers)
    if view is None:
        if to_topic is None:
            return None
        view = DeadLetterView(family="unknown")
    topic = to_topic or view.topic
    if topic is None:
        return None
    if view.omitted is not None:
        if original is None or original.timestamp_ms != view.timestamp_ms:
            return None
        key, value, headers = original.key, original.value, original.headers
    times = _times(headers) + 1
    first_ms = first_timestamp_of(headers)
    if first_ms is None:
        first_ms = view.timestamp_ms
    kept = [escaped(header) for header in headers if header[0] not in _FAMILY_NAMES and header[0] not in _OWN_NAMES]
    kept.append((REDRIVEN_HEADER, str(times).encode()))
    if first_ms is not None and first_ms >= 0:
        kept.append((FIRST_TIMESTAMP_HEADER, str(first_ms).encode()))
    if left_out:
        kept = [header for header in kept if header[0] not in left_out]
    return Redrive(topic=topic, key=key, value=value, headers=kept, times=times, origin=view)


def refusal(topic: str, *, dead_letter_topic: str, origins: Collection[str] | None) -> str | None:
    """Return why a dead letter must not be sent to the topic that its headers name; None if it may.

    Anyone who may write to the dead letter topic may write these headers. `origins`: the topics that are allowed.
    """
    problem = topic_problem(topic)
    if problem is not None:
        return problem
    if topic == dead_letter_topic:
        return f"{topic} is the dead letter topic itself"
    if topic.startswith("__"):
        return f"{topic} is a topic of Kafka's own"
    if origins is not None and topic not in origins:
        return f"{topic} is not among the topics to send to"
    return None


def first_timestamp_of(headers: Headers) -> int | None:
    """Return when a redriven record was first produced, in epoch milliseconds; None if no header says so."""
    return time_header(headers, FIRST_TIMESTAMP_HEADER)


def _times(headers: Headers) -> int:
    given = last_header(headers, REDRIVEN_HEADER)
    if given is None or not given.isdigit():
        return 0
    is_longer = len(given) > len(str(_MOST_TIMES))
    return _MOST_TIMES - 1 if is_longer else min(int(given), _MOST_TIMES - 1)
