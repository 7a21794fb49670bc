"""JSON Schemas of the headers that Ottla reads and writes. A header is text here; on the wire it is UTF-8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.failures.dead_letter import PREFIX as DEAD_LETTER
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.failures.retry_headers import PREFIX as RETRY
from ottla.producer.message_ids import ID_HEADER
from ottla.records import TRACEPARENT

_TEXT: Final = {"type": "string"}
_DIGITS: Final = {"type": "string", "pattern": "^-?[0-9]+$"}

TRACE: Final[Mapping[str, Any]] = {
    TRACEPARENT: {"type": "string", "description": "W3C trace context."},
    "tracestate": {"type": "string", "description": "W3C trace context."},
}
EXPIRES: Final[Mapping[str, Any]] = {
    EXPIRES_HEADER: {**_DIGITS, "description": "When the record expires, in epoch milliseconds."}
}
ID: Final[Mapping[str, Any]] = {
    ID_HEADER: {"type": "string", "description": "Id of the message: a copy with the same id is handled once."}
}
CLOUD_EVENT: Final[Mapping[str, Any]] = {
    "ce_specversion": {"type": "string", "const": "1.0"},
    "ce_id": {"type": "string", "minLength": 1},
    "ce_source": {"type": "string", "minLength": 1},
    "ce_type": {"type": "string", "minLength": 1},
    "ce_time": {"type": "string", "format": "date-time"},
    "ce_subject": _TEXT,
    "ce_dataschema": _TEXT,
    "content-type": _TEXT,
}
CLOUD_EVENT_REQUIRED: Final = ("ce_id", "ce_source", "ce_specversion", "ce_type")

_FIRST_RECORD: Final[Mapping[str, Any]] = {
    "version": _TEXT,
    "topic": _TEXT,
    "partition": _DIGITS,
    "offset": _DIGITS,
    "timestamp": _DIGITS,
}
"""The version of the headers, and where the record stood at first."""

RETRIED: Final[Mapping[str, Any]] = {
    f"{RETRY}{name}": schema
    for name, schema in {
        **_FIRST_RECORD,
        "attempts": _DIGITS,
        "first-failure": _DIGITS,
        "not-before": _DIGITS,
        "error-type": _TEXT,
        "error-message": _TEXT,
    }.items()
}
RETRIED_REQUIRED: Final = tuple(
    f"{RETRY}{name}" for name in ("attempts", "not-before", "offset", "partition", "timestamp", "topic", "version")
)

DEAD: Final[Mapping[str, Any]] = {
    f"{DEAD_LETTER}{name}": schema
    for name, schema in {
        **_FIRST_RECORD,
        "kind": {"type": "string", "enum": ["expired", "failed", "invalid", "malformed"]},
        "error-type": _TEXT,
        "error-message": _TEXT,
        "stack-trace": _TEXT,
        "attempts": _DIGITS,
        "group": _TEXT,
        "first-failure": _DIGITS,
        "dead-lettered": _DIGITS,
    }.items()
}
DEAD_REQUIRED: Final = tuple(f"{DEAD_LETTER}{name}" for name in ("kind", "offset", "partition", "topic", "version"))


def headers_of(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    """Return the schema of a message's headers; others may be there as well."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(sorted(properties.items()))}
    return {**schema, "required": sorted(required)} if required else schema
