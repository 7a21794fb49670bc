"""Protobuf messages as columns: the Arrow type of a message class, and a message as the value of such a column.

| in the message | in the column |
|---|---|
| message; repeated; map | struct; list; map |
| enum | its name as text, or the number as text where it has no name |
| uint32, uint64 | int64; a uint64 above 2^63 - 1 does not fit and makes the row `invalid` |
| google.protobuf.Timestamp, Duration | timestamp (UTC) and duration in microseconds |
| google.protobuf wrappers (StringValue, ...) | the value, or null |
| google.protobuf.Struct, Value, ListValue | JSON text |

A field that knows whether it is set (messages, `optional`, members of a oneof) is null where it is not.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from ottla.errors import ConfigError

_TIMESTAMP, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_JSON = frozenset(f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue"))
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

# FieldDescriptor.cpp_type -> column type; the wire format's variants (sint, fixed) make no difference to a value
_SCALARS: dict[int, pa.DataType] = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),  # uint32
    4: pa.int64(),  # uint64
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),  # enum
    9: pa.string(),
}
_ENUM, _STRING, _MESSAGE = 8, 9, 10
_TYPE_BYTES = 12


def message_type(descriptor: Any, above: tuple[str, ...] = ()) -> pa.DataType:
    """Return the column type of a message. A message that contains itself has none."""
    name = descriptor.full_name
    if name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if name == _DURATION:
        return pa.duration("us")
    if name in _JSON:
        return pa.string()
    if name in _WRAPPERS:
        return _scalar_type(descriptor.fields_by_name["value"])
    if name in above:
        raise ConfigError(f"{name} contains itself ({' > '.join([*above, name])}): such values have no column type")
    path = (*above, name)
    return pa.struct([pa.field(field.name, _field_type(field, path)) for field in descriptor.fields])


def message_value(message: Any) -> Any:
    """Return pyarrow's form of a value for a column of the message's type."""
    name = message.DESCRIPTOR.full_name
    if name == _TIMESTAMP:
        return _EPOCH + _span(message)
    if name == _DURATION:
        return _span(message)
    if name in _JSON:
        from google.protobuf import json_format

        return json_format.MessageToJson(message, indent=None)
    if name in _WRAPPERS:
        return message.value
    return {field.name: _field_value(message, field) for field in message.DESCRIPTOR.fields}


def is_message(value: object) -> bool:
    """Return whether this is a Protobuf message. Does not import protobuf if it is not installed."""
    return hasattr(type(value), "DESCRIPTOR") and hasattr(value, "ListFields")


def _field_type(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entries = field.message_type.fields_by_name
        return pa.map_(_field_type(entries["key"], above), _field_type(entries["value"], above))
    single = message_type(field.message_type, above) if field.cpp_type == _MESSAGE else _scalar_type(field)
    return pa.list_(single) if _is_repeated(field) else single


def _scalar_type(field: Any) -> pa.DataType:
    return pa.binary() if field.type == _TYPE_BYTES else _SCALARS[field.cpp_type]


def _field_value(message: Any, field: Any) -> Any:
    if _is_map(field):
        value_field = field.message_type.fields_by_name["value"]
        return [(key, _single(value, value_field)) for key, value in getattr(message, field.name).items()]
    if _is_repeated(field):
        return [_single(item, field) for item in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single(getattr(message, field.name), field)


def _single(value: Any, field: Any) -> Any:
    if field.cpp_type == _MESSAGE:
        return message_value(value)
    if field.cpp_type == _ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def _is_repeated(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # protobuf 6 and later; `label` is going away there
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _is_map(field: Any) -> bool:
    is_entry = field.cpp_type == _MESSAGE and field.message_type.GetOptions().map_entry
    return bool(is_entry) and _is_repeated(field)


def _span(message: Any) -> dt.timedelta:
    return dt.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
