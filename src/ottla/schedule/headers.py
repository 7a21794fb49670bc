"""The records of a schedule topic: messages that wait, cancels, and what is done.

The message's own value and headers stay byte for byte; behind the headers stands a family of ours, UTF-8 text but for
the key. The record's key is the schedule id, if it has one.

| header | value |
|---|---|
| `ottla-schedule-kind` | `message`, `cancel`, `done` (one per transaction; its value lists the offsets) |
| `ottla-schedule-topic`, `-partition`, `-key` | where the message goes; the key as it is, absent when it is null |
| `ottla-schedule-due` | epoch milliseconds; or instead of it |
| `ottla-schedule-delay` | milliseconds after the record's append time: the brokers' clock counts |
| `ottla-schedule-ttl` | milliseconds after the due time at which the message expires, if it does |
| `ottla-schedule-at`, `-id`, `-rolls` | of a moved record: its first append time, its id, how often it was moved |

A message that is delivered has `ottla-scheduled-id`, `-due` and `-at` in place of the family.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ottla.failures.expiry import EXPIRES_HEADER
from ottla.records import Header, Record, topic_problem

PREFIX: Final = "ottla-schedule-"
DELIVERED_PREFIX: Final = "ottla-scheduled-"
KIND: Final = PREFIX + "kind"
TOPIC_PREFIX: Final = "ottla.schedule."
DEFAULT_NAME: Final = "default"

_MOST_DIGITS: Final = 18


_MESSAGE: Final[Header] = (KIND, b"message")
_TOPIC, _DUE, _DELAY = PREFIX + "topic", PREFIX + "due", PREFIX + "delay"
_KEY, _PARTITION, _TTL = PREFIX + "key", PREFIX + "partition", PREFIX + "ttl"


def schedule_topic(name: str) -> str:
    """The topic of a schedule."""
    return TOPIC_PREFIX + name


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A message that waits, as its record says."""

    offset: int
    due_ms: int
    id: str
    """Its schedule id, or where it was first written."""
    at_ms: int
    """When it was first appended."""
    rolls: int
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    ttl_ms: int | None = None
    has_id: bool = False


class Cancel(NamedTuple):
    """A cancel of every message with this id that was written before it."""

    offset: int
    id: str
    at_ms: int


class Done(NamedTuple):
    """These offsets of the slot were delivered or moved."""

    offset: int
    ranges: list[tuple[int, int]]


class Outgoing(NamedTuple):
    """A record to write."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def message_headers(
    own: Iterable[Header],
    *,
    topic: str,
    partition: int | None,
    key: bytes | None,
    due_ms: int | None,
    delay_ms: int | None,
    ttl_ms: int | None,
) -> list[Header]:
    """The headers of a message that waits."""
    # Terse: it is called for each send.
    found = [header for header in own if not header[0].startswith(PREFIX)] if own else []
    found.append(_MESSAGE)
    found.append((_TOPIC, topic.encode()))
    if due_ms is not None:
        found.append((_DUE, b"%d" % due_ms))
    if delay_ms is not None:
        found.append((_DELAY, b"%d" % delay_ms))
    if key is not None:
        found.append((_KEY, key))
    if partition is not None:
        found.append((_PARTITION, b"%d" % partition))
    if ttl_ms is not None:
        found.append((_TTL, b"%d" % ttl_ms))
    return found


CANCEL_HEADERS: Final[tuple[Header, ...]] = ((KIND, b"cancel"),)


def done_record(topic: str, partition: int, offsets: Iterable[int]) -> Outgoing:
    """What says that these offsets are done, once its transaction is committed."""
    value = json.dumps(list(ranges_of(offsets)), separators=(",", ":")).encode()
    return Outgoing(topic, partition, None, value, [(KIND, b"done")])


def delivered(message: Waiting) -> Outgoing:
    """The message as its topic gets it."""
    facts = {"id": message.id, "due": str(message.due_ms), "at": str(message.at_ms)}
    headers = list(message.headers)
    if message.ttl_ms is not None:
        headers = [header for header in headers if header[0] != EXPIRES_HEADER]
        headers.append((EXPIRES_HEADER, b"%d" % (message.due_ms + message.ttl_ms)))
    headers += [(DELIVERED_PREFIX + name, text.encode()) for name, text in facts.items()]
    return Outgoing(message.topic, message.partition, message.key, message.value, headers)


def rolled(message: Waiting, schedule: str, slot: int) -> Outgoing:
    """The message as another slot gets it."""
    headers = message_headers(
        message.headers,
        topic=message.topic,
        partition=message.partition,
        key=message.key,
        due_ms=message.due_ms,
        delay_ms=None,
        ttl_ms=message.ttl_ms,
    )
    facts = {"at": str(message.at_ms), "id": message.id, "rolls": str(message.rolls + 1)}
    headers += [(PREFIX + name, text.encode()) for name, text in facts.items()]
    return Outgoing(schedule, slot, message.id.encode() if message.has_id else None, message.value, headers)


def parse(record: Record[Any]) -> Waiting | Cancel | Done | None:
    """What a record of a schedule topic says; None for one that no scheduler can act on, as anybody may write there."""
    family = {name: value for name, value in record.headers if name.startswith(PREFIX) and value is not None}
    kind = family.get(KIND)
    try:
        if kind == b"cancel" and record.raw_key is not None:
            return Cancel(record.offset, record.raw_key.decode(), record.timestamp_ms)
        if kind == b"done":
            return Done(record.offset, list(_checked(json.loads(record.raw_value or b""))))
        return _message(record, family) if kind == b"message" else None
    except (ValueError, KeyError, TypeError):
        return None


def _message(record: Record[Any], family: dict[str, bytes]) -> Waiting | None:
    def number(name: str) -> int | None:
        text = family.get(PREFIX + name)
        if text is None:
            return None
        if not text.isdigit() or len(text) > _MOST_DIGITS:
            raise ValueError(f"{name}: found {text[:40]!r}, wanted a number")
        return int(text)

    topic = family[PREFIX + "topic"].decode()
    due_ms, delay_ms = number("due"), number("delay")
    if due_ms is None:
        due_ms = record.timestamp_ms + (delay_ms or 0)
    first_ms = number("at")
    given_id = family.get(PREFIX + "id", record.raw_key)
    if topic_problem(topic) is not None:
        return None
    return Waiting(
        offset=record.offset,
        due_ms=due_ms,
        id=record.position if given_id is None else given_id.decode(),
        at_ms=record.timestamp_ms if first_ms is None else first_ms,
        rolls=number("rolls") or 0,
        topic=topic,
        partition=number("partition"),
        key=family.get(PREFIX + "key"),
        value=record.raw_value,
        headers=[header for header in record.headers if not header[0].startswith(PREFIX)],
        ttl_ms=number("ttl"),
        has_id=record.raw_key is not None,
    )


def ranges_of(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Sorted offsets as ranges: first, and behind the last."""
    start = end = None
    for offset in sorted(offsets):
        if end is not None and offset == end:
            end += 1
            continue
        if start is not None and end is not None:
            yield start, end
        start, end = offset, offset + 1
    if start is not None and end is not None:
        yield start, end


def _checked(given: Any) -> Iterator[tuple[int, int]]:
    for start, end in given:
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end):
            raise ValueError(f"found {start!r} to {end!r}, wanted offsets")
        yield start, end
