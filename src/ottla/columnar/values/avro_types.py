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
    """Return the tree of a schema, named types resolved. A schema that contains itself has no columns:
    `ConfigError`."""
    return _AvroParser().parse(schema, "")


class _AvroParser:
    def __init__(self) -> None:
        self._named: dict[str, AvroNode] = {}
        self._open: set[str] = set()

    def parse(self, schema: Any, namespace: str) -> AvroNode:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.parse(kind, namespace)
        if kind in ("record", "error"):
            return self._record(schema, namespace)
        if kind == "enum":
            symbols = tuple(schema["symbols"])
            return self._remember(schema, namespace, AvroNode(kind="enum", arrow=pa.string(), names=symbols))
        if kind == "fixed":
            node = _decimal(schema, "fixed") or AvroNode(kind="fixed", arrow=pa.binary())
            return self._remember(schema, namespace, replace(node, size=schema["size"]))
        if kind == "array":
            items = self.parse(schema["items"], namespace)
            return AvroNode(kind="array", arrow=pa.list_(pa.field("element", items.arrow)), children=(items,))
        if kind == "map":
            values = self.parse(schema["values"], namespace)
            return AvroNode(kind="map", arrow=pa.map_(pa.string(), values.arrow), children=(values,))
        logical = schema.get("logicalType")
        if kind == "bytes" and logical == "decimal":
            return _decimal(schema, "bytes") or AvroNode(kind="bytes", arrow=pa.binary())
        if kind in _PRIMITIVES:
            arrow = _LOGICAL.get((kind, logical), _PRIMITIVES[kind])
            return AvroNode(kind=kind, arrow=arrow, logical=logical)
        return self._by_name(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> AvroNode:
        if name in _PRIMITIVES:
            return AvroNode(kind=name, arrow=_PRIMITIVES[name])
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for candidate in (full, name):
            if candidate in self._open:
                raise ConfigError(f"Avro type {name} contains itself: it has no columns; decode it row by row as JSON")
            if candidate in self._named:
                return self._named[candidate]
        raise ConfigError(f"Avro schema: no type is named {name}")

    def _record(self, schema: Mapping[str, Any], namespace: str) -> AvroNode:
        full, inner = _full_name(schema, namespace)
        self._open.add(full)
        children = tuple(self.parse(f["type"], inner) for f in schema["fields"])
        self._open.discard(full)
        names = tuple(f["name"] for f in schema["fields"])
        arrow = pa.struct([pa.field(n, child.arrow) for n, child in zip(names, children, strict=True)])
        node = AvroNode(kind="record", arrow=arrow, children=children, names=names, full_name=full)
        self._named[full] = node
        return node

    def _union(self, branches: list[Any], namespace: str) -> AvroNode:
        nodes = [self.parse(branch, namespace) for branch in branches]
        null_at = next((i for i, node in enumerate(nodes) if node.kind == "null"), None)
        others = tuple(node for node in nodes if node.kind != "null")
        if not others:
            return AvroNode(kind="null", arrow=pa.null(), null_at=null_at, branches=len(nodes))
        if len(others) == 1 and null_at is not None:
            return replace(others[0], null_at=null_at, branches=len(nodes))
        arrow = pa.struct([pa.field(f"member{i}", node.arrow) for i, node in enumerate(others)])
        return AvroNode(kind="union", arrow=arrow, children=others, null_at=null_at, branches=len(nodes))

    def _remember(self, schema: Mapping[str, Any], namespace: str, node: AvroNode) -> AvroNode:
        self._named[_full_name(schema, namespace)[0]] = node
        return node


def _full_name(schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
    """Return (full name, namespace for what is inside)."""
    name: str = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    inner = schema.get("namespace", namespace)
    return (f"{inner}.{name}" if inner else name), inner


def _decimal(schema: Mapping[str, Any], kind: str) -> AvroNode | None:
    if schema.get("logicalType") != "decimal":
        return None
    precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
    if precision > _MOST_DIGITS:
        raise ConfigError(
            f"Avro schema: found a decimal of {precision} digits, wanted at most {_MOST_DIGITS} in a column"
        )
    arrow = pa.decimal128(precision, scale) if precision <= _MOST_DIGITS_128 else pa.decimal256(precision, scale)
    return AvroNode(kind=kind, arrow=arrow, logical="decimal")
