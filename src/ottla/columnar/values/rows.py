"""Decoding row by row with an SDK serde, and the result as a column: the reference that column-wise readers answer to.

Always right: it takes any serde, applies the rules of its type, and its errors are those that a service with the same
serde would write into its dead letters. A row is an object for a moment; the columns are made field by field of all
rows, not row by row.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Sequence
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any

import pyarrow as pa

from ottla.columnar.values.protobuf_types import is_message, message_value
from ottla.records import Malformed
from ottla.serdes import Serde, SerdeContext
from ottla.serdes.models import is_pydantic, to_plain

ERROR = pa.struct([pa.field("kind", pa.string()), pa.field("type", pa.string()), pa.field("message", pa.string())])
"""What is known of a row that does not decode; null for rows that do."""

_AS_THEY_ARE = frozenset({int, float, bool, bytes})
"""Values that need no preparation, whatever their column (text does, where it stands for a time)."""


def decode_rows(
    serde: Serde[Any], raw: Sequence[bytes | None], kind: pa.DataType, ctx: SerdeContext
) -> tuple[pa.Array, list[dict[str, str] | None]]:
    """The values as a column of `kind`, and for each row what is wrong with it, or None. Never raises for bad bytes."""
    values = serde.deserialize_many(raw, ctx)
    errors: list[dict[str, str] | None] = [None] * len(values)
    plain: list[Any] = [None] * len(values)
    for row, value in enumerate(values):
        if isinstance(value, Malformed):
            errors[row] = {"kind": value.kind, "type": value.error_type, "message": value.error}
        elif value is not None:
            plain[row] = value
    try:
        return _column(plain, kind), errors
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError):
        return _one_by_one(plain, errors, kind), errors


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """All values at once. The same as `as_arrow_value` of each, which costs several times as much."""
    found = set(map(type, values)) - {NoneType}
    if found <= ({str} if pa.types.is_string(kind) else _AS_THEY_ARE):
        return pa.array(values, kind)
    if not pa.types.is_struct(kind) or not kind.num_fields or len(found) != 1:
        return pa.array([as_arrow_value(value, kind) for value in values], kind)
    (of,) = found
    if of is not dict and (not dataclasses.is_dataclass(of) or is_pydantic(of)):
        return pa.array([as_arrow_value(value, kind) for value in values], kind)
    columns: list[pa.Array] = []
    for field in kind:
        take = methodcaller("get", field.name) if of is dict else attrgetter(field.name)
        columns.append(_column([None if value is None else take(value) for value in values], field.type))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=missing)


def _one_by_one(plain: list[Any], errors: list[dict[str, str] | None], kind: pa.DataType) -> pa.Array:
    """Some value does not fit its column: find out which."""
    fitting: list[Any] = []
    for row, value in enumerate(plain):
        try:
            fitting.append(pa.scalar(as_arrow_value(value, kind), kind))
        except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
            errors[row] = {
                "kind": "invalid",
                "type": type(error).__name__,
                "message": f"the value does not fit the column type {kind}: {error}"[:1000],
            }
            fitting.append(None)
    return pa.array([None if value is None else value.as_py() for value in fitting], kind)


def as_arrow_value(value: Any, kind: pa.DataType) -> Any:
    """What pyarrow takes for a column of `kind`: dicts for structs, pairs for maps, text for ids and enums."""
    if value is None:
        return None
    if is_message(value):
        return message_value(value)
    if pa.types.is_struct(kind):
        if dataclasses.is_dataclass(value) and not is_pydantic(type(value)):
            # By attribute: msgspec leaves defaults to the class, and its to_builtins then leaves them out.
            return {field.name: as_arrow_value(getattr(value, field.name), field.type) for field in kind}
        fields = value if isinstance(value, dict) else to_plain(value)
        if not isinstance(fields, dict):
            raise TypeError(f"found {type(value).__name__}, wanted named fields")
        return {field.name: as_arrow_value(fields.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [as_arrow_value(item, kind.value_type) for item in value]
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        return [(key, as_arrow_value(item, kind.item_type)) for key, item in pairs]
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dt.time) and pa.types.is_integer(kind):
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return micros // 1000 if kind == pa.int32() else micros
    if isinstance(value, dt.datetime) and pa.types.is_timestamp(kind) and value.tzinfo is None and kind.tz:
        return value.replace(tzinfo=dt.UTC)
    if isinstance(value, str) and pa.types.is_timestamp(kind):
        return as_arrow_value(dt.datetime.fromisoformat(value), kind)
    if pa.types.is_string(kind) and not isinstance(value, str):
        raise TypeError(f"found {type(value).__name__}, wanted text")
    return value
