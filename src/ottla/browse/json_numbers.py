"""JSON with its numbers as they are written: not every one of them is an int or a float of Python. Pure.

    minified(b'{"a": 0.1234567890123456789}')       the bytes without blanks, to be printed
    tree_of(b'{"a": 1e400}')                        dicts and lists, to be looked into and to be written again
    to_json(tree)                                   the bytes of a tree, numbers as they were written

A number that a float would round stays a float that knows its text. One that no float is near (`1e400`, `1e-400`) is
its text, which a filter can compare, and is written as a number.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import msgspec

from ottla.foreign_json import MOST_DEPTH, is_deeper_than

_SHORT: Final = 15
"""So many characters of a plain decimal are kept by a float."""
_NEGATIVE_ZERO: Final = re.compile(rb"-0(?![\d.eE])")
_NOT_ZERO: Final = re.compile(r"[1-9]")


class WrittenFloat(float):
    """A number that is written otherwise than its float would be."""

    __slots__ = ("text",)

    text: str


class WrittenText(str):
    """The text of a number that is none of Python's."""

    __slots__ = ()


def minified(data: bytes) -> msgspec.Raw:
    """Return JSON without whitespace, otherwise unchanged. Raises ValueError or RecursionError for invalid JSON."""
    if not data.isascii():
        data.decode()
    return msgspec.Raw(msgspec.json.format(data, indent=-1))


def tree_of(data: bytes) -> Any:
    """Return the parsed JSON. Raises ValueError, or RecursionError, if it is invalid."""
    try:
        tree = _DECODER.decode(data)
    except msgspec.ValidationError:  # an integer of hundreds of digits
        return _by_tokens(data)
    return _by_tokens(data) if b"-0" in data and _NEGATIVE_ZERO.search(data) else tree


def to_json(tree: Any) -> bytes:
    """Return a tree as JSON. Raises TypeError and ValueError for values that JSON cannot express."""
    return _ENCODER.encode(tree)


def written_number(value: Any) -> msgspec.Raw:
    """Return a hook of msgspec's encoders for the numbers here."""
    if isinstance(value, WrittenFloat):
        return msgspec.Raw(value.text.encode())
    if isinstance(value, WrittenText):
        return msgspec.Raw(value.encode())
    raise TypeError(f"found {type(value).__name__}, wanted a JSON value")


def number_of(text: str) -> float | WrittenText:
    """Return the number that is written with a point or an exponent."""
    value = float(text)
    is_near_none = value in (float("inf"), float("-inf")) or (value == 0 and _NOT_ZERO.search(_mantissa(text)))
    if is_near_none:
        return WrittenText(text)
    if len(text) <= _SHORT and repr(value) == text:
        return value
    found = WrittenFloat(value)
    found.text = text
    return found


def _integer(text: str) -> int | float | WrittenText:
    if text == "-0":
        return number_of(text)
    try:
        return int(text)
    except ValueError:  # more digits than Python takes
        return WrittenText(text)


def _mantissa(text: str) -> str:
    return text.lower().partition("e")[0]


def _by_tokens(data: bytes) -> Any:
    if is_deeper_than(MOST_DEPTH, data):
        raise ValueError(f"found JSON nested more than {MOST_DEPTH} deep")
    return _TOKENS.decode(data.decode())


def _no_constant(text: str) -> Any:
    raise ValueError(f"found {text}, which JSON does not have")


_DECODER: Final = msgspec.json.Decoder(float_hook=number_of)
_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=written_number)
_TOKENS: Final = json.JSONDecoder(parse_float=number_of, parse_int=_integer, parse_constant=_no_constant)
