"""Defaults of a schema's fields as values, as a reader would have read them.

A schema has them as JSON of the underlying type: bytes as text of code points below 256, times and decimals as numbers
or such text. fastavro takes them as they stand.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.serdes.avro_walk import RECORDS, body_of

_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_LEAST: Final = {"int": -(2**31), "long": -(2**63)}


def default_value(schema: Any, given: Any, bodies: Mapping[str, Any]) -> Any:
    """Return a new value for a default. Raises ValueError for JSON that does not fit the schema."""
    body = body_of(schema, bodies)
    if isinstance(body, list):
        return _of_union(body, given, bodies)
    kind = body["type"]
    if kind in RECORDS:
        return _of_record(body, given, bodies)
    if kind == "array":
        return [default_value(body["items"], item, bodies) for item in _checked(given, list)]
    if kind == "map":
        values = _checked(given, dict)
        return {key: default_value(body["values"], item, bodies) for key, item in values.items()}
    return _logical(body, _PLAIN[kind](body, given))


def is_container(schema: Any, bodies: Mapping[str, Any]) -> bool:
    """Return whether a value of the schema is mutable."""
    body = body_of(schema, bodies)
    if isinstance(body, list):
        return any(is_container(branch, bodies) for branch in body)
    return body["type"] in (*RECORDS, "array", "map")


def checked_default(record: str, field: Mapping[str, Any], bodies: Mapping[str, Any]) -> Any:
    """Return the default of a field. Raises `ConfigError` that names it."""
    try:
        return default_value(field["type"], field["default"], bodies)
    except (ValueError, OverflowError, RecursionError, KeyError) as error:
        shown = repr(field["default"])[:100]
        raise ConfigError(f"Avro schema: {record}.{field['name']}: found the default {shown}: {error}") from error


def _of_union(branches: list[Any], given: Any, bodies: Mapping[str, Any]) -> Any:
    has_several_records = records_in(branches, bodies) > 1
    problems = []
    for branch in branches:  # the first one by the specification, any one since its version 1.12
        try:
            value = default_value(branch, given, bodies)
        except ValueError as error:
            problems.append(str(error))
            continue
        body = body_of(branch, bodies)
        return (body["name"], value) if has_several_records and body["type"] in RECORDS else value
    raise ValueError("; ".join(problems))


def records_in(branches: list[Any], bodies: Mapping[str, Any]) -> int:
    """Return how many branches of a union are records."""
    return sum(body_of(branch, bodies)["type"] in RECORDS for branch in branches)


def _of_record(body: Mapping[str, Any], given: Any, bodies: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(_checked(given, dict))
    record: dict[str, Any] = {}
    for field in body["fields"]:
        name = field["name"]
        if name in values:
            record[name] = default_value(field["type"], values.pop(name), bodies)
        elif RAW_DEFAULT in field or "default" in field:
            record[name] = default_value(field["type"], field.get(RAW_DEFAULT, field.get("default")), bodies)
        else:
            raise ValueError(f"a {body['name']} without {name}")
    if values:
        raise ValueError(f"{body['name']} has no field {next(iter(values))}")
    return record


RAW_DEFAULT: Final = "__default"
"""Place of a field's default as JSON, once it is decoded."""


def _checked(given: Any, kind: type[Any]) -> Any:
    if type(given) is not kind:
        raise ValueError(f"wanted a JSON {'object' if kind is dict else 'array' if kind is list else kind.__name__}")
    return given


def _number(body: Mapping[str, Any], given: Any) -> int:
    least = _LEAST[body["type"]]
    if type(given) is not int or not least <= given < -least:
        raise ValueError(f"wanted an integer of {body['type']}")
    return given


def _real(body: Mapping[str, Any], given: Any) -> float:
    if type(given) not in (int, float) and given not in _NOT_FINITE:
        raise ValueError("wanted a number")
    number = float(given)
    if body["type"] == "float":
        (number,) = struct.unpack("<f", struct.pack("<f", number))
    return number


def _bytes(body: Mapping[str, Any], given: Any) -> bytes:
    try:
        found = str(_checked(given, str)).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("wanted text of code points below 256, one for each byte") from None
    if body["type"] == "fixed" and len(found) != body["size"]:
        raise ValueError(f"wanted {body['size']} bytes")
    return found


def _symbol(body: Mapping[str, Any], given: Any) -> str:
    if given not in body["symbols"]:
        raise ValueError("wanted a symbol of the enum")
    return str(given)


def _null(body: Mapping[str, Any], given: Any) -> None:
    if given is not None:
        raise ValueError("wanted null")


_PLAIN: Final[dict[str, Any]] = {
    "null": _null,
    "boolean": lambda body, given: _checked(given, bool),
    "int": _number,
    "long": _number,
    "float": _real,
    "double": _real,
    "bytes": _bytes,
    "fixed": _bytes,
    "string": lambda body, given: _checked(given, str),
    "enum": _symbol,
}


def _logical(body: Mapping[str, Any], plain: Any) -> Any:
    from fastavro.read import LOGICAL_READERS

    read = LOGICAL_READERS.get(f"{body['type']}-{body.get('logicalType')}")
    return plain if read is None else read(plain, dict(body), None)
