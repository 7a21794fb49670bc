"""The source text (`.proto`) of a file of Protobuf messages, made of its descriptor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ottla.serdes.protobuf_files import descriptor_in

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

_REQUIRED: Final = 2
_REPEATED: Final = 3
_INDENT: Final = "  "


def source_of(file: FileDescriptor) -> str:
    """Return the messages and enums of a file as source text. Comments, options and services are not in it."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    proto = FileDescriptorProto()
    file.CopyToProto(proto)
    return "\n".join(_file(proto)) + "\n"


def source_of_registered(text: str) -> str:
    """Return the source of a file as a registry has it: source text, or its serialized descriptor in base64. Raises
    ValueError for bytes that are no descriptor, ImportError without protobuf."""
    raw = descriptor_in(text)
    if raw is None:
        return text
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        return "\n".join(_file(FileDescriptorProto.FromString(raw))) + "\n"
    except DecodeError as error:
        raise ValueError(f"found no descriptor of a Protobuf file: {error}") from error


def _file(proto: Any) -> Iterator[str]:
    yield f'syntax = "{proto.syntax if proto.syntax in ("proto2", "proto3") else "proto3"}";'
    if proto.package:
        yield f"package {proto.package};"
    for name in proto.dependency:
        yield f'import "{name}";'
    is_proto2 = proto.syntax in ("", "proto2")
    for enum in proto.enum_type:
        yield from _enum(enum, "")
    for message in proto.message_type:
        yield from _message(message, "", is_proto2)


def _message(proto: Any, indent: str, is_proto2: bool) -> Iterator[str]:
    yield f"{indent}message {proto.name} {{"
    inner = indent + _INDENT
    maps = {each.name: each for each in proto.nested_type if each.options.map_entry}
    for enum in proto.enum_type:
        yield from _enum(enum, inner)
    for nested in proto.nested_type:
        if nested.name not in maps:
            yield from _message(nested, inner, is_proto2)
    for span in proto.reserved_range:
        yield f"{inner}reserved {span.start} to {span.end - 1};"
    for name in proto.reserved_name:
        yield f'{inner}reserved "{name}";'
    choices: dict[int, list[Any]] = {}
    for field in proto.field:
        if field.HasField("oneof_index") and not field.proto3_optional:
            choices.setdefault(field.oneof_index, []).append(field)
        else:
            yield f"{inner}{_label(field, maps, is_proto2)}{_field(field, maps)}"
    for index, fields in choices.items():
        yield f"{inner}oneof {proto.oneof_decl[index].name} {{"
        for field in fields:
            yield f"{inner}{_INDENT}{_field(field, maps)}"
        yield f"{inner}}}"
    yield f"{indent}}}"


def _enum(proto: Any, indent: str) -> Iterator[str]:
    yield f"{indent}enum {proto.name} {{"
    if proto.options.allow_alias:
        yield f"{indent}{_INDENT}option allow_alias = true;"
    for value in proto.value:
        yield f"{indent}{_INDENT}{value.name} = {value.number};"
    yield f"{indent}}}"


def _label(field: Any, maps: dict[str, Any], is_proto2: bool) -> str:
    if field.label == _REPEATED:
        return "" if _entry(field, maps) is not None else "repeated "
    if field.label == _REQUIRED:
        return "required "
    return "optional " if is_proto2 or field.proto3_optional else ""


def _field(field: Any, maps: dict[str, Any]) -> str:
    entry = _entry(field, maps)
    kind = _kind(field) if entry is None else f"map<{_kind(entry.field[0])}, {_kind(entry.field[1])}>"
    return f"{kind} {field.name} = {field.number};"


def _entry(field: Any, maps: dict[str, Any]) -> Any:
    """Return the entry of a map field, None for another field."""
    return maps.get(str(field.type_name).rpartition(".")[2]) if field.label == _REPEATED else None


def _kind(field: Any) -> str:
    """Return the name of a field's type; `TYPE_INT64` is `int64`."""
    return str(field.type_name) or type(field).Type.Name(field.type).removeprefix("TYPE_").lower()
