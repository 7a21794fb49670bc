"""Keys and values as text on a line: raw for programs, without anything that a terminal obeys for people. Pure.

Costs per block: whether a block holds any byte that must be escaped is asked once, of all its bytes together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from ottla.cli.shared.visible import visible
from ottla.errors import RegistryUnavailable
from ottla.records import Headers
from ottla_wire.records import Row, shown_key

Column: TypeAlias = list[bytes]
Decode: TypeAlias = Callable[[bytes], Any]

_PLAIN_BYTES: Final = bytes(range(0x20, 0x7F))
_ENCODE: Final = msgspec.json.Encoder(decimal_format="number").encode


def text_of(data: bytes) -> str:
    """The text that the bytes are, what is not UTF-8 as `\\xff`."""
    return data.decode("utf-8", "backslashreplace")


def safe(data: bytes) -> bytes:
    """Return the bytes as one line of text that neither a terminal nor a tab-separated line is disturbed by."""
    return visible(text_of(data)).encode("utf-8", "backslashreplace")


class Display:
    """How one part of records, the key or the value, is printed. `null` is what stands for null."""

    __slots__ = ("_decode", "_is_safe", "_null")

    def __init__(self, *, decode: Decode | None = None, is_safe: bool, null: bytes = b"") -> None:
        """Print with `decode`, which returns a text or a value for JSON; bytes that it rejects are printed raw."""
        self._decode = decode
        self._is_safe = is_safe
        self._null = null

    def column(self, parts: Sequence[bytes | None]) -> Column:
        """Return this part of each record of a block."""
        null, decode = self._null, self._decode
        if decode is not None:
            parts = [None if part is None else self._decoded(part) for part in parts]
        if self._is_safe:
            given = b"".join([part for part in parts if part])
            if given.translate(None, _PLAIN_BYTES):
                return [null if part is None else safe(part) for part in parts]
        return [null if part is None else part for part in parts]

    def _decoded(self, part: bytes) -> bytes:
        assert self._decode is not None
        try:
            value = self._decode(part)
        except RegistryUnavailable:
            raise
        except Exception:  # whoever decodes counts it
            return part
        return value.encode("utf-8", "backslashreplace") if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> bytes:
    """Return a plain value as JSON on one line; a value that JSON cannot express as its text."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError, RecursionError):
        return repr(value).encode("utf-8", "backslashreplace")


def headers_column(rows: Iterable[Row], *, is_safe: bool, null: bytes = b"") -> Column:
    """`name=value,name=value` of each record."""
    return [_headers(row[4], is_safe, null) if row[4] else b"" for row in rows]


def _headers(headers: Headers, is_safe: bool, null: bytes) -> bytes:
    shown = b",".join([shown_key(name).encode() + b"=" + (null if value is None else value) for name, value in headers])
    return safe(shown) if is_safe else shown
