"""Values in error messages, without secrets: errors end up in logs and trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "********"

_MOST: Final = 60
_LOOKED_THROUGH: Final = 2_000
_SPEAKS_OF_SECRETS: Final = ("password", "secret", "passphrase", "private key")


def shown(value: object, most: int = _MOST) -> str:
    """Return a value for an error message: short, and without a possible secret.

    A number is itself. Text is without what stands before an `@`, and hidden where it names a password. Of anything
    that holds other values, and of bytes, only the type is shown. Python refuses to write integers of more than 4,300
    digits.
    """
    if isinstance(value, str):
        return _cut(repr(shown_text(value[:_LOOKED_THROUGH])), most)
    if value is None or isinstance(value, bool | int | float | complex):
        try:
            return _cut(repr(value), most)
        except ValueError:
            return f"a number of {value.bit_length() if isinstance(value, int) else 0:,} bits"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, list | tuple) and value and all(isinstance(each, str | int | float) for each in value):
        inside = ", ".join(shown(each) for each in value[:10])
        return _cut(f"[{inside}]" if isinstance(value, list) else f"({inside})", most)
    name = type(value).__name__
    if isinstance(value, bytes | bytearray | memoryview):
        return name
    if isinstance(value, Mapping):
        return f"a {name} of {len(value)}"
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def shown_text(text: str) -> str:
    """Return text as `shown` does, without quotes."""
    lowered = text.lower()
    if any(word in lowered for word in _SPEAKS_OF_SECRETS):
        return HIDDEN
    before, _at, behind = text.rpartition("@")
    return f"{HIDDEN}@{behind}" if before else text


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
