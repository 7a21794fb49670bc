"""Finds the message id of a record: duplicates of a message have the same id.

The first of these that is there: what `Inbox(id=...)` returns; the header `ottla-id`; CloudEvents' `ce_source` and
`ce_id` (Kafka protocol binding), or `source` and `id` of one in structured mode; the header `id` that Debezium's outbox
event router writes; else the position and timestamp of the original record, which copies made by a producer do not
share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any, Final
from uuid import UUID

from ottla.event_attributes import CONTENT_TYPE, CloudEvent, NotAnEvent, event_in_value, is_structured
from ottla.failures.retry_headers import original_of
from ottla.producer.message_ids import ID_HEADER
from ottla.records import Headers, Record

_LONGEST: Final = 200
"""Longer ids are hashed: every database limits the size of an index key, and headers come from outside."""

IdFunction = Callable[[Record[Any]], Any]


def message_id_of(record: Record[Any], function: IdFunction | None = None) -> tuple[str, bool]:
    """Return the id, and whether it is only the record's position. Raises errors of `function`, and TypeError for an id
    of the wrong type.
    """
    if function is not None:
        given = function(record)
        if given is not None:
            return _of_function(given), False
    headers = record.headers
    if headers:
        for name, value in reversed(headers):
            if name == ID_HEADER and value:
                return _plain(value), False
        found = {name: value for name, value in headers if value and name in _NAMES}
        if "ce_id" in found and "ce_source" in found:
            return _plain(b"ce:" + found["ce_source"] + b" " + found["ce_id"]), False
        if CONTENT_TYPE in found and (event := _structured(headers, record.raw_value)) is not None:
            return _plain(f"ce:{event.source} {event.id}".encode()), False
        if "id" in found:
            return _plain(found["id"]), False
    return position_id(original_of(record)), True


def ids_by_header(records: Iterable[Record[Any]]) -> dict[int, str]:
    """Return the ids of the records that have the header `ottla-id`, by offset, as `message_id_of` returns them.
    Written for the hot path: 0.2 µs per record, where calls of `message_id_of` take 1.1."""
    offsets: list[int] = []
    found: list[bytes] = []
    for record in records:
        headers = record._headers  # type: ignore[attr-defined]
        if not headers or headers.__class__ is bytes:  # it has none, or another one alone
            continue
        name, value = headers[-1]
        if name != ID_HEADER or not value:
            value = next((value for name, value in reversed(headers) if name == ID_HEADER and value), None)
            if value is None:
                continue
        found.append(value)
        offsets.append(record.offset)
    return dict(zip(offsets, _all_plain(found), strict=True))


def position_id(record: Record[Any]) -> str:
    """Return the id of a record without one. The timestamp distinguishes it from a record of an earlier topic of the
    same name.
    """
    return f"{record.topic}-{record.partition}@{record.offset}/{record.timestamp_ms}"


_NAMES: Final = frozenset({"ce_id", "ce_source", CONTENT_TYPE, "id"})


def _structured(headers: Headers, value: bytes | None) -> CloudEvent | None:
    """Return the event of a record whose attributes are in its value; None for another, and for a wrong one."""
    try:
        return event_in_value(value, headers)[0] if is_structured(headers) else None
    except NotAnEvent:
        return None


def _of_function(given: Any) -> str:
    if isinstance(given, bytes):
        return _plain(given)
    if isinstance(given, str | int | UUID) and not isinstance(given, bool):
        return _plain(str(given).encode("utf-8", "backslashreplace"))
    raise TypeError(f"Inbox(id=...): found {given!r:.200}, wanted str, bytes, int, UUID or None")


def _all_plain(found: list[bytes]) -> list[str]:
    """Apply `_plain` to each id; at once if none is replaced."""
    if found and max(map(len, found)) <= _LONGEST:
        try:
            plain = b"\0".join(found).decode().split("\0")
        except UnicodeDecodeError:
            plain = []
        if len(plain) == len(found):
            return plain
    return [_plain(raw) for raw in found]


def _plain(raw: bytes) -> str:
    """Return text that every store takes as a key: a hash replaces text that is long, not UTF-8 or has a zero byte."""
    if len(raw) <= _LONGEST and b"\0" not in raw:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            pass
    return "sha256:" + hashlib.sha256(raw).hexdigest()
