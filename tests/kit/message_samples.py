"""Bodies made from a schema: for golden bytes, round trips and fuzzing.

`fixed_body` is the same for ever, so that bytes made from it once by another implementation can be kept in a file.
`random_body` draws from the generator that it is given.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ottla_wire.protocol.schema import Field, MessageSchema, Struct

_INTEGER_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS = {"uint16": 16, "uint32": 32}


def fixed_body(schema: MessageSchema, version: int, *, nulls: bool = False) -> dict[str, Any]:
    """Return every field of the version with a small value of its own; with `nulls`, null or empty wherever that may
    be."""
    return _FixedBody(version, schema.is_flexible(version), nulls).struct(schema.struct)


def random_body(schema: MessageSchema, version: int, random: Random) -> dict[str, Any]:
    """Return any valid body: edge values, nulls, empty arrays and omitted fields included."""
    return _random_struct(schema.struct, version, random, depth=0)


class _FixedBody:
    def __init__(self, version: int, flexible: bool, nulls: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._nulls = nulls
        self._count = 0

    def struct(self, struct: Struct) -> dict[str, Any]:
        fields = struct.fields_of(self._version)
        # Tagged fields last, as on the wire, so that values count up in the order in which they are written.
        fields.sort(key=lambda member: member.is_tagged(self._version, self._flexible))
        return {member.name: self._value(member) for member in fields}

    def _value(self, member: Field) -> Any:
        if self._nulls and self._version in member.nullable:
            return None
        if member.is_array:
            return [] if self._nulls else [self._item(member), self._item(member)]
        return self._item(member)

    def _item(self, member: Field) -> Any:
        if member.struct is not None:
            return self.struct(member.struct)
        self._count += 1
        number = self._count % 100 + 1
        if member.type == "string":
            return f"s{number}"
        if member.type in ("bytes", "records"):
            return bytes([number] * 3)
        if member.type == "uuid":
            return bytes([number] * 16)
        if member.type == "bool":
            return number % 2 == 1
        if member.type == "float64":
            return number + 0.5
        return number


def _random_struct(struct: Struct, version: int, random: Random, depth: int) -> dict[str, Any]:
    body = {}
    for member in struct.fields_of(version):
        if random.random() < 0.9:  # an omitted field takes its default
            body[member.name] = _random_value(member, version, random, depth)
    return body


def _random_value(member: Field, version: int, random: Random, depth: int) -> Any:
    if version in member.nullable and random.random() < 0.25:
        return None
    if member.is_array:
        longest = 3 if depth < 3 else 1
        return [_random_item(member, version, random, depth) for _ in range(random.randint(0, longest))]
    return _random_item(member, version, random, depth)


def _random_item(member: Field, version: int, random: Random, depth: int) -> Any:
    kind = member.type
    if member.struct is not None:
        return _random_struct(member.struct, version, random, depth + 1)
    if kind == "string":
        return "".join(random.choice("abz09-_.ä€😀") for _ in range(_random_length(random)))
    if kind in ("bytes", "records"):
        return random.randbytes(_random_length(random))
    if kind == "uuid":
        return random.randbytes(16)
    if kind == "bool":
        return random.random() < 0.5
    if kind == "float64":
        return random.choice((0.0, -1.5, 1e300, random.random()))
    bits = _INTEGER_BITS.get(kind)
    if bits is not None:
        least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    else:
        least, most = 0, (1 << _UNSIGNED_BITS[kind]) - 1
    return random.choice((0, least, most, random.randint(least, most)))


def _random_length(random: Random) -> int:
    """Return a length, mostly short; now and then around the lengths where a varint grows by a byte."""
    return random.choice((0, 1, 3, 8, 126, 127, 128)) if random.random() < 0.2 else random.randint(0, 5)
