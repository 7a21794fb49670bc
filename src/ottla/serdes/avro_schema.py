"""Avro schemas: read from a dict, JSON text or an `.avsc` file, or derived from a Python type.

    int long · float double · bool boolean · str string · bytes bytes · X | None union with null
    datetime timestamp-millis · date date · time time-micros · UUID uuid · Annotated[Decimal, decimal(10, 2)]
    list, set, tuple[X, ...] array · dict[str, X] map · a model a record, recursion by name
    Enum: avro enum if all values are Avro names, else string or long by value (as in JSON, the value travels)

`Annotated[X, AvroType(...)]` names any other schema for a field: `Annotated[int, AvroType("int")]`.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal as decimal_module
import enum
import math
import re
import sys
import types
import typing
import uuid
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from ottla.errors import ConfigError
from ottla.foreign_json import ForeignJsonError, read_json
from ottla.serdes.models import MISSING, fields_of, is_model, is_named_tuple, is_pydantic, to_plain, type_text, union_of

Schema: TypeAlias = dict[str, Any] | list[Any] | str

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final[dict[Any, Schema]] = {
    type(None): "null",
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    datetime.datetime: {"type": "long", "logicalType": "timestamp-millis"},
    datetime.date: {"type": "int", "logicalType": "date"},
    datetime.time: {"type": "long", "logicalType": "time-micros"},
    uuid.UUID: {"type": "string", "logicalType": "uuid"},
}
_ARRAYS: Final = (list, set, frozenset, tuple, collections.abc.Sequence, collections.abc.Set)
_MAPS: Final = (dict, collections.abc.Mapping)
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class AvroType(NamedTuple):
    """The schema of one field, where the derived one is not wanted: `Annotated[int, AvroType("int")]`."""

    schema: Schema
    """An Avro schema, as in JSON: a name, a list or a dict."""


def decimal(precision: int, scale: int = 0) -> AvroType:
    """Declare a decimal of `precision` digits, `scale` of them after the point: `Annotated[Decimal, decimal(10,
    2)]`.
    """
    return AvroType({"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale})


def load_schema(source: Schema | Path) -> Schema:
    """Return the schema in a dict, a list (union), JSON text, the name of a primitive type, or an `.avsc` file."""
    if isinstance(source, dict | list):
        return source
    if isinstance(source, str):
        if source in PRIMITIVES:
            return source
        if source.lstrip()[:1] in ("{", "[", '"'):
            return _parse_json(source, "this text")
        source = Path(source)
    try:
        return _parse_json(source.read_text(encoding="utf-8"), str(source))
    except UnicodeDecodeError as error:
        raise ConfigError(f"Avro schema in {source}: not UTF-8: {error.reason} at byte {error.start}") from error
    except (OSError, ValueError) as error:  # a name with a null character is a ValueError
        problem = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"Avro schema {str(source)!r}: not JSON, not a primitive type, and as a file: {problem}"
        ) from error


def derive_schema(type: Any, *, namespace: str | None = None) -> Schema:
    """Return the Avro schema of a Python type. Raises `ConfigError` naming the field that has no Avro type."""
    return _Derivation(namespace).schema_of(type, type_text(type), is_outermost=True)


def _parse_json(text: str, place: str) -> Schema:
    try:
        schema: Schema = read_json(text)
    except ForeignJsonError as error:
        raise ConfigError(f"Avro schema in {place}: {error}") from error
    return schema


class _Derivation:
    """One walk over a type. A named type is written out where it is met first and named afterwards."""

    def __init__(self, namespace: str | None) -> None:
        self._namespace = namespace
        self._named: dict[str, Any] = {}

    def schema_of(self, type: Any, place: str, default: Any = MISSING, *, is_outermost: bool = False) -> Schema:
        origin, arguments = typing.get_origin(type), typing.get_args(type)
        if origin is typing.Annotated:
            chosen = [extra for extra in type.__metadata__ if isinstance(extra, AvroType)]
            return chosen[0].schema if chosen else self.schema_of(arguments[0], place, default)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments, place, default, is_outermost=is_outermost)
        if origin in (typing.Required, typing.NotRequired):
            return self.schema_of(arguments[0], place, default)
        if type is None or type in _SCALARS:
            return _SCALARS[type if type is not None else types.NoneType]
        if isinstance(type, typing.NewType):
            return self.schema_of(type.__supertype__, place, default)
        if origin is typing.Literal:
            return self._by_values(arguments, type, place)
        if origin in _ARRAYS:
            return {"type": "array", "items": self._items(origin, arguments, type, place)}
        if origin in _MAPS:
            if arguments[0] is not str:
                raise _no_avro_type(type, place, "the keys of an Avro map are strings")
            return {"type": "map", "values": self.schema_of(arguments[1], f"{place}[…]")}
        if is_named_tuple(type):
            raise _no_avro_type(type, place, "a NamedTuple encodes as an array; make it a dataclass")
        if is_model(type):
            return self._record(type, place)
        if isinstance(type, enum.EnumMeta):
            return self._enum(type, place)
        if type is decimal_module.Decimal:
            raise _no_avro_type(type, place, "say how many digits: Annotated[Decimal, decimal(precision, scale)]")
        raise _no_avro_type(type, place, "name one with Annotated[..., AvroType(schema)]")

    def _union(self, branches: tuple[Any, ...], place: str, default: Any, *, is_outermost: bool) -> Schema:
        models = [branch for branch in branches if is_model(branch)]
        if len(models) > 1 and not is_outermost and not all(map(is_pydantic, models)):
            raise _no_avro_type(
                union_of(branches),
                place,
                "no decoder of classes takes a field of several; make them pydantic models, or the union the value",
            )
        if default is not MISSING:
            branches = _with_first(default, branches)
        schemas = [self.schema_of(branch, place) for branch in branches]
        # Avro wants a default to be of the union's first branch.
        if "null" in schemas:
            schemas.remove("null")
            has_other_default = default is not MISSING and default is not None
            schemas.insert(len(schemas) if has_other_default else 0, "null")
        return schemas

    def _items(self, origin: Any, arguments: tuple[Any, ...], type: Any, place: str) -> Schema:
        is_fixed_tuple = origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis)
        if is_fixed_tuple:
            raise _no_avro_type(type, place, "an Avro array has one item type: tuple[X, ...]")
        return self.schema_of(arguments[0], f"{place}[…]")

    def _record(self, model: Any, place: str) -> Schema:
        name = self._name(model, place)
        if name in self._named:
            return self._reference(name, model, place)
        self._named[name] = model
        fields = []
        for field in fields_of(model):
            field_place = f"{place}.{field.name}"
            if not _NAME.fullmatch(field.name):
                raise ConfigError(f"{field_place}: {field.name!r} is not an Avro name ([A-Za-z_][A-Za-z0-9_]*)")
            schema = self.schema_of(field.type, field_place, field.default)
            entry: dict[str, Any] = {"name": field.name, "type": schema}
            if field.default is not MISSING:
                try:
                    entry["default"] = _default_as_json(field.default, schema)
                except ValueError as error:
                    raise ConfigError(f"{field_place}: found the default {field.default!r}: {error}") from error
            fields.append(entry)
        return self._with_namespace({"type": "record", "name": model.__name__, "fields": fields})

    def _enum(self, type: Any, place: str) -> Schema:
        values = [member.value for member in type]
        if not values or not all(isinstance(value, str) and _NAME.fullmatch(value) for value in values):
            return self._by_values(values, type, place)
        name = self._name(type, place)
        if name in self._named:
            return self._reference(name, type, place)
        self._named[name] = type
        return self._with_namespace({"type": "enum", "name": type.__name__, "symbols": values})

    def _by_values(self, values: typing.Sequence[Any], type: Any, place: str) -> Schema:
        for value_type, schema in ((str, "string"), (int, "long")):
            if values and all(isinstance(value, value_type) and not isinstance(value, bool) for value in values):
                return schema
        raise _no_avro_type(type, place, "its values are neither all strings nor all integers")

    def _name(self, type: Any, place: str) -> str:
        if not _NAME.fullmatch(type.__name__):
            raise ConfigError(f"{place}: {type.__name__!r} is not an Avro name ([A-Za-z_][A-Za-z0-9_]*)")
        return f"{self._namespace}.{type.__name__}" if self._namespace else str(type.__name__)

    def _reference(self, name: str, type: Any, place: str) -> Schema:
        if self._named[name] is not type:
            raise ConfigError(
                f"{place}: two different classes are named {name!r}; an Avro schema has one type per name"
            )
        return name

    def _with_namespace(self, schema: dict[str, Any]) -> Schema:
        return schema | {"namespace": self._namespace} if self._namespace else schema


def _with_first(default: Any, branches: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the branches of a union, first the one that a default is of."""
    for branch in branches:
        if type(default) is (typing.get_origin(branch) or branch):
            return (branch, *(other for other in branches if other is not branch))
    return branches


def _no_avro_type(type: Any, place: str, advice: str) -> ConfigError:
    return ConfigError(f"{place}: {type_text(type)} has no Avro type: {advice}")


def _default_as_json(default: Any, schema: Schema) -> Any:
    """Return a field's default as the schema writes it: the JSON form of the underlying Avro type."""
    if isinstance(schema, list):
        return None if default is None else _default_as_json(default, next(s for s in schema if s != "null"))
    return _json_form(to_plain(default), schema)


def _json_form(value: Any, schema: Schema) -> Any:
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError("wanted a datetime with a time zone, as of all values")
        per_second = 1_000_000 if isinstance(schema, dict) and "micros" in schema.get("logicalType", "") else 1_000
        return (value - _EPOCH) * per_second // datetime.timedelta(seconds=1)
    if isinstance(value, datetime.date):
        return (value - _EPOCH.date()).days
    if isinstance(value, datetime.time):
        since_midnight = datetime.datetime.combine(_EPOCH.date(), value.replace(tzinfo=None)) - _EPOCH.replace(
            tzinfo=None
        )
        return since_midnight // datetime.timedelta(microseconds=1)
    if isinstance(value, decimal_module.Decimal):
        facts = schema if isinstance(schema, dict) else {}
        problem = decimal_problem(value, facts.get("precision", sys.maxsize), facts.get("scale", 0))
        if problem is not None:
            raise ValueError(problem)
        unscaled = unscaled_of(value, facts.get("scale", 0))
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length() + 1  # two's complement, and one for the sign
        return unscaled.to_bytes((bits + 7) // 8, "big", signed=True).decode("latin-1")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("wanted a number: a schema is JSON, which has no others")
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, dict):
        types_by_name = {f["name"]: f["type"] for f in schema.get("fields", ())} if isinstance(schema, dict) else {}
        return {name: _json_form(child, types_by_name.get(name, "null")) for name, child in value.items()}
    if isinstance(value, list | tuple):
        items = schema.get("items", "null") if isinstance(schema, dict) else "null"
        return [_json_form(child, items) for child in value]
    return value


def decimal_problem(value: decimal_module.Decimal, precision: int, scale: int) -> str | None:
    """Return why a decimal does not fit these digits and scale; None if it does."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return f"found {value}, wanted a number"
    if exponent < -scale:
        return f"found {value:.40}, wanted at most {scale} digits behind the point"
    before = len(digits) + exponent if any(digits) else 0
    if before > precision - scale:
        shown = value if len(digits) <= 40 else f"{len(digits)} digits"
        return f"found {shown}, wanted at most {precision - scale} digits before the point (precision {precision})"
    return None


def unscaled_of(value: decimal_module.Decimal, scale: int) -> int:
    """Return the integer that a decimal is of units of its scale; exact, whatever the context of decimals is."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits))) * 10 ** (exponent + scale) if any(digits) else 0
    return -unscaled if sign else unscaled
