"""Classes for the records of unions: which class a record's name means, and values of unions of classes."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from ottla.serdes.models import fields_of, from_plain, is_model, is_pydantic, mentions_pydantic, type_text, union_of

OfRecord: TypeAlias = Callable[[str, Any], Any]
"""Makes the value of a union's record from its full name and its fields."""


class InvalidRecordOfUnion(ValueError):
    """Treat the bytes as invalid: a record of a union breaks a rule of its class, which is the cause."""


def named_tuple(name: str, value: Any) -> Any:
    """Return the record with its name, if no class is known."""
    return name, value


def of_records(kind: Any) -> OfRecord:
    """Return the function that makes a type's values from records of unions.

    A class of the record's name that the type is a union of, or that pydantic makes (it takes a value of a class as it
    is); else the plain record, which the type takes or refuses.
    """
    if kind is None:
        return named_tuple
    chosen = {name: each for name, each in _classes_in(kind).items() if each in _members(kind) or is_pydantic(each)}
    builders = {name: from_plain(each) for name, each in chosen.items()}

    def of_record(name: str, value: Any) -> Any:
        short = name.rpartition(".")[2]
        build = builders.get(short)
        if build is None:
            return value
        try:
            return build(value)
        except Exception as error:
            raise InvalidRecordOfUnion(f"not a valid {type_text(chosen[short])}") from error

    return of_record


def builder_of(kind: Any) -> Callable[[Any], Any]:
    """Return a function that makes a value of this type from plain values, in which records of unions already have
    their class."""
    members = _members(kind)
    classes = tuple(each for each in members if is_model(each) and not typing.is_typeddict(each))
    if mentions_pydantic(kind) or len(classes) < 2:
        return from_plain(kind)
    others = [each for each in members if each not in classes]
    build = from_plain(union_of(others)) if others else None

    def build_union(value: Any) -> Any:
        if isinstance(value, classes):
            return value
        if build is None or isinstance(value, dict):
            wanted = ", ".join(map(type_text, classes))
            raise ValueError(f"found a record that is of none of the classes, wanted one of {wanted}")
        return build(value)

    return build_union


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union type; none for another type."""
    return typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else ()


def _classes_in(kind: Any) -> dict[str, Any]:
    """Return the unambiguous classes within a type, by name."""
    found: dict[str, Any] = {}
    doubled: set[str] = set()
    for each in _reached(kind, set()):
        if found.setdefault(each.__name__, each) is not each:
            doubled.add(each.__name__)
    return {name: each for name, each in found.items() if name not in doubled}


def _reached(kind: Any, seen: set[Any]) -> Iterator[Any]:
    for argument in typing.get_args(kind):
        yield from _reached(argument, seen)
    if is_model(kind) and kind not in seen:
        seen.add(kind)
        yield kind
        for field in fields_of(kind):
            yield from _reached(field.type, seen)
