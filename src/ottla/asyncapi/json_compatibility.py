"""Whether data that one JSON Schema allows is allowed by another: the writer's schema and the reader's.

Draft 7 as Ottla writes it, and most of what others write. A keyword that is not understood and differs counts as a
problem where it narrows (`pattern`, `format`), and is passed over elsewhere.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeGuard

from ottla.asyncapi.json_documents import list_at, mapping_at, merged, reference_of
from ottla.errors import InputError
from ottla.showing import shown

_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT: Final = ("pattern", "format", "multipleOf", "contentEncoding", "uniqueItems")
_OF_NUMBERS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "minimum": operator.ge,
    "exclusiveMinimum": operator.gt,
    "maximum": operator.le,
    "exclusiveMaximum": operator.lt,
}
_SIZED: Final[Mapping[str, Any]] = {"Length": str, "Items": list, "Properties": dict}
_MOST_DEPTH: Final = 100
_MOST_COMPARED: Final = 100_000
"""Pairs of schemas. Unions of unions that are foreign are compared each with each."""


def reading_problems(*, reader: Any, writer: Any, reader_document: Any, writer_document: Any) -> list[str]:
    """Return why data of the writer's schema can be refused by the reader's. The documents are those that `$ref` is
    looked up in. Raises `InputError` for a reference that leads nowhere."""
    return _Comparison(reader_document, writer_document, are_open=False).compare(reader, writer, "")


def registry_problems(*, reader: Any, writer: Any) -> list[str]:
    """Return why a schema registry does not let a reader with one document follow a writer with the other.

    Differs from `reading_problems` as Confluent's registry does: a field that the writer does not declare can have any
    value unless `additionalProperties` closes the object, and a required field with a default may be missing.
    """
    return _Comparison(reader, writer, are_open=True).compare(reader, writer, "")


class _Comparison:
    def __init__(self, reader_document: Any, writer_document: Any, *, are_open: bool) -> None:
        self._reader_document = reader_document
        self._writer_document = writer_document
        self._are_open = are_open
        self._known: dict[tuple[str, str], list[str]] = {}
        self._depth = 0
        self._compared = 0

    def compare(self, reader: Any, writer: Any, place: str) -> list[str]:
        names = (reference_of(reader), reference_of(writer))
        if names[0] is None or names[1] is None:
            return self._compare(reader, writer, place)
        pair = (names[0], names[1])
        if pair not in self._known:
            self._known[pair] = []  # a recursive type is as readable as the rest of it
            self._known[pair] = self._compare(reader, writer, place)
        return self._known[pair]

    def _compare(self, reader: Any, writer: Any, place: str) -> list[str]:
        self._compared += 1
        if self._depth >= _MOST_DEPTH or self._compared > _MOST_COMPARED:
            raise InputError(f"{_at(place[:200])}found schemas nested too deeply to be compared")
        self._depth += 1
        try:
            return self._compared_parts(reader, writer, place)
        finally:
            self._depth -= 1

    def _compared_parts(self, reader: Any, writer: Any, place: str) -> list[str]:
        reader = merged(reader, self._reader_document)
        writer = merged(writer, self._writer_document)
        if writer is False or reader is True or reader == {}:
            return []
        if reader is False:
            return [f"{_at(place)}the reader refuses every value"]
        writer = {} if writer is True else writer
        branches = list(_branches(writer))
        if branches:
            return [problem for branch in branches for problem in self.compare(reader, branch, place)]
        choices = list(_branches(reader))
        if choices:
            found = [self.compare(choice, writer, place) for choice in choices]
            if any(not problems for problems in found):
                return []
            fitting = [
                problems
                for choice, problems in zip(choices, found, strict=True)
                if _types(merged(choice, self._reader_document)) & _types(writer)
            ]
            return fitting[0] if len(fitting) == 1 else [f"{_at(place)}{_kind(writer)} is none of the reader's types"]
        return [*self._values(reader, writer, place), *self._parts(reader, writer, place)]

    def _values(self, reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
        allowed, written = _enumerated(reader), _enumerated(writer)
        wanted = _types(reader)
        there = _types(writer) if written is None else {_type_of(each) for each in written}
        if wanted and not (there and all(_is_one_of(each, wanted) for each in there)):
            yield f"{_at(place)}reader wants {_kind(reader)}, writer has {' or '.join(sorted(there)) or 'any value'}"
            return
        if allowed is not None:
            refused = None if written is None else [each for each in written if each not in allowed]
            if refused is None:
                yield f"{_at(place)}reader wants one of {len(allowed)} values, writer has any"
            elif refused:
                yield f"{_at(place)}reader lacks the values {', '.join(shown(each) for each in refused)}"
        for names, sign in ((_LOWER, 1), (_UPPER, -1)):
            for name in names:
                bound, own = reader.get(name), writer.get(name)
                if written is not None:
                    outside = [each for each in written if _is_number(bound) and _is_outside(each, name, bound)]
                    if outside:
                        values = ", ".join(shown(each) for each in outside)
                        yield f"{_at(place)}reader wants {name} {bound}, writer has {values}"
                    continue
                if own is None and name.startswith("min") and name != "minimum":
                    own = 0  # lengths
                if not _is_number(bound):
                    continue
                if not _is_number(own) or (bound - own) * sign > 0:
                    yield f"{_at(place)}reader wants {name} {bound}, writer has {'none' if own is None else own}"
        for name in _EXACT:
            if name in reader and reader[name] != writer.get(name):
                yield f"{_at(place)}reader wants {name} {shown(reader[name])}, writer has {shown(writer.get(name))}"

    def _parts(self, reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
        there = _types(writer)
        if not there or "object" in there:
            yield from self._fields(reader, writer, place)
        if not there or "array" in there:
            yield from self._items(reader, writer, place)

    def _fields(self, reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
        always = set(list_at(writer, "required"))
        known, own = mapping_at(reader, "properties"), mapping_at(writer, "properties")
        for name in list_at(reader, "required"):
            may_lack = self._are_open and isinstance(known.get(name), Mapping) and "default" in known[name]
            if name not in always and not may_lack:
                yield f"{_at(f'{place}/{name}')}reader requires it, writer can leave it out"
        others, more = reader.get("additionalProperties", True), writer.get("additionalProperties", True)
        for name, schema in own.items():
            if name in known:
                yield from self.compare(known[name], schema, f"{place}/{name}")
            elif others is False:
                yield f"{_at(f'{place}/{name}')}reader refuses a field that it does not know"
            else:
                yield from self.compare(others, schema, f"{place}/{name}")
        for name in known if self._are_open else ():
            if name not in own and self.compare(known[name], more, f"{place}/{name}"):
                yield f"{_at(f'{place}/{name}')}writer can have any value there: its object is open and lacks the field"
        if others is False and more is not False:
            yield f"{_at(place)}reader refuses fields that it does not know, writer can have them"
        elif isinstance(others, Mapping) and (isinstance(more, Mapping) or not own):
            yield from self.compare(others, more, f"{place}/*")

    def _items(self, reader: Mapping[str, Any], writer: Mapping[str, Any], place: str) -> Iterator[str]:
        wanted, there = reader.get("items", True), writer.get("items", True)
        if isinstance(wanted, list) and isinstance(there, list):
            for number, (one, other) in enumerate(zip(wanted, there, strict=False)):
                yield from self.compare(one, other, f"{place}/{number}")
        elif isinstance(wanted, list) or isinstance(there, list):
            for number, each in enumerate(wanted if isinstance(wanted, list) else there):
                pair = (each, there) if isinstance(wanted, list) else (wanted, each)
                yield from self.compare(*pair, f"{place}/{number}")
        else:
            yield from self.compare(wanted, there, f"{place}/*")


def _branches(schema: Mapping[str, Any]) -> Iterator[Any]:
    for keyword in ("anyOf", "oneOf"):
        rest = {name: value for name, value in schema.items() if name not in ("anyOf", "oneOf", "discriminator")}
        for branch in list_at(schema, keyword):
            is_alone = not set(rest) - {"description", "title", "default", "examples"}
            yield branch if is_alone else {**rest, "allOf": [branch]}
    types = schema.get("type")
    if isinstance(types, list) and len(types) > 1 and not ("anyOf" in schema or "oneOf" in schema):
        for each in types:
            yield {**schema, "type": each}


def _types(schema: Any) -> set[str]:
    """Return the names of the types; empty for any."""
    types = schema.get("type") if isinstance(schema, Mapping) else None
    return {types} if isinstance(types, str) else set(map(str, types)) if isinstance(types, list) else set()


def _is_one_of(kind: str, wanted: set[str]) -> bool:
    return kind in wanted or (kind == "integer" and "number" in wanted)


def _kind(schema: Mapping[str, Any]) -> str:
    return " or ".join(sorted(_types(schema))) or "any value"


def _enumerated(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    return list_at(schema, "enum") if "enum" in schema else None


def _type_of(value: Any) -> str:
    """Return the narrowest JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _is_outside(value: Any, name: str, bound: float) -> bool:
    """Return whether a bound by this keyword refuses a value. It holds for values of its own type alone."""
    if name in _OF_NUMBERS:
        return _is_number(value) and not _OF_NUMBERS[name](value, bound)
    if not isinstance(value, _SIZED[name[3:]]):
        return False
    return len(value) < bound if name.startswith("min") else len(value) > bound


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _at(place: str) -> str:
    return f"{place or '/'}: "
