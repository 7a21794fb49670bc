"""Unions of dataclasses in JSON, distinguished by a field that is a `Literal` in each of them.

    @dataclass
    class Created:
        id: int
        type: Literal["order.created"] = "order.created"

msgspec reads a union with one dataclass only. Here the field's value says which class the object is of; the object is
then decoded as that class, with all its rules.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

_UNION: Final = (typing.Union, types.UnionType)


@dataclasses.dataclass(frozen=True, slots=True)
class JsonUnion:
    """A union whose members a field distinguishes."""

    field: str
    members: Mapping[str | int, type]
    """By the values of the field."""
    has_none: bool

    def decoder(self, dec_hook: Callable[[type[Any], Any], Any] | None) -> Callable[[bytes], Any]:
        """Return a function that decodes a member, and raises `msgspec.ValidationError` for a value that matches
        none."""
        tagged = msgspec.defstruct("Tagged", [("tag", str | int | None, None)], rename={"tag": self.field})
        read_tag: Callable[[bytes], Any] = msgspec.json.Decoder(tagged).decode
        decoders: dict[Any, Callable[[bytes], Any]] = {
            tag: msgspec.json.Decoder(kind, dec_hook=dec_hook).decode for tag, kind in self.members.items()
        }
        wanted = ", ".join(map(repr, self.members))
        has_none = self.has_none
        place = f"$.{self.field}"

        def decode(data: bytes) -> Any:
            if has_none and data.strip() == b"null":
                return None
            tag = read_tag(data).tag
            found = decoders.get(tag)
            if found is None:
                raise msgspec.ValidationError(f"Found {tag!r:.100}, wanted one of {wanted} - at `{place}`")
            return found(data)

        return decode

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema."""
        kinds = list(dict.fromkeys(self.members.values()))
        schemas, defs = msgspec.json.schema_components(kinds)
        null: list[dict[str, Any]] = [{"type": "null"}] if self.has_none else []
        return {"anyOf": [*schemas, *null], "$defs": defs}


def json_union(type: Any) -> JsonUnion | None:
    """Return the union of several dataclasses that a field distinguishes; None for any other type."""
    if typing.get_origin(type) not in _UNION:
        return None
    members = [member for member in typing.get_args(type) if member is not types.NoneType]
    if len(members) < 2 or not all(dataclasses.is_dataclass(member) for member in members):
        return None
    tags = [_literals(member) for member in members]
    for name in tags[0]:
        if not all(name in of_member for of_member in tags):
            continue
        values = [(value, member) for of_member, member in zip(tags, members, strict=True) for value in of_member[name]]
        if len({value for value, _ in values}) == len(values):
            return JsonUnion(name, dict(values), len(members) < len(typing.get_args(type)))
    return None


def _literals(kind: Any) -> dict[str, tuple[str | int, ...]]:
    """Return the fields of a dataclass that are literals, with their values."""
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    found = {name: typing.get_args(hint) for name, hint in hints.items() if typing.get_origin(hint) is Literal}
    return {
        name: values
        for name, values in found.items()
        if name in names and all(isinstance(value, str | int) and not isinstance(value, bool) for value in values)
    }
