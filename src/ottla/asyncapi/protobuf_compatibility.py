"""Compatibility of two Protobuf files, compared by field number.

What a schema registry refuses is a problem here too, also where the bytes can be parsed: members of a oneof that the
reader lacks, and fields that exclude each other with the reader only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ottla.errors import InputError
from ottla.serdes.protobuf_parser import SCALARS, ProtobufField, ProtobufFile, parse_protobuf

_ENUM: Final = "enum"
_SAME_BYTES: Final = (
    {"int32", "uint32", "int64", "uint64", "bool", _ENUM},
    {"sint32", "sint64"},
    {"string", "bytes"},
    {"fixed32", "sfixed32"},
    {"fixed64", "sfixed64"},
)
"""Types of which one is read as the other."""


def reading_problems(*, reader: str, writer: str) -> list[str]:
    """Return why a reader with one source text cannot read what a writer with the other wrote. Raises `InputError` for
    text that is no Protobuf file."""
    try:
        wanted, written = parse_protobuf(reader), parse_protobuf(writer)
    except ValueError as error:
        raise InputError(f"found no Protobuf file: {error}") from None
    found: list[str] = []
    for message, fields in wanted.messages.items():
        if message in written.messages:  # a message that is new is read where a field of it is
            found += _fields(message, fields, written.messages[message], wanted, written)
            found += _oneofs(message, fields, written.messages[message])
    return found + [
        f"{message}: the reader has no such message" for message in written.messages if message not in wanted.messages
    ]


def _fields(
    message: str,
    fields: Mapping[int, ProtobufField],
    own: Mapping[int, ProtobufField],
    wanted: ProtobufFile,
    written: ProtobufFile,
) -> Iterator[str]:
    for number, field in sorted(fields.items()):
        place = f"{message}.{field.name} = {number}"
        if number not in own:
            if field.label == "required":
                yield f"{place}: reader requires it, writer has no such field"
            continue
        other = own[number]
        if not _is_same(_resolved(field.kind, message, wanted), _resolved(other.kind, message, written)):
            yield f"{place}: reader wants {field.kind}, writer has {other.kind}"
        elif (field.label == "repeated") != (other.label == "repeated"):
            yield f"{place}: repeated in one of them only"
    for number, field in sorted(own.items()):
        if number not in fields and (field.label == "required" or field.oneof is not None):
            kind = "required by the writer" if field.oneof is None else f"a member of oneof {field.oneof}"
            yield f"{message}.{field.name} = {number}: the reader lacks it, {kind}"


def _oneofs(message: str, fields: Mapping[int, ProtobufField], own: Mapping[int, ProtobufField]) -> Iterator[str]:
    """Yield the reader's oneofs that hold two fields which the writer can set together."""
    members: dict[str, list[int]] = {}
    for number, field in sorted(fields.items()):
        if field.oneof is not None and number in own:
            members.setdefault(field.oneof, []).append(number)
    for oneof, numbers in members.items():
        before = [own[number].oneof for number in numbers]
        if len(numbers) > 1 and (None in before or len(set(before)) > 1):
            names = ", ".join(fields[number].name for number in numbers)
            yield f"{message}.{oneof}: the writer can set more than one of {names}"


def _is_same(wanted: str, written: str) -> bool:
    return wanted == written or any({wanted, written} <= same for same in _SAME_BYTES)


def _resolved(kind: str, message: str, file: ProtobufFile) -> str:
    """Return a type that can be compared over files: a scalar, `enum`, or the name of a message without its package."""
    if kind.startswith("map<"):
        key, value = kind.removeprefix("map<").removesuffix(">").split(", ")
        return f"map<{_resolved(key, message, file)}, {_resolved(value, message, file)}>"
    if kind in SCALARS:
        return kind
    for name in _candidates(kind, message, file.package):
        if name in file.enums:
            return _ENUM
        if name in file.messages:
            return name
    return kind.removeprefix(".")  # of another file


def _candidates(kind: str, message: str, package: str) -> Iterator[str]:
    """Yield the names, without the package, that a type can have in its file: the innermost scope first."""
    if not kind.startswith("."):
        scope = message.split(".")
        for deep in range(len(scope), -1, -1):
            yield ".".join([*scope[:deep], kind])
    name = kind.removeprefix(".")
    if package and name.startswith(f"{package}."):
        yield name.removeprefix(f"{package}.")
    elif kind.startswith("."):
        yield name
