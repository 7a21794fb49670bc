"""Which JSON can be read a column at a time: objects of numbers, text and booleans, each of which may be null."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import inspect

from ottla.columnar.values.reference_serdes import is_attribute
from ottla.serdes.models import mentions_pydantic

Kind: TypeAlias = Literal["int", "float", "str", "bool"]

_KINDS: Final[tuple[tuple[inspect.Type, Kind], ...]] = (
    (inspect.IntType(), "int"),
    (inspect.FloatType(), "float"),
    (inspect.StrType(), "str"),
    (inspect.BoolType(), "bool"),
)
"""Types without constraints: one with a constraint equals none of them."""

_ARROW: Final[dict[Kind, pa.DataType]] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
}
_PYTHON: Final[dict[Kind, type[Any]]] = {"int": int, "float": float, "str": str, "bool": bool}
_EXACT_IN_FLOATS: Final = 2**53


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonField:
    """A field of an object, by its name in JSON."""

    name: bytes
    kind: Kind
    arrow: pa.DataType
    is_optional: bool
    """Whether it may be null."""
    has_default: bool
    """Whether it is known what it is where an object does not have it; if not, the row decoder has to say."""
    default: Any
    """The default: None, or a value that the column takes."""

    def defaults(self, count: int) -> pa.Array:
        """Return a column of nulls. It is created lazily: Arrow loads pandas for the first value of a process, which
        would double the time to declare a handler."""
        return pa.repeat(pa.scalar(self.default, self.arrow), count)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JsonRecord:
    """An object, and the column that its values make."""

    arrow: pa.StructType
    fields: tuple[JsonField, ...]
    takes_unknown_fields: bool

    def field(self, name: bytes) -> JsonField | None:
        return next((field for field in self.fields if field.name == name), None)


def json_record(kind: Any, arrow: pa.DataType) -> JsonRecord | None:
    """Return how to read JSON of this type into a column of `arrow`; None for other types.

    Dataclasses are not among them: their twins are, and those that have none run code of their own.
    """
    if not pa.types.is_struct(arrow) or mentions_pydantic(kind):
        return None
    found = _without_null(inspect.type_info(kind))[0]
    if isinstance(found, inspect.StructType):
        if found.tag_field is not None or found.array_like or _runs_code(found.cls):
            return None
        takes_unknown_fields = not found.forbid_unknown_fields
    elif isinstance(found, inspect.TypedDictType):
        takes_unknown_fields = True
    else:
        return None
    given = {field.encode_name: field for field in found.fields}
    if given.keys() != {field.name for field in arrow}:
        return None
    is_dict = isinstance(found, inspect.TypedDictType)
    fields = [_field(given[field.name], field.type, is_dict=is_dict) for field in arrow]
    if not fields or None in fields:
        return None
    return JsonRecord(
        arrow=arrow,
        fields=tuple(field for field in fields if field is not None),
        takes_unknown_fields=takes_unknown_fields,
    )


def _field(field: inspect.Field, arrow: pa.DataType, *, is_dict: bool) -> JsonField | None:
    found, is_optional = _without_null(field.type)
    kind = next((kind for plain, kind in _KINDS if found == plain), None)
    if kind is None or arrow != _ARROW[kind]:
        return None
    default = None if is_dict else field.default
    return JsonField(
        name=field.encode_name.encode(),
        kind=kind,
        arrow=arrow,
        is_optional=is_optional,
        has_default=not field.required and _fits(default, kind),
        default=default,
    )


def _fits(default: Any, kind: Kind) -> bool:
    """Return whether a column takes the field: it is of the declared type, and not created for each object."""
    if default is None:
        return True
    if kind == "float" and type(default) is int:
        return abs(default) <= _EXACT_IN_FLOATS
    if type(default) is not _PYTHON[kind]:
        return False
    if kind == "int":
        return default in range(-(2**63), 2**63)
    return kind != "str" or not any("\ud800" <= character <= "\udfff" for character in default)


def _without_null(found: inspect.Type) -> tuple[inspect.Type, bool]:
    """`T` of `T | None`, and whether it was one."""
    if isinstance(found, inspect.Metadata):
        return _without_null(found.type)
    if isinstance(found, inspect.UnionType) and found.includes_none:
        rest = [member for member in found.types if not isinstance(member, inspect.NoneType)]
        return (rest[0], True) if len(rest) == 1 else (found, True)
    return found, False


def _runs_code(kind: Any) -> bool:
    """Return whether creating or reading a struct runs code beyond setting its fields."""
    fields = msgspec.structs.fields(kind)
    return (
        hasattr(kind, "__post_init__")
        or kind.__getattribute__ is not object.__getattribute__
        or not all(is_attribute(kind, field.name) for field in fields)
    )
