"""Foreign JSON (in a record, a row, a file, a response), bounded before it is parsed.

Parsers of JSON follow nesting on the stack: two thousand brackets are a `RecursionError`, which no caller expects of
bytes that are merely wrong. What is nested a little less deeply fails later, in the code that walks over the value.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

MOST_BYTES: Final = 16 * 1024 * 1024
MOST_DEPTH: Final = 200
"""Maximum nesting of brackets. Schemas and Ottla's own JSON have a dozen."""

# A string, also one that does not end: each byte is read once.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_BRACKETS: Final = b"[]{}"
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(_BRACKETS))

_decode: Final = msgspec.json.Decoder().decode


class ForeignJsonError(ValueError):
    """Treat the text as invalid: it is not JSON within the bounds."""


def read_json(data: bytes | str, *, most_bytes: int = MOST_BYTES, most_depth: int = MOST_DEPTH) -> Any:
    """Return the JSON value in `data`, of dicts, lists and scalars. Raises `ForeignJsonError`, and nothing else."""
    try:
        raw = data.encode() if isinstance(data, str) else bytes(data)
    except UnicodeEncodeError as error:
        raise ForeignJsonError("found text with half a character (a lone surrogate), wanted JSON") from error
    if len(raw) > most_bytes:
        raise ForeignJsonError(f"found {len(raw):,} bytes, wanted at most {most_bytes:,} bytes of JSON")
    try:
        found = _decode(raw)
    except RecursionError:
        found = None  # nested more deeply than the stack has room for, or looks like it
        if not is_deeper_than(most_depth, raw):
            raise ForeignJsonError("not JSON: nested too deeply") from None
    except ValueError as error:  # msgspec's own errors, and UnicodeDecodeError
        raise ForeignJsonError(f"not JSON: {error}") from error
    if is_deeper_than(most_depth, raw):
        raise ForeignJsonError(f"found JSON nested more than {most_depth} deep")
    return found


def is_deeper_than(most_depth: int, data: bytes) -> bool:
    """Return whether brackets are nested more than `most_depth` deep, outside of strings. Linear in the bytes."""
    if data.count(b"[") + data.count(b"{") <= most_depth:
        return False
    depth = 0
    for bracket in _STRING.sub(b"", data).translate(None, _NOT_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > most_depth:
                return True
        else:
            depth -= 1
    return False
