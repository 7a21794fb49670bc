"""The objects that decoding yields: one slotted class per struct and version, built when first needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ottla_wire.protocol.schema import Struct


class Message:
    """A decoded struct. Its fields are attributes named as in Kafka's definitions, in snake_case.

    A field that the decoded version does not carry reads as its schema default (an empty tuple for arrays and
    None for structs) through a class attribute, so it costs nothing per object.
    """

    __slots__ = ()
    STRUCT: Struct
    FIELDS: tuple[str, ...]  # those that the version carries, in wire order

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that the version carries, nested messages included: a valid body to encode again."""
        return {name: _plain(getattr(self, name)) for name in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        same_shape = self.STRUCT is other.STRUCT and self.FIELDS == other.FIELDS
        return same_shape and all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # its fields can be assigned

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_short(getattr(self, name))}" for name in self.FIELDS)
        return f"{self.STRUCT.name}({fields})"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


@cache
def message_class(struct: Struct, version: int) -> type[Message]:
    fields = struct.fields_of(version)
    present = tuple(member.name for member in fields)
    namespace: dict[str, Any] = {"__slots__": present, "STRUCT": struct, "FIELDS": present}
    for member in struct.fields:
        if member.name not in present:
            immutable = () if member.is_array else None if member.struct is not None else member.default
            namespace.setdefault(member.name, immutable)
    return type(struct.name, (Message,), namespace)


def _plain(value: Any) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _short(value: Any) -> str:
    """Return a value for a log line, with records and other long bytes cut off."""
    if isinstance(value, memoryview):
        return f"<{value.nbytes} bytes>"
    if isinstance(value, bytes) and len(value) > 64:
        return f"<{len(value)} bytes>"
    return repr(value)
