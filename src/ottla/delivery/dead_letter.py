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
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.delivery.exceptions import MESSAGE_LIMIT_BYTES, STACK_TRACE_LIMIT_BYTES, Failure, cap_text
from ottla.records import Header, Headers

PREFIX: Final = "ottla-dlq-"
VERSION: Final = "1"

KINDS: Final = ("malformed", "invalid", "failed", "expired")


class DeadLetterRecord(NamedTuple):
    """What to produce to the dead letter topic."""

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
        """The reason that a failure gives."""
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
    """The dead letter of one record: its own bytes, and the header family described above."""
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
    family: list[Header] = [
        (PREFIX + name, str(given).encode("utf-8", "backslashreplace")) for name, given in fields if given is not None
    ]
    return DeadLetterRecord(key, value, without_dead_letter_headers(headers) + family)


def without_details(dead: DeadLetterRecord) -> DeadLetterRecord:
    """The same dead letter with a shorter story: no stack trace, the message in 200 bytes.

    A record just under the topic's limit goes over it with our headers on; its own bytes matter more than the trace.
    """
    headers: list[Header] = []
    for name, value in dead.headers:
        if name == PREFIX + "error-message" and value is not None:
            value = cap_text(value.decode(), 200).encode()
        if name != PREFIX + "stack-trace":
            headers.append((name, value))
    return DeadLetterRecord(dead.key, dead.value, headers)


def without_dead_letter_headers(headers: Headers) -> list[Header]:
    """The record's own headers: Ottla's dead letter family is taken off, everything else stays in order."""
    return [header for header in headers if not header[0].startswith(PREFIX)]
