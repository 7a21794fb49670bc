"""Decoding row by row with an SDK serde, and the result as a column: the reference that column-wise readers answer to.

Always right: it takes any serde, applies the rules of its type, and its errors are those that a service with the same
serde would write into its dead letters. A row is an object for a moment; the columns are made field by field of all
rows, not row by row.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import typing
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter, methodcaller
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from ottla.columnar.values.protobuf_types import is_message, message_value
from ottla.records import Malformed
from ottla.serdes import Serde, SerdeContext
from ottla.serdes.models import is_pydantic, to_plain

ERROR = pa.struct([pa.field("kind", pa.string()), pa.field("type", pa.string()), pa.field("message", pa.string())])
"""Errors of rows that do not decode; null for rows that do."""

_AS_THEY_ARE = frozenset({int, float, bool, bytes})
"""Values that need no preparation, whatever their column (text does, where it stands for a time)."""

_DOES_NOT_FIT = (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError, LookupError)


def decode_rows(
    serde: Serde[Any],
    raw: Sequence[bytes | None],
    kind: pa.DataType,
    ctx: SerdeContext,
    *,
    twin: Serde[Any] | None = None,
    shape: Callable[[Any], Any] | None = None,
) -> tuple[pa.Array, pa.Array]:
    """Return (values, errors): the values as a column of `kind`, and what is wrong with each row. Never raises for bad
    bytes.

    A `twin` accepts the same rows and is quicker; rows that it refuses are decided by the serde. `shape` makes a
    column's value of the serde's, where they differ.
    """
    plain: list[Any] = (twin or serde).deserialize_many(raw, ctx)
    errors: list[dict[str, str] | None] | None = None
    if Malformed in set(map(type, plain)):
        errors = [None] * len(plain)
        for row, value in enumerate(plain):
            if isinstance(value, Malformed):
                refused = value if twin is None else serde.deserialize(raw[row], ctx)
                plain[row] = None if isinstance(refused, Malformed) else refused
                if isinstance(refused, Malformed):
                    errors[row] = {"kind": refused.kind, "type": refused.error_type, "message": refused.error}
    if shape is not None:
        plain = [None if isinstance(value, Malformed) else shape(value) for value in plain]
    try:
        column = _column(plain, kind)
    except _DOES_NOT_FIT:
        errors = errors or [None] * len(plain)
        column = _one_by_one(plain, errors, kind)
    return column, pa.nulls(len(plain), ERROR) if errors is None else pa.array(errors, ERROR)


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return all values at once. The same as `as_arrow_value` of each, which costs several times as much."""
    kinds = set(map(type, values))
    found = kinds - {NoneType}
    if found <= ({str} if pa.types.is_string(kind) else _AS_THEY_ARE):
        return pa.array(values, kind)
    if not pa.types.is_struct(kind) or not kind.num_fields or len(found) != 1:
        return pa.array([as_arrow_value(value, kind) for value in values], kind)
    (of,) = found
    fields = _fields_of(of)
    if of is not dict and fields is None:
        return pa.array([as_arrow_value(value, kind) for value in values], kind)
    has_missing = NoneType in kinds
    columns: list[pa.Array] = []
    for field in kind:
        take = methodcaller("get", field.name) if fields is None else fields[field.name].take
        own = [None if value is None else take(value) for value in values] if has_missing else list(map(take, values))
        is_ready = fields is not None and fields[field.name].is_ready_for(field.type)
        columns.append(pa.array(own, field.type) if is_ready else _column(own, field.type))
    missing = pa.array([value is None for value in values], pa.bool_()) if has_missing else None
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=missing)


class _Field(NamedTuple):
    """How a field of a class is read."""

    take: Callable[[Any], Any]
    checked_type: Any = None
    """Guarantee of the decoder about the rows; None if unknown."""

    def is_ready_for(self, kind: pa.DataType) -> bool:
        """Return whether its values need no conversion for a column of `kind`, without looking at each."""
        return self.checked_type is not None and (self.checked_type is not str or pa.types.is_string(kind))


@lru_cache(maxsize=256)
def _fields_of(of: type[Any]) -> dict[str, _Field] | None:
    """Return the fields of a class by their names in encoded data; None if they cannot be read as attributes.

    By attribute: msgspec leaves the defaults of dataclasses to the class, and its `to_builtins` then leaves them out.
    It also leaves out what a struct says to omit.
    """
    if issubclass(of, msgspec.Struct):
        is_checked = not hasattr(of, "__post_init__")
        return {
            field.encode_name: _Field(attrgetter(field.name), _plain_type(field.type) if is_checked else None)
            for field in msgspec.structs.fields(of)
        }
    if dataclasses.is_dataclass(of) and not is_pydantic(of):
        return {field.name: _Field(attrgetter(field.name)) for field in dataclasses.fields(of)}
    return None


def _plain_type(declared: Any) -> Any:
    """Return the single Arrow-compatible type of an annotation, `int` for `int | None`; None for others."""
    kinds = set(typing.get_args(declared) or (declared,)) - {NoneType}
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= {int, float, bool, str} else None


def _one_by_one(plain: list[Any], errors: list[dict[str, str] | None], kind: pa.DataType) -> pa.Array:
    """Decode one by one, to find the value that does not fit its column."""
    fitting: list[Any] = []
    for row, value in enumerate(plain):
        try:
            fitting.append(pa.scalar(as_arrow_value(value, kind), kind))
        except _DOES_NOT_FIT as error:
            errors[row] = {
                "kind": "invalid",
                "type": type(error).__name__,
                "message": f"the value does not fit the column type {kind}: {error}"[:1000],
            }
            fitting.append(None)
    return pa.array([None if value is None else value.as_py() for value in fitting], kind)


def as_arrow_value(value: Any, kind: pa.DataType) -> Any:
    """Return pyarrow's form for a column of `kind`: dicts for structs, pairs for maps, text for ids and enums."""
    if value is None or value is msgspec.UNSET:
        return None
    if is_message(value):
        return message_value(value)
    if pa.types.is_struct(kind):
        of: Any = type(value)
        readable = _fields_of(of)
        if readable is not None:
            return {field.name: as_arrow_value(readable[field.name].take(value), field.type) for field in kind}
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
