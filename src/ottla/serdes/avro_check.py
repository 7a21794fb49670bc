"""Checks that an Avro codec lacks, derived from the schema once.

fastavro is fast and trusting. It writes 1.7 into a `long` as 1, takes a datetime without a zone for local time, follows
a recursive schema down the C stack until the process dies, and believes a four-byte array that claims a billion items
of no size. A value is therefore checked against a type made from its schema (msgspec, a microsecond), and schemas that
recurse or hold such arrays are known before the first byte is read.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import msgspec

from ottla.serdes.avro_schema import Schema
from ottla.serdes.avro_walk import RECORDS, body_of
from ottla.serdes.models import union_of

_INT32: Final = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_MOST_PARTS_OF_NOTHING: Final = 10_000
_NAIVE: Final = Annotated[datetime.datetime, msgspec.Meta(tz=False)]
_AWARE: Final = Annotated[datetime.datetime, msgspec.Meta(tz=True)]

_PRIMITIVES: Final[dict[str, Any]] = {
    "null": None,
    "boolean": bool,
    "int": _INT32,
    "long": _INT64,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
}
# Avro types whose values Python, or fastavro, may take for each other's.
_GROUPS: Final = {
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
    **dict.fromkeys(("string", "enum"), "text"),
    **dict.fromkeys(("bytes", "fixed"), "bytes"),
    **dict.fromkeys(("record", "error", "map"), "object"),
}
# What fastavro accepts for a logical type: the Python type, or the underlying Avro value as it is.
_LOGICAL: Final[dict[tuple[str, str], Any]] = {
    ("long", "timestamp-millis"): _AWARE | _INT64,
    ("long", "timestamp-micros"): _AWARE | _INT64,
    ("long", "local-timestamp-millis"): _NAIVE | _INT64,
    ("long", "local-timestamp-micros"): _NAIVE | _INT64,
    ("int", "date"): datetime.date | _INT32,
    ("int", "time-millis"): datetime.time | _INT32,
    ("long", "time-micros"): datetime.time | _INT64,
    ("bytes", "decimal"): decimal.Decimal,
    ("fixed", "decimal"): decimal.Decimal,
    ("string", "uuid"): uuid.UUID,  # text in UUID form is converted, so it passes too
    ("fixed", "uuid"): Any,
}


def is_recursive(schema: Schema, named: Mapping[str, Any]) -> bool:
    """Return whether a value of this schema can contain another value of the same named type.

    `named` are the types that are defined elsewhere and used by their names.
    """
    bodies = {**named, **named_types(schema)}
    try:
        TopologicalSorter({name: _mentioned(body, bodies) for name, body in bodies.items()}).prepare()
    except CycleError:
        return True
    return False


def made_of_nothing(schema: Schema, named: Mapping[str, Any]) -> str | None:
    """Return the parts of which a few bytes could claim billions, or None: array items without bytes, or records
    without bytes inside such records.
    """
    bodies = {**named, **named_types(schema)}
    sizes: dict[str, float] = {}
    for part in (part for whole in (schema, *named.values()) for part in parts_of(whole)):
        if isinstance(part, dict) and part.get("type") == "array" and _parts_of_nothing(part["items"], bodies, sizes):
            return f"an array of {part['items']}"
    for name in bodies:
        if _parts_of_nothing(name, bodies, sizes) > _MOST_PARTS_OF_NOTHING:
            return f"more than {_MOST_PARTS_OF_NOTHING:,} values in a {name}"
    return None


class Checks:
    """Types for `msgspec.convert` to check plain values, from a schema parsed by fastavro.

    `bodies` are its named types by their full names. A type is `Any` where msgspec cannot tell branches apart, and
    where a record is inside itself: both are decided value by value (`avro_branches`).
    """

    def __init__(self, bodies: Mapping[str, Any]) -> None:
        self._bodies = bodies
        self._named: dict[str, Any] = {}

    def type_of(self, schema: Schema) -> Any:
        """Return the type of a schema's values."""
        body = body_of(schema, self._bodies)
        if isinstance(body, list):
            return union_of(map(self.type_of, body)) if self.distinguishes(body) else Any
        name, kind = body.get("name"), body["type"]
        if name not in self._named:
            made = self._made(body, kind)
            if name is None:
                return made
            self._named[name] = made
        return self._named[name]

    def _made(self, body: dict[str, Any], kind: str) -> Any:
        logical = _LOGICAL.get((kind, body.get("logicalType", "")))
        if logical is not None:
            return logical
        if kind in RECORDS:
            return self._record(body)
        if kind == "array":
            return list[self.type_of(body["items"])]  # type: ignore[misc]
        if kind == "map":
            return dict[str, self.type_of(body["values"])]  # type: ignore[misc]
        if kind == "enum":
            return Literal[tuple(body["symbols"])]
        if kind == "fixed":
            return Annotated[bytes, msgspec.Meta(min_length=body["size"], max_length=body["size"])]
        return _PRIMITIVES[kind]

    def distinguishes(self, branches: Sequence[Any]) -> bool:
        """Return whether a value's type determines its branch of a union, for msgspec and for fastavro."""
        kinds = [body_of(branch, self._bodies)["type"] for branch in branches]
        groups = [_GROUPS.get(kind, kind) for kind in kinds if kind != "null"]
        if len(set(groups)) < len(groups):
            return False
        try:
            msgspec.json.Decoder(union_of(self.type_of(branch) for branch in branches))
        except TypeError:
            return False
        return True

    def _record(self, schema: dict[str, Any]) -> Any:
        name = schema["name"]
        self._named[name] = Any  # inside itself
        fields = {}
        for field in schema["fields"]:
            made = self.type_of(field["type"])
            fields[field["name"]] = NotRequired[made] if "default" in field else made
        return TypedDict(name.rpartition(".")[2], fields)  # type: ignore[operator]


def parts_of(schema: Any) -> Iterator[Any]:
    """Yield a schema and all schemas in it; types that it names are not followed."""
    yield schema
    if isinstance(schema, list):
        children = schema
    elif isinstance(schema, dict):
        children = [schema.get("items"), schema.get("values"), *(f["type"] for f in schema.get("fields", ()))]
        if not isinstance(schema.get("type"), str):
            children.append(schema.get("type"))
    else:
        return
    for child in children:
        if child is not None:
            yield from parts_of(child)


def named_types(schema: Schema) -> dict[str, Any]:
    """Return every named type in a schema parsed by fastavro (it writes full names everywhere)."""
    return {part["name"]: part for part in parts_of(schema) if isinstance(part, dict) and "name" in part}


def _mentioned(schema: Any, bodies: Mapping[str, Any]) -> list[str]:
    """Return the named types that a value may contain directly."""
    found: dict[str, None] = {}
    for part in parts_of(schema):
        name = part.get("name") if isinstance(part, dict) and part is not schema else part
        if isinstance(name, str) and name in bodies:
            found[name] = None
    return list(found)


def _parts_of_nothing(schema: Any, bodies: Mapping[str, Any], sizes: dict[str, float]) -> float:
    """Return the number of values without bytes in a value; 0 if it takes some bytes."""
    if isinstance(schema, str) and schema in bodies:
        if schema not in sizes:
            sizes[schema] = 1  # within itself
            sizes[schema] = _parts_of_nothing(bodies[schema], bodies, sizes)
        return sizes[schema]
    if isinstance(schema, str | list):
        return float(schema == "null")  # the number of a union's branch is a byte
    kind = schema["type"]
    if kind in RECORDS:
        parts = [_parts_of_nothing(field["type"], bodies, sizes) for field in schema["fields"]]
        return 1 + sum(parts) if all(parts) else 0
    if kind == "fixed":
        return float(schema["size"] == 0)
    is_plain = isinstance(kind, str) and kind not in bodies
    return float(kind == "null") if is_plain else _parts_of_nothing(kind, bodies, sizes)
