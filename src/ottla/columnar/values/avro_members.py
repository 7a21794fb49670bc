"""Converts values of unions of several types to their columns, in which exactly one member is set.

The serde returns the plain value. Its member follows from its class, from the name in front of a record, or from its
type.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.columnar.values.avro_types import AvroNode
from ottla.serdes.models import attributes_of, is_model

Shape: TypeAlias = Callable[[Any], Any]

_OF_LOGICAL: Final[dict[str, type]] = {
    "date": dt.date,
    "time-millis": dt.time,
    "time-micros": dt.time,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
}
_OF_KIND: Final[dict[str, type]] = {
    "boolean": bool,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


def shape_of(node: AvroNode) -> Shape | None:
    """Return the function that turns the serde's value into the column's value; None if they are the same."""
    if node.kind == "union":
        return _of_union(node)
    shapes = [shape_of(child) for child in node.children]
    if not any(shapes):
        return None
    if node.kind == "record":
        fields = list(zip(node.names, shapes, strict=True))
        return lambda value: value if value is None else {name: _field(value, name, shape) for name, shape in fields}
    (shape,) = shapes
    assert shape is not None
    of_item = shape
    if node.kind == "map":
        return lambda value: value if value is None else {key: of_item(item) for key, item in value.items()}
    return lambda value: value if value is None else [of_item(item) for item in value]


def _field(value: Any, name: str, shape: Shape | None) -> Any:
    is_plain = isinstance(value, dict)
    found = value[name] if is_plain else getattr(value, attributes_of(type(value)).get(name, name))
    return found if shape is None else shape(found)


def _of_union(node: AvroNode) -> Shape:
    members = [(f"member{number}", child, shape_of(child)) for number, child in enumerate(node.children)]

    def shape(value: Any) -> Any:
        if value is None:
            return None
        name = ""
        if type(value) is tuple:
            name, value = value
        for member, child, of_child in members:
            if _is_of(value, name, child):
                return {member: value if of_child is None else of_child(value)}
        raise TypeError(f"found {type(value).__name__}, wanted a value of the union")

    return shape


def _is_of(value: Any, name: str, node: AvroNode) -> bool:
    if node.kind == "record":
        if name:
            return name == node.full_name
        if isinstance(value, dict):
            return value.keys() == set(node.names)
        short = node.full_name.rpartition(".")[2]
        return is_model(type(value)) and any(each.__name__ == short for each in type(value).__mro__)
    if name or isinstance(value, bool) != (node.kind == "boolean"):
        return False
    if node.logical in ("timestamp-millis", "timestamp-micros"):
        return isinstance(value, dt.datetime) and value.tzinfo is not None
    if node.logical in ("local-timestamp-millis", "local-timestamp-micros"):
        return isinstance(value, dt.datetime) and value.tzinfo is None
    if node.logical in _OF_LOGICAL:
        return type(value) is _OF_LOGICAL[node.logical]
    if node.kind == "int":
        return type(value) is int and -(2**31) <= value < 2**31
    if node.kind == "enum":
        return isinstance(value, str) and value in node.names
    if node.kind == "fixed":
        return isinstance(value, bytes) and len(value) == node.size
    return isinstance(value, _OF_KIND[node.kind])
