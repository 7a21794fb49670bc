"""Properties of AMQP 0-9-1 messages, decoded from a content header.

pika's own decoder makes 2 of the header 2.5, and raises for NaN, for times after the year 9999 and for tables that end
too early. One such message would end the connection each time RabbitMQ delivers it again. Here every value that a
publisher can send has a Python value, and what cannot be decoded is a `ValueError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

_DEEPEST: Final = 32
"""Most levels of nested tables and lists."""

_HEADERS: Final = 2
_NAMES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)
"""In the order of their flags, from the highest bit."""
_OCTETS: Final = {"delivery_mode": 1, "priority": 1, "timestamp": 8}


def _time(seconds: int) -> datetime | int:
    """Return the time, or the number where Python has no such time."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return seconds


_NUMBERS: Final = {
    kind: (struct.Struct(layout), made)
    for kind, layout, made in (
        (b"t", ">?", bool),
        (b"b", ">b", int),
        (b"B", ">B", int),
        (b"U", ">h", int),
        (b"u", ">H", int),
        (b"s", ">h", int),
        (b"I", ">i", int),
        (b"i", ">I", int),
        (b"L", ">q", int),
        (b"l", ">q", int),
        (b"f", ">f", float),
        (b"d", ">d", float),
        (b"T", ">Q", _time),
    )
}
"""As RabbitMQ's errata of AMQP 0-9-1 have them."""


@dataclass(slots=True)
class ContentProperties:
    """The properties that Kafka's records get, under the names that pika gives them."""

    content_type: str | None = None
    headers: dict[str, Any] | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None


def decode_properties(data: bytes) -> ContentProperties:
    """Return what follows the size of the body in a content header. Raises ValueError for what is malformed."""
    found = ContentProperties()
    try:
        (flags,) = struct.unpack_from(">H", data)
        if not flags:
            return found
        if flags & 1:
            raise ValueError("found more than 15 flags of properties, AMQP 0-9-1 has 14")
        at = 2
        for number, name in enumerate(_NAMES):
            if not flags & (0x8000 >> number):
                continue
            if number == _HEADERS:
                found.headers, at = _table(data, at, _DEEPEST)
            elif name in _OCTETS:
                at += _OCTETS[name]
            else:
                text, at = _short_text(data, at)
                if hasattr(found, name):
                    setattr(found, name, text)
    except (struct.error, IndexError) as error:
        raise ValueError(f"the properties end too early: {error}") from None
    if at > len(data):
        raise ValueError("the properties end too early")
    return found


def _utf8(data: bytes) -> str:
    """Return a name; bytes that are no UTF-8 become U+FFFD."""
    return data.decode("utf-8", "replace")


def _short_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    return _utf8(data[at + 1 : end]), end


def _long(data: bytes, at: int) -> tuple[bytes, int]:
    (size,) = struct.unpack_from(">I", data, at)
    end = at + 4 + size
    if end > len(data):
        raise ValueError(f"a field of {size:,} bytes extends past the end of the properties")
    return data[at + 4 : end], end


def _table(data: bytes, at: int, deepest: int) -> tuple[dict[str, Any], int]:
    inner, end = _long(data, at)
    found = {}
    at = 0
    while at < len(inner):
        name, at = _short_text(inner, at)
        found[name], at = _value(inner, at, deepest)
    return found, end


def _list(data: bytes, at: int, deepest: int) -> tuple[list[Any], int]:
    inner, end = _long(data, at)
    found = []
    at = 0
    while at < len(inner):
        value, at = _value(inner, at, deepest)
        found.append(value)
    return found, end


def _value(data: bytes, at: int, deepest: int) -> tuple[Any, int]:
    kind = data[at : at + 1]
    at += 1
    number = _NUMBERS.get(kind)
    if number is not None:
        layout, made = number
        return made(layout.unpack_from(data, at)[0]), at + layout.size
    if kind in (b"S", b"x"):
        content, at = _long(data, at)
        return content.decode("utf-8", "replace"), at
    if kind == b"V":
        return None, at
    if kind == b"D":
        scale, unscaled = struct.unpack_from(">Bi", data, at)
        return Decimal(unscaled).scaleb(-scale), at + 5
    nested: Callable[[bytes, int, int], tuple[Any, int]] | None = {b"F": _table, b"A": _list}.get(kind)
    if nested is None:
        raise ValueError(f"found a field of type {kind!r}")
    if not deepest:
        raise ValueError(f"found tables or lists nested more than {_DEEPEST} deep")
    return nested(data, at, deepest - 1)
