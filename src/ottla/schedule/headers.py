"""Records of a schedule topic: waiting messages, cancels, and offsets that are done.

The message's own value and headers stay byte for byte; behind the headers stands a family of ours. The record's key is
the schedule id, if it has one. Where it has none the key is what `ottla-schedule` would say, and that header is left
out: to a sender a header costs ten times what a key does.

| header | value |
|---|---|
| `ottla-schedule` | text, its fields between single spaces: |
| | `message <topic> <partition> <due> <ttl>`, of a moved one also `<at> <rolls>`; a field without a value is `-` |
| | `cancel` |
| | `done`: the record's value lists the offsets; one per transaction |
| `ottla-schedule-key` | the message's key as it is, absent when it is null |
| `ottla-schedule-id` | of a moved message: its id |

`<due>` is epoch milliseconds, or `+` and milliseconds after the record's append time: the brokers' clock counts then.
`<ttl>` is milliseconds after the due time at which the message expires; `<at>` when it was first appended, `<rolls>`
how often it was moved. It is one header instead of one for each fact, because a header costs a sender and a reader more
than its bytes do.

A message that is delivered has `ottla-scheduled-id`, `-due` and `-at` in place of the family.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from ottla.failures.expiry import EXPIRES_HEADER
from ottla.foreign_json import read_json
from ottla.records import Header, Record, TopicPartition, headers_of, topic_problem

FACTS: Final = "ottla-schedule"
PREFIX: Final = FACTS + "-"
KEY: Final = PREFIX + "key"
ID: Final = PREFIX + "id"
DELIVERED_PREFIX: Final = "ottla-scheduled-"
TOPIC_PREFIX: Final = "ottla.schedule."
DEAD_LETTERS_SUFFIX: Final = ".dead-letters"
DEFAULT_NAME: Final = "default"

TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "LogAppendTime",
}
"""Required settings of a schedule topic: only delivered records are removed, and brokers set the timestamps."""

_MOST_DIGITS: Final = 18
_OFFSETS_END: Final = 2**63
_NONE: Final = b"-"


def config_problem(topic: str, found: Mapping[str, str | None]) -> str | None:
    """Return why a topic with these settings may lose messages, or None."""
    for name, wanted in TOPIC_CONFIG.items():
        if name in found and found[name] != wanted:
            return (
                f"{topic}: found {name}={found[name]}, wanted {wanted}: messages would be lost, or delivered at the "
                "wrong time"
            )
    return None


def schedule_topic(name: str) -> str:
    """Return the name of a schedule's topic."""
    return TOPIC_PREFIX + name


class ScheduledMessage(msgspec.Struct, gc=False, eq=False):
    """A message that waits, as its record has it. There may be many: the garbage collector does not track them."""

    offset: int
    due_ms: int
    at_ms: int
    """Append time of its first record."""
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[Header] | tuple[()]
    place: TopicPartition
    """Its slot."""
    given_id: str | None
    """Its schedule id, or the position of its first record if it was moved."""
    partition: int | None = None
    ttl_ms: int | None = None
    rolls: int = 0
    has_id: bool = False
    """Its sender gave it an id."""

    @property
    def id(self) -> str:
        """Return its schedule id, or the position of its first record."""
        return f"{self.place}@{self.offset}" if self.given_id is None else self.given_id


class Cancel(NamedTuple):
    """Cancels every message with this id that was written before."""

    offset: int
    id: str
    at_ms: int


class Done(NamedTuple):
    """Offsets of the slot that were delivered or moved, as sorted ranges without overlaps."""

    offset: int
    ranges: list[tuple[int, int]]


class RecordToWrite(NamedTuple):
    """A record to write."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def message_facts(
    *, topic: str, partition: int | None, due_ms: int | None, delay_ms: int | None, ttl_ms: int | None
) -> tuple[str, bytes]:
    """Return the fact header of a waiting message. Exactly one of `due_ms` and `delay_ms` is None."""
    return FACTS, _facts(topic, partition, due_ms, delay_ms, ttl_ms)


def _facts(topic: str, partition: int | None, due_ms: int | None, delay_ms: int | None, ttl_ms: int | None) -> bytes:
    due = b"+%d" % (delay_ms or 0) if due_ms is None else b"%d" % due_ms
    return b" ".join((b"message", topic.encode(), _field(partition), due, _field(ttl_ms)))


def with_facts(own: Iterable[Header], facts: Header | None, key: bytes | None) -> list[Header]:
    """Add the fact header to a message's own headers, unless the record's key says the same."""
    # Terse: it is called for each send.
    found = [header for header in own if not _is_ours(header[0])] if own else []
    if facts is not None:
        found.append(facts)
    if key is not None:
        found.append((KEY, key))
    return found


CANCEL_HEADERS: Final[tuple[Header, ...]] = ((FACTS, b"cancel"),)


def done_record(topic: str, partition: int, offsets: Iterable[int]) -> RecordToWrite:
    """Return the record that marks these offsets as done when its transaction commits."""
    value = json.dumps(list(ranges_of(offsets)), separators=(",", ":")).encode()
    return RecordToWrite(topic, partition, None, value, [(FACTS, b"done")])


def delivered(message: ScheduledMessage) -> RecordToWrite:
    """Return the message as its target topic gets it."""
    headers = list(message.headers)
    if message.ttl_ms is not None:
        headers = [header for header in headers if header[0] != EXPIRES_HEADER]
        headers.append((EXPIRES_HEADER, b"%d" % (message.due_ms + message.ttl_ms)))
    headers.append((DELIVERED_PREFIX + "id", message.id.encode()))
    headers.append((DELIVERED_PREFIX + "due", b"%d" % message.due_ms))
    headers.append((DELIVERED_PREFIX + "at", b"%d" % message.at_ms))
    return RecordToWrite(message.topic, message.partition, message.key, message.value, headers)


def rolled(message: ScheduledMessage, slot: int) -> RecordToWrite:
    """Return the message as another slot gets it."""
    facts = _facts(message.topic, message.partition, message.due_ms, None, message.ttl_ms)
    moved = (FACTS, b"%b %d %d" % (facts, message.at_ms, message.rolls + 1))
    id = message.id.encode()
    headers = [*with_facts(message.headers, moved, message.key), (ID, id)]
    return RecordToWrite(message.place.topic, slot, id if message.has_id else None, message.value, headers)


def parse(record: Record[Any]) -> ScheduledMessage | Cancel | Done | None:
    """Parse a record of a schedule topic; None if no scheduler can act on it, as any client may write there."""
    # Terse: it is called for each record of a slot that opens.
    facts = key = id = None
    own: list[Header] | tuple[()] = ()
    for header in headers_of(record) or ():
        name, content = header
        if name == FACTS:
            facts = content
        elif name == KEY:
            key = content
        elif name == ID:
            id = content
        elif not name.startswith(PREFIX):
            if own:
                own.append(header)
            else:
                own = [header]
    raw_key = record.raw_key
    if facts is None:
        if raw_key is None or id is not None or not raw_key.startswith(b"message "):
            return None
        facts, raw_key = raw_key, None
    try:
        if facts.startswith(b"message "):
            topic, partition, due_ms, is_delay, ttl_ms, at_ms, rolls = _message(facts)
            given = raw_key if id is None else id
            return ScheduledMessage(
                record.offset,
                due_ms + record.timestamp_ms if is_delay else due_ms,
                record.timestamp_ms if at_ms is None else at_ms,
                topic,
                key,
                record.raw_value,
                own,
                _place(record.topic, record.partition),
                None if given is None else given.decode(),
                partition,
                ttl_ms,
                rolls,
                raw_key is not None,
            )
        if facts == b"cancel" and raw_key is not None:
            return Cancel(record.offset, raw_key.decode(), record.timestamp_ms)
        if facts == b"done":
            return Done(record.offset, _merged(read_json(record.raw_value or b"", most_depth=2)))
        return None
    except (ValueError, TypeError):
        return None


_place = lru_cache(maxsize=256)(TopicPartition)


@lru_cache(maxsize=4_096)
def _message(facts: bytes) -> tuple[str, int | None, int, bool, int | None, int | None, int]:
    """Return (topic, partition, due time or delay, is it a delay, ttl, first append, moves). Raises ValueError."""
    fields = facts.split(b" ")
    if len(fields) not in (5, 7):
        raise ValueError(f"found {len(fields)} fields, wanted 5, or 7 of a moved message")
    topic = fields[1].decode()
    if topic_problem(topic) is not None:
        raise ValueError(topic_problem(topic))
    due = fields[3]
    is_delay = due.startswith(b"+")
    partition = None if fields[2] == _NONE else _number(fields[2])
    ttl_ms = None if fields[4] == _NONE else _number(fields[4])
    at_ms, rolls = (None, 0) if len(fields) == 5 else (_number(fields[5]), _number(fields[6]))
    return topic, partition, _number(due[1:] if is_delay else due), is_delay, ttl_ms, at_ms, rolls


def _number(text: bytes) -> int:
    if not text.isdigit() or len(text) > _MOST_DIGITS:
        raise ValueError(f"found {text[:40]!r}, wanted a number")
    return int(text)


def _field(number: int | None) -> bytes:
    return _NONE if number is None else b"%d" % number


def _is_ours(name: str) -> bool:
    return name == FACTS or name.startswith(PREFIX)


def ranges_of(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return sorted offsets as ranges [first, end)."""
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


def _merged(given: Any) -> list[tuple[int, int]]:
    """Return ranges of any record as sorted ranges without overlaps."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(map(_range, given)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _range(given: Any) -> tuple[int, int]:
    start, end = given
    if not (type(start) is int and type(end) is int and 0 <= start <= end < _OFFSETS_END):
        raise ValueError(f"found {start!r} to {end!r}, wanted offsets")
    return start, end
