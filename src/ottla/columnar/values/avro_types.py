"""Avro schemas as trees, and the Arrow type of each.

The Arrow types are those that Spark's own `from_avro` gives, so that code moves both ways: enums are text, a union with
null is a nullable column, a union of several types is a struct `member0`, `member1`, ... with one member set.
Times of day stay integers (milli- or microseconds since midnight), as Spark long had no such type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ottla.errors import ConfigError
from ottla.serdes.avro_check import named_types
from ottla.serdes.avro_walk import RECORDS, body_of

_PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_MOST_DIGITS_128, _MOST_DIGITS = 38, 76  # of Arrow's decimals
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_LOCAL_TIMESTAMP = pa.timestamp("us")
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): _TIMESTAMP,
    ("long", "timestamp-micros"): _TIMESTAMP,
    ("long", "local-timestamp-millis"): _LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): _LOCAL_TIMESTAMP,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroNode:
    """One place in a schema. `kind` is Avro's word for it; a union of null and one type is that type, `null_at` set."""

    kind: str
    arrow: pa.DataType
    logical: str | None = None
    children: tuple[AvroNode, ...] = ()
    names: tuple[str, ...] = ()  # of a record's fields, or an enum's symbols
    size: int = 0  # of a fixed
    null_at: int | None = None  # which branch of the union is null
    branches: int = 0  # how many branches the union has
    full_name: str = field(default="", compare=False)  # of a record

    @property
    def is_nullable(self) -> bool:
        return self.null_at is not None


def parse_avro(schema: Any) -> AvroNode:
    """Return the tree of a schema that fastavro parsed, or that has no namespaces: its names are full ones.

    A schema that contains itself has no columns: `ConfigError`.
    """
    return _AvroParser(named_types(schema)).parse(schema)


class _AvroParser:
    def __init__(self, bodies: Mapping[str, Any]) -> None:
        self._bodies = bodies
        self._named: dict[str, AvroNode] = {}
        self._open: set[str] = set()

    def parse(self, schema: Any) -> AvroNode:
        body = body_of(schema, self._bodies)
        if isinstance(body, list):
            return self._union(body)
        name = body.get("name")
        if name is None:
            return self._node(body)
        if name in self._open:
            raise ConfigError(f"Avro type {name} contains itself: it has no columns; decode it row by row as JSON")
        if name not in self._named:
            self._open.add(name)
            self._named[name] = self._node(body)
            self._open.discard(name)
        return self._named[name]

    def _node(self, body: Mapping[str, Any]) -> AvroNode:
        kind, logical = body["type"], body.get("logicalType")
        if kind in RECORDS:
            return self._record(body)
        if kind == "enum":
            return AvroNode(kind=kind, arrow=pa.string(), names=tuple(body["symbols"]))
        if kind == "array":
            items = self.parse(body["items"])
            return AvroNode(kind=kind, arrow=pa.list_(pa.field("element", items.arrow)), children=(items,))
        if kind == "map":
            values = self.parse(body["values"])
            return AvroNode(kind=kind, arrow=pa.map_(pa.string(), values.arrow), children=(values,))
        if kind in ("bytes", "fixed"):
            node = _decimal(body) if logical == "decimal" else AvroNode(kind=kind, arrow=pa.binary())
            return replace(node, size=body.get("size", 0))
        return AvroNode(kind=kind, arrow=_LOGICAL.get((kind, logical or ""), _PRIMITIVES[kind]), logical=logical)

    def _record(self, body: Mapping[str, Any]) -> AvroNode:
        children = tuple(self.parse(field["type"]) for field in body["fields"])
        names = tuple(field["name"] for field in body["fields"])
        arrow = pa.struct([pa.field(name, child.arrow) for name, child in zip(names, children, strict=True)])
        return AvroNode(kind="record", arrow=arrow, children=children, names=names, full_name=body["name"])

    def _union(self, branches: list[Any]) -> AvroNode:
        nodes = [self.parse(branch) for branch in branches]
        null_at = next((i for i, node in enumerate(nodes) if node.kind == "null"), None)
        others = tuple(node for node in nodes if node.kind != "null")
        if not others:
            return AvroNode(kind="null", arrow=pa.null(), null_at=null_at, branches=len(nodes))
        if len(others) == 1 and null_at is not None:
            return replace(others[0], null_at=null_at, branches=len(nodes))
        arrow = pa.struct([pa.field(f"member{i}", node.arrow) for i, node in enumerate(others)])
        return AvroNode(kind="union", arrow=arrow, children=others, null_at=null_at, branches=len(nodes))


def _decimal(body: Mapping[str, Any]) -> AvroNode:
    precision, scale = int(body["precision"]), int(body.get("scale", 0))
    if precision > _MOST_DIGITS:
        raise ConfigError(
            f"Avro schema: found a decimal of {precision} digits, wanted at most {_MOST_DIGITS} in a column"
        )
    arrow = pa.decimal128(precision, scale) if precision <= _MOST_DIGITS_128 else pa.decimal256(precision, scale)
    return AvroNode(kind=body["type"], arrow=arrow, logical="decimal")
