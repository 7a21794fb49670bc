"""The state of a record in a retry topic, in its headers: it survives a crash and a new owner.

Key, value and headers of the record stay byte for byte. These headers are added behind them, all UTF-8 text:

| header | value |
|---|---|
| `ottla-retry-version` | `1` |
| `ottla-retry-topic`, `-partition`, `-offset`, `-timestamp` | where it came from; timestamp in epoch milliseconds |
| `ottla-retry-attempts` | failed deliveries so far; 0 for a record that only follows an earlier one of its key |
| `ottla-retry-first-failure` | epoch milliseconds |
| `ottla-retry-not-before` | epoch milliseconds: it is not handled earlier; 0 when it waits for nothing but its turn |
| `ottla-retry-error-type`, `-error-message` | the last error; the message in 500 bytes at most |

Anyone who may write to the topic may write these headers. If a number is impossible all of them are ignored, and a time
in `not-before` counts at most until the topic's delay has passed (`consumer.outcomes.retry_chains`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ottla.failures.dead_letter import text_headers
from ottla.failures.exceptions import cap_text
from ottla.records import Header, Headers, Record, escaped, last_header
from ottla_wire.facts import fact

PREFIX: Final = "ottla-retry-"
_VERSION: Final = "1"
_MESSAGE_LIMIT_BYTES: Final = 500
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


@fact
class RetryState:
    """The state in the headers of a record in a retry topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    attempts: int
    not_before_ms: int
    first_failure_ms: int | None = None
    error_type: str = ""
    message: str = ""

    def without_error(self) -> RetryState:
        """Return the state without the last error, in fewer bytes."""
        return replace(self, error_type="", message="")

    def to_headers(self, own: Headers) -> list[Header]:
        """Return the record's own headers with this state behind them."""
        fields: list[tuple[str, object]] = [
            ("version", _VERSION),
            ("topic", self.topic),
            ("partition", self.partition),
            ("offset", self.offset),
            ("timestamp", self.timestamp_ms),
            ("attempts", self.attempts),
            ("first-failure", self.first_failure_ms),
            ("not-before", self.not_before_ms),
            ("error-type", self.error_type or None),
            ("error-message", cap_text(self.message, _MESSAGE_LIMIT_BYTES) or None),
        ]
        return without_retry_headers(own) + text_headers(PREFIX, fields)


def retry_state_of(headers: Headers) -> RetryState | None:
    """Return the state in a record's headers; None if it is missing or invalid."""
    if last_header(headers, PREFIX + "version") is None:
        return None
    texts = {
        name.removeprefix(PREFIX): value.decode("utf-8", "backslashreplace")
        for name, value in headers
        if name.startswith(PREFIX) and value is not None
    }
    try:
        first_failure = texts.get("first-failure")
        return RetryState(
            topic=texts["topic"],
            partition=_number(texts["partition"], most=_INT32_MAX),
            offset=_number(texts["offset"]),
            timestamp_ms=_number(texts["timestamp"], least=-1),
            attempts=_number(texts["attempts"], most=_INT32_MAX),
            not_before_ms=_number(texts["not-before"]),
            first_failure_ms=None if first_failure is None else _number(first_failure),
            error_type=texts.get("error-type", ""),
            message=texts.get("error-message", ""),
        )
    except (KeyError, ValueError):
        return None  # not written by us: the record is handled as any other, at once


def _number(text: str, *, least: int = 0, most: int = _INT64_MAX) -> int:
    """Return the number. Raises `ValueError` if Kafka allows none like it there."""
    number = int(text)
    if not least <= number <= most:
        raise ValueError(f"found {number}, wanted {least} to {most}")
    return number


def original_of(record: Record[Any]) -> Record[Any]:
    """Return the record with the position, time and headers of its original topic, and with this record's key and
    value."""
    state = retry_state_of(record.headers)
    if state is None:
        return record
    return Record(
        state.topic,
        state.partition,
        state.offset,
        state.timestamp_ms,
        record.key,
        record.value,
        without_retry_headers(record.headers),
        record.raw_key,
        record.raw_value,
        record.timestamp_type,
    )


def without_retry_headers(headers: Headers) -> list[Header]:
    """Return the record's own headers. A NUL in a name is escaped, because no producer takes it."""
    return [escaped(header) for header in headers if not header[0].startswith(PREFIX)]
