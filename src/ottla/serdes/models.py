"""Classes that describe a value: dataclass, `msgspec.Struct`, TypedDict, NamedTuple, pydantic model.

One reading of them for every format, so that `Json(Order)` and `Avro(Order)` accept the same classes and refuse the
same values. pydantic is optional: it is imported only when a class brings it along.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import typing
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

MISSING: Final = object()
"""The default of a field without one."""

KEPT_AS_THEY_ARE: Final = (bytes, datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID)


class ModelField(NamedTuple):
    """One field of a model: its name on the wire, its type with `Annotated` kept, and its default or `MISSING`."""

    name: str
    type: Any
    default: Any


def is_model(type: Any) -> bool:
    """Return whether `type` is a class with named, typed fields."""
    return isinstance(type, builtin_type) and (
        dataclasses.is_dataclass(type)
        or issubclass(type, msgspec.Struct)
        or typing.is_typeddict(type)
        or is_named_tuple(type)
        or is_pydantic(type)
    )


builtin_type = type


def is_named_tuple(type: Any) -> bool:
    return isinstance(type, builtin_type) and issubclass(type, tuple) and hasattr(type, "_fields")


def is_pydantic(type: Any) -> bool:
    """Return whether `type` is a pydantic model or a pydantic dataclass."""
    return isinstance(type, builtin_type) and hasattr(type, "__pydantic_validator__")


def mentions_pydantic(type: Any) -> bool:
    """Return whether `type` is, or contains (`list[Order]`, `Order | None`), a pydantic class."""
    return is_pydantic(type) or any(mentions_pydantic(argument) for argument in typing.get_args(type))


def fields_of(model: type[Any]) -> list[ModelField]:
    """Return the fields of a model, in order, under the names they have in encoded data."""
    hints = typing.get_type_hints(model, include_extras=True)
    if is_pydantic(model):
        return _pydantic_fields(model, hints)
    if issubclass(model, msgspec.Struct):
        return [
            ModelField(f.encode_name, hints[f.name], _default(f.default, f.default_factory, msgspec.NODEFAULT))
            for f in msgspec.structs.fields(model)
        ]
    if dataclasses.is_dataclass(model):
        return [
            ModelField(f.name, hints[f.name], _default(f.default, f.default_factory, dataclasses.MISSING))
            for f in dataclasses.fields(model)
        ]
    if is_named_tuple(model):
        defaults = model._field_defaults
        return [ModelField(name, hints[name], defaults.get(name, MISSING)) for name in model._fields]
    return [ModelField(name, hint, MISSING) for name, hint in hints.items()]


_attributes: weakref.WeakKeyDictionary[type, dict[str, str]] = weakref.WeakKeyDictionary()


def attributes_of(kind: type[Any]) -> Mapping[str, str]:
    """Return a model's attributes by the names of their fields in encoded data; empty for a class that is not a
    model."""
    found = _attributes.get(kind)
    if found is None:
        if not is_model(kind):
            found = {}
        elif is_pydantic(kind):
            found = {i.serialization_alias or i.alias or name: name for name, i in kind.__pydantic_fields__.items()}
        elif issubclass(kind, msgspec.Struct):
            found = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
        elif dataclasses.is_dataclass(kind):
            found = {field.name: field.name for field in dataclasses.fields(kind)}
        else:
            found = {name: name for name in getattr(kind, "_fields", ())}
        _attributes[kind] = found
    return found


def to_plain(value: Any) -> Any:
    """Return a model's value as dicts, lists and scalars; dates, decimals, UUIDs and bytes stay unchanged."""
    if is_pydantic(type(value)):
        from pydantic import TypeAdapter

        value = TypeAdapter(type(value)).dump_python(value, by_alias=True, warnings="error")
    fill_defaults(value)
    return msgspec.to_builtins(value, builtin_types=KEPT_AS_THEY_ARE)


def fill_defaults(value: Any) -> None:
    """Set the fields of every dataclass in `value` that msgspec left to the class when it decoded them.

    msgspec does not set a field that was missing in the data and whose default is a plain class attribute; its encoders
    then leave the field out, so that a record which is read and sent on would lose it. Found in msgspec 0.22.
    """
    kind = type(value)
    if kind in _SCALARS:
        return
    if kind is list or kind is tuple:
        for item in value:
            fill_defaults(item)
    elif kind is dict:
        for item in value.values():
            fill_defaults(item)
    elif dataclasses.is_dataclass(kind):
        own = getattr(value, "__dict__", None)
        for name, is_scalar in _names_of(kind):
            if own is not None and name not in own:
                own[name] = getattr(value, name)
            if not is_scalar:
                fill_defaults(getattr(value, name))


_SCALARS: Final = frozenset({str, int, float, bool, bytes, builtin_type(None)})
_names: dict[Any, list[tuple[str, bool]]] = {}


def _names_of(kind: Any) -> list[tuple[str, bool]]:
    """Return a dataclass's fields, and whether each has only values without fields of their own."""
    found = _names.get(kind)
    if found is None:
        try:
            hints = typing.get_type_hints(kind)
        except (NameError, TypeError):
            hints = {}  # a name that only the type checker knows: each field is looked into
        found = _names[kind] = []
        for field in dataclasses.fields(kind):
            hint = hints.get(field.name, Any)
            found.append((field.name, all(part in _SCALARS for part in typing.get_args(hint) or (hint,))))
    return found


def from_plain(type: Any) -> Callable[[Any], Any]:
    """Return a function that makes `type` from plain values, checking every rule of the type."""
    if mentions_pydantic(type):
        from pydantic import TypeAdapter

        return TypeAdapter(type).validate_python
    convert = msgspec.convert
    return lambda plain: convert(plain, type)


def explain(error: BaseException) -> str:
    """Return an error's text, with the paths of all violations of a pydantic error."""
    if type(error).__name__ == "ValidationError" and hasattr(error, "errors"):
        details = error.errors(include_url=False, include_context=False, include_input=False)
        return "; ".join(f"{detail['msg']} - at `{_path(detail['loc'])}`" for detail in details)
    return str(error) or type(error).__name__


def type_text(type: Any) -> str:
    """Return a type as messages show it: `Order`, not `<class 'shop.Order'>`."""
    return type.__name__ if isinstance(type, builtin_type) and not typing.get_args(type) else str(type)


def union_of(branches: Iterable[Any]) -> Any:
    """Return the union of types known only at run time."""
    return typing.Union[tuple(branches)]  # noqa: UP007


def _pydantic_fields(model: type[Any], hints: dict[str, Any]) -> list[ModelField]:
    found = model.__pydantic_fields__
    return [
        ModelField(
            info.serialization_alias or info.alias or name,
            hints[name],
            MISSING if info.is_required() else info.get_default(call_default_factory=False),
        )
        for name, info in found.items()
    ]


def _default(default: Any, factory: Any, none_marker: Any) -> Any:
    if default is not none_marker:
        return default
    if factory is not none_marker:
        return factory()
    return MISSING


def _path(location: tuple[int | str, ...]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
