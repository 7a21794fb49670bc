"""Reads the dead letter headers of Ottla, Spring, Connect, Streams, SmallRye, Karafka and share groups into one view.

Spring writes partitions as 4-byte and offsets and timestamps as 8-byte big-endian integers; others write digits. A
value that is neither is left out: describing a dead letter never fails.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from ottla.failures.dead_letter import OMITTED_HEADER, PREFIX
from ottla.failures.retry_headers import PREFIX as RETRY_PREFIX
from ottla.records import Headers


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """A dead letter's headers in readable form. None where the family does not say; times in epoch milliseconds."""

    family: str
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    kind: str | None = None
    error_type: str | None = None
    message: str | None = None
    stack_trace: str | None = None
    attempts: int | None = None
    group: str | None = None
    first_failure_ms: int | None = None
    dead_lettered_ms: int | None = None
    version: str | None = None
    omitted: str | None = None
    """Parts of the record that the dead letter lacks: ``"value"`` or ``"key,value,headers"``. Ottla's own only."""

    @property
    def origin(self) -> str:
        """`topic-partition@offset` of the original record, `?` for unknown parts."""
        parts = ["?" if part is None else part for part in (self.topic, self.partition, self.offset)]
        return f"{parts[0]}-{parts[1]}@{parts[2]}"


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


_LONGEST_NUMBER: Final = 20
"""Characters of the longest int64. What does not fit is no offset and no date, and may have a million digits."""


def _number(value: bytes) -> int | None:
    # Eight ASCII digits are a possible big-endian number too, but one of about 3.5e18: no offset, no date.
    try:
        number = int(value) if len(value) <= _LONGEST_NUMBER else None
    except ValueError:
        is_big_endian = len(value) in (4, 8)
        return int.from_bytes(value, "big", signed=True) if is_big_endian else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


Reader: TypeAlias = Callable[[bytes], Any]
Fields: TypeAlias = Mapping[str, tuple[str, Reader]]

_OTTLA: Final[Fields] = {
    PREFIX + "version": ("version", _text),
    PREFIX + "topic": ("topic", _text),
    PREFIX + "partition": ("partition", _number),
    PREFIX + "offset": ("offset", _number),
    PREFIX + "timestamp": ("timestamp_ms", _number),
    PREFIX + "kind": ("kind", _text),
    PREFIX + "error-type": ("error_type", _text),
    PREFIX + "error-message": ("message", _text),
    PREFIX + "stack-trace": ("stack_trace", _text),
    PREFIX + "attempts": ("attempts", _number),
    PREFIX + "group": ("group", _text),
    PREFIX + "first-failure": ("first_failure_ms", _number),
    PREFIX + "dead-lettered": ("dead_lettered_ms", _number),
    OMITTED_HEADER: ("omitted", _text),
}
_SPRING: Final[Fields] = {
    "kafka_dlt-original-topic": ("topic", _text),
    "kafka_dlt-original-partition": ("partition", _number),
    "kafka_dlt-original-offset": ("offset", _number),
    "kafka_dlt-original-timestamp": ("timestamp_ms", _number),
    "kafka_dlt-original-consumer-group": ("group", _text),
    "kafka_dlt-exception-fqcn": ("error_type", _text),
    "kafka_dlt-exception-cause-fqcn": ("error_type", _text),
    "kafka_dlt-exception-message": ("message", _text),
    "kafka_dlt-exception-stacktrace": ("stack_trace", _text),
    "kafka_dlt-key-exception-fqcn": ("error_type", _text),
    "kafka_dlt-key-exception-message": ("message", _text),
    "kafka_dlt-key-exception-stacktrace": ("stack_trace", _text),
    "retry_topic-attempts": ("attempts", _number),
    "retry_topic-original-timestamp": ("first_failure_ms", _number),
}
_SPRING_CLOUD_STREAM: Final[Fields] = {
    "x-original-topic": ("topic", _text),
    "x-original-partition": ("partition", _number),
    "x-original-offset": ("offset", _number),
    "x-original-timestamp": ("timestamp_ms", _number),
    "x-exception-fqcn": ("error_type", _text),
    "x-exception-message": ("message", _text),
    "x-exception-stacktrace": ("stack_trace", _text),
}
_CONNECT: Final[Fields] = {
    "__connect.errors.topic": ("topic", _text),
    "__connect.errors.partition": ("partition", _number),
    "__connect.errors.offset": ("offset", _number),
    "__connect.errors.connector.name": ("group", _text),
    "__connect.errors.stage": ("kind", _text),
    "__connect.errors.class.name": ("error_type", _text),
    "__connect.errors.exception.class.name": ("error_type", _text),
    "__connect.errors.exception.message": ("message", _text),
    "__connect.errors.exception.stacktrace": ("stack_trace", _text),
}
_STREAMS: Final[Fields] = {
    "__streams.errors.topic": ("topic", _text),
    "__streams.errors.partition": ("partition", _number),
    "__streams.errors.offset": ("offset", _number),
    "__streams.errors.exception": ("error_type", _text),
    "__streams.errors.message": ("message", _text),
    "__streams.errors.stacktrace": ("stack_trace", _text),
}
_SMALLRYE: Final[Fields] = {
    "dead-letter-topic": ("topic", _text),
    "dead-letter-partition": ("partition", _number),
    "dead-letter-offset": ("offset", _number),
    "dead-letter-exception-class-name": ("error_type", _text),
    "dead-letter-cause-class-name": ("error_type", _text),
    "dead-letter-reason": ("message", _text),
    "dead-letter-cause": ("message", _text),
}
_KARAFKA: Final[Fields] = {
    "source_topic": ("topic", _text),
    "source_partition": ("partition", _number),
    "source_offset": ("offset", _number),
    "source_consumer_group": ("group", _text),
    "source_attempts": ("attempts", _number),
}

_SHARE_GROUPS: Final[Fields] = {
    "__dlq.errors.topic": ("topic", _text),
    "__dlq.errors.partition": ("partition", _number),
    "__dlq.errors.offset": ("offset", _number),
    "__dlq.errors.group": ("group", _text),
    "__dlq.errors.delivery.count": ("attempts", _number),
    "__dlq.errors.message": ("message", _text),
}
"""Headers that Kafka's brokers write for share groups (KIP-1191)."""

FAMILIES: Final[Mapping[str, Fields]] = {
    "ottla": _OTTLA,
    "spring": _SPRING,
    "spring-cloud-stream": _SPRING_CLOUD_STREAM,
    "connect": _CONNECT,
    "streams": _STREAMS,
    "smallrye": _SMALLRYE,
    "karafka": _KARAFKA,
    "share-groups": _SHARE_GROUPS,
}
"""Header name → (field of the view, reader), per family, in the order in which they are looked for. Within a family
the first header present fills a field: `exception-fqcn` before `key-exception-fqcn`."""


_QUOTES: Final = ("message", "stack_trace")
_NOT_QUOTING: Final = frozenset(
    name.lower() for family in FAMILIES.values() for name, (field, _) in family.items() if field not in _QUOTES
) | {RETRY_PREFIX + "error-type", RETRY_PREFIX + "first-failure"}
_WORDS: Final = ("exception", "error", "failure", "reason", "stacktrace", "stack-trace", "stack_trace", "letter-cause")


def may_quote_the_record(name: str) -> bool:
    """Return whether a header of this name may quote an error about the record, or bytes of the record.

    These are messages and stack traces of all families, and headers of other tools with such names.
    """
    name = name.lower()
    return name not in _NOT_QUOTING and any(word in name for word in _WORDS)


def describe_dead_letter(headers: Headers) -> DeadLetterView | None:
    """Return the dead letter's history from headers of any known family; None if no family is recognised."""
    last = {name: value for name, value in headers if value is not None}
    for family, fields in FAMILIES.items():
        found: dict[str, Any] = {}
        recognised = False
        for header_name, (field_name, read) in fields.items():
            value = last.get(header_name)
            if value is None:
                continue
            recognised = True
            if field_name not in found:
                read_value = read(value)
                if read_value is not None:
                    found[field_name] = read_value
        if recognised:
            return DeadLetterView(family=family, **found)
    return None
