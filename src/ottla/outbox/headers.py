"""Headers of a record as one readable column: JSON, with base64 for bytes that are not text."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

from ottla.errors import InputError
from ottla.foreign_json import read_json
from ottla.records import Header, Headers

_ENCODE: Final = json.JSONEncoder(separators=(",", ":")).encode


def headers_to_text(headers: Headers) -> str:
    """Return headers as JSON: `[["traceparent", "00-..."], ["flag", null], ["raw", {"base64": "/w=="}]]`."""
    return _ENCODE([[name, _shown(value)] for name, value in headers]) if headers else "[]"


def headers_of_text(text: str) -> list[Header]:
    """Parse the headers of a row. Raises `InputError` for any other text."""
    if text == "[]":  # mostly
        return []
    try:
        return [(_name(name), _raw(value)) for name, value in read_json(text, most_depth=3)]
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(
            f'headers: found {text:.200}, wanted a JSON list of [name, value], the value text, null or {{"base64": '
            '"..."}'
        ) from error


def _shown(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _raw(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(name)
    if "\0" in name:
        raise ValueError("a null character in a header's name, which librdkafka would cut there")
    return name
