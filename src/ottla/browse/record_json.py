"""Records as lines of JSON, and back, byte for byte. Pure.

    {"schema": "ottla.record/1", "topic": "orders", "partition": 0, "offset": 12, "timestamp": 1763805600000,
     "time": "2025-11-22T10:00:00.000Z", "key": "a", "value": "...", "headers": [{"key": "trace", "value": "1"}]}

A part that is not UTF-8 stands under its name and `_base64`. null is null: a tombstone, not the text. Headers keep
their order and their duplicates. Decoded parts (`--as`) are JSON values, and `value_as` or `key_as` says what they
were: a text without it is the bytes of the text.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ottla.browse.json_numbers import tree_of, written_number
from ottla.browse.record_times import time_text
from ottla.errors import InputError, RegistryUnavailable
from ottla.records import Header
from ottla.wire_client.fetching.record_rows import RecordRows

SCHEMA: Final = "ottla.record/1"
LONGEST_NAME: Final = 60

Decoded = Callable[[bytes], tuple[str, Any] | None]
"""Result of a decoder: the name of the format and a plain value. None leaves the bytes unchanged."""

_ENCODER: Final = msgspec.json.Encoder(decimal_format="number", enc_hook=written_number)
_UNSAFE: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_FIELDS: Final = frozenset(
    [
        *("schema", "topic", "partition", "offset", "timestamp", "time", "timestamp_type", "headers"),
        *(f"{part}{suffix}" for part in ("key", "value") for suffix in ("", "_base64", "_as", "_error")),
        "value_bytes",
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenRecord:
    """A record as a line describes it. `key_as` and `value_as`: the part is a JSON value, to be encoded so."""

    key: Any = None
    value: Any = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    key_as: str | None = None
    value_as: str | None = None


def lines_of(
    block: RecordRows, *, key: Decoded | None = None, value: Decoded | None = None, is_safe: bool = False,
    has_values: bool = True,
) -> bytes:  # fmt: skip
    """Return a line for each record of a block. `is_safe` escapes what a terminal would obey, which is the same
    JSON."""
    topic, partition = block.topic, block.partition
    encode = _ENCODER.encode
    lines: list[bytes] = []
    for offset, at, raw_key, raw_value, headers in block.rows:
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "timestamp": at,
            "time": time_text(at) or None,
        }
        if block.is_append_time:
            record["timestamp_type"] = "LogAppendTime"
        _put(record, "key", raw_key, key)
        if has_values:
            _put(record, "value", raw_value, value)
        else:
            record["value_bytes"] = None if raw_value is None else len(raw_value)
        record["headers"] = [_header(name, content) for name, content in headers]
        lines.append(encode(record))
    text = b"\n".join(lines) + b"\n" if lines else b""
    if is_safe and not text.isascii():
        return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text.decode()).encode()
    return text


def _put(record: dict[str, Any], name: str, data: bytes | None, decode: Decoded | None) -> None:
    if data is None:
        record[name] = None
        return
    if decode is not None:
        try:
            found = decode(data)
        except RegistryUnavailable:
            raise
        except Exception as error:  # the record says so, and its bytes are there
            record[f"{name}_error"] = f"{type(error).__name__}: {error}"[:500]
        else:
            if found is not None:
                record[f"{name}_as"], record[name] = found
                return
    try:
        record[name] = data.decode()
    except UnicodeDecodeError:
        record[f"{name}_base64"] = base64.standard_b64encode(data).decode()


def _header(name: str, content: bytes | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    _put(found, "key", name.encode("utf-8", "surrogateescape"), None)
    _put(found, "value", content, None)
    return found


def parse_record(line: bytes) -> GivenRecord:
    """Return the record that a line describes. Raises `InputError` saying what was found and what was wanted."""
    try:
        given = tree_of(line)
    except UnicodeDecodeError as error:
        raise InputError(f"found bytes that are not UTF-8 at byte {error.start + 1}, wanted JSON") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"found {_shown(line)}, wanted a record as JSON: {error}") from None
    if not isinstance(given, dict):
        raise InputError(f"found {_kind(given)}, wanted an object with key, value and headers")
    for name in given:
        if name not in _FIELDS:
            raise InputError(
                f"found the field {name[:LONGEST_NAME]!r}, wanted key, value, headers, partition, timestamp"
            )
    if "value_bytes" in given:
        raise InputError("found a record of --headers-only, wanted one with its value")
    schema = given.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise InputError(f"schema: found {str(schema)[:LONGEST_NAME]!r}, wanted {SCHEMA}")
    key, key_as = _part(given, "key")
    value, value_as = _part(given, "value")
    return GivenRecord(
        key=key,
        value=value,
        headers=_headers(given.get("headers")),
        partition=_whole(given, "partition", 2**31 - 1),
        timestamp_ms=_whole(given, "timestamp", 2**63 - 1, least=-1),
        key_as=key_as,
        value_as=value_as,
    )


def _part(given: Mapping[str, Any], name: str) -> tuple[Any, str | None]:
    text, base64_name = given.get(name), f"{name}_base64"
    encoded, form = given.get(base64_name), given.get(f"{name}_as")
    if base64_name in given and name in given:
        raise InputError(f"found both {name} and {base64_name}, wanted one of them")
    if base64_name in given:
        try:
            return base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True), None
        except (TypeError, ValueError, binascii.Error):
            raise InputError(f"{base64_name}: found {_kind(encoded)}, wanted base64") from None
    if form is not None:
        if not isinstance(form, str):
            raise InputError(f"{name}_as: found {_kind(form)}, wanted json, avro or protobuf")
        return text, form
    if text is None:
        return None, None
    if isinstance(text, str):
        try:
            return text.encode(), None
        except UnicodeEncodeError:
            raise InputError(
                f"{name}: found half of a surrogate pair, wanted text; {base64_name} takes bytes"
            ) from None
    return text, "json"


def _headers(given: Any) -> tuple[Header, ...]:
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"key": name, "value": value} for name, value in given.items()]
    if not isinstance(given, list):
        raise InputError(f"headers: found {_kind(given)}, wanted a list of objects with key and value")
    found: list[Header] = []
    for number, header in enumerate(given):
        if not isinstance(header, dict) or not header.keys() <= {"key", "value", "key_base64", "value_base64"}:
            raise InputError(f"headers[{number}]: found {_kind(header)}, wanted an object with key and value")
        name, key_as = _part(header, "key")
        value, value_as = _part(header, "value")
        if name is None or key_as or value_as:
            raise InputError(f"headers[{number}]: wanted key as text, and value as text or null")
        found.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(found)


def _whole(given: Mapping[str, Any], name: str, most: int, *, least: int = 0) -> int | None:
    number = given.get(name)
    if number is None:
        return None
    if type(number) is not int or not least <= number <= most:
        raise InputError(f"{name}: found {str(number)[:LONGEST_NAME]!r}, wanted a whole number of {least} to {most}")
    return number


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


def _shown(line: bytes) -> str:
    text = line[:LONGEST_NAME].decode("utf-8", "backslashreplace")
    return repr(text + "..." if len(line) > LONGEST_NAME else text)
