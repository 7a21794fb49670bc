"""The dead letter record: the original key, value and headers byte for byte, and why it is there.

Ottla adds its own header family behind the original headers. Every value is UTF-8 text (numbers in decimal), so that
any tool can show it. A record that is dead-lettered again keeps one family only, the newest.

| header | value |
|---|---|
| `ottla-dlq-version` | `1` |
| `ottla-dlq-topic`, `-partition`, `-offset`, `-timestamp` | where it came from; timestamp in epoch milliseconds |
| `ottla-dlq-kind` | `malformed` (not decodable), `invalid` (breaks a rule), `failed` (the handler failed), `expired` |
| `ottla-dlq-error-type`, `-error-message`, `-stack-trace` | the last error; message ≤ 2 KiB, trace ≤ 8 KiB |
| `ottla-dlq-attempts` | failed deliveries, the last one included |
| `ottla-dlq-group` | the consumer group, or the name of the pipeline |
| `ottla-dlq-first-failure`, `-dead-lettered` | epoch milliseconds |
| `ottla-dlq-omitted` | what of the record is missing because the topic did not take it: `value`, `key,value,headers` |

A record that was just within its own topic's limit may be over that of the dead letter topic with our headers on, and a
dead letter topic may take less. So a dead letter has several `Form`s, each smaller than the one before; the first that
the broker takes is the one that is written. The last two are claims: they say where the record is, not what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from ottla.failures.exceptions import MESSAGE_LIMIT_BYTES, STACK_TRACE_LIMIT_BYTES, Failure, cap_text
from ottla.records import Header, Headers, escaped

PREFIX: Final = "ottla-dlq-"
VERSION: Final = "1"

KINDS: Final = ("malformed", "invalid", "failed", "expired")

OMITTED_HEADER: Final = PREFIX + "omitted"

_POSITION: Final = frozenset(
    PREFIX + name for name in ("version", "topic", "partition", "offset", "timestamp", "kind", "group")
)


_BRIEF_MESSAGE_BYTES: Final = 200


class Form(Enum):
    """How much of a record and of its story a dead letter has, from all of it to its position."""

    WHOLE = "whole"
    BRIEF = "without stack trace, the message in 200 bytes"
    BARE = "without the error's text"
    CLAIM = "without value"
    POSITION = "without key, value and headers of its own"

    @property
    def is_claim(self) -> bool:
        """True if the record's value is left out."""
        return self in (Form.CLAIM, Form.POSITION)


class DeadLetterRecord(NamedTuple):
    """The record to produce to the dead letter topic."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterReason:
    """Why a record is a dead letter. Times are epoch milliseconds; `kind` is one of `KINDS`."""

    kind: str
    error_type: str = ""
    message: str = ""
    stack_trace: str = ""
    attempts: int = 1
    group: str = ""
    first_failure_ms: int | None = None
    dead_lettered_ms: int | None = None

    @classmethod
    def of(
        cls, failure: Failure, *, attempts: int, group: str, first_failure_ms: int, dead_lettered_ms: int
    ) -> DeadLetterReason:
        """Return the reason for this failure."""
        return cls(
            kind=failure.kind,
            error_type=failure.error_type,
            message=failure.message,
            stack_trace=failure.stack_trace,
            attempts=attempts,
            group=group,
            first_failure_ms=first_failure_ms,
            dead_lettered_ms=dead_lettered_ms,
        )


def build_dead_letter(
    *,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int | None,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
    reason: DeadLetterReason,
) -> DeadLetterRecord:
    """Return the dead letter of one record: its own bytes, and the headers described above."""
    fields: list[tuple[str, object]] = [
        ("version", VERSION),
        ("topic", topic),
        ("partition", partition),
        ("offset", offset),
        ("timestamp", timestamp_ms),
        ("kind", reason.kind),
        ("error-type", reason.error_type or None),
        ("error-message", cap_text(reason.message, MESSAGE_LIMIT_BYTES) or None),
        ("stack-trace", cap_text(reason.stack_trace, STACK_TRACE_LIMIT_BYTES) or None),
        ("attempts", reason.attempts),
        ("group", reason.group or None),
        ("first-failure", reason.first_failure_ms),
        ("dead-lettered", reason.dead_lettered_ms),
    ]
    return DeadLetterRecord(key, value, without_dead_letter_headers(headers) + text_headers(PREFIX, fields))


def text_headers(prefix: str, fields: Iterable[tuple[str, object]]) -> list[Header]:
    """Return the fields as headers of UTF-8 text; None is left out."""
    return [
        (prefix + name, str(given).encode("utf-8", "backslashreplace")) for name, given in fields if given is not None
    ]


def forms_of(dead: DeadLetterRecord) -> Iterator[tuple[Form, DeadLetterRecord]]:
    """Yield the forms of the dead letter, each smaller than the one before. One that would save nothing is left out."""
    own = without_dead_letter_headers(dead.headers)
    family = [header for header in dead.headers if header[0].startswith(PREFIX)]
    brief = [_brief(header) for header in family if header[0] != PREFIX + "stack-trace"]
    bare = [header for header in family if header[0] in _POSITION]
    yield Form.WHOLE, dead
    if brief != family:
        yield Form.BRIEF, DeadLetterRecord(dead.key, dead.value, own + brief)
    yield Form.BARE, DeadLetterRecord(dead.key, dead.value, own + bare)
    if dead.value is not None:
        yield Form.CLAIM, DeadLetterRecord(dead.key, None, [*own, *brief, (OMITTED_HEADER, b"value")])
    yield Form.POSITION, DeadLetterRecord(None, None, [*bare, (OMITTED_HEADER, b"key,value,headers")])


def _brief(header: Header) -> Header:
    name, value = header
    if name != PREFIX + "error-message" or value is None:
        return header
    return name, cap_text(value.decode(), _BRIEF_MESSAGE_BYTES).encode()


def without_dead_letter_headers(headers: Headers) -> list[Header]:
    """Return the record's own headers, in order, without Ottla's dead letter headers. A NUL in a name is escaped,
    because no producer takes it."""
    return [escaped(header) for header in headers if not header[0].startswith(PREFIX)]
