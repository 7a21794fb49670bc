"""Values of any registered schema, for tools without classes.

    values = RegistryValues(SchemaRegistry(url))
    values.decode(data)        # ("AVRO", {"id": 7})

The schema is the writer's, found by the id in front of the bytes. Avro and JSON are plain values, Protobuf is the
message as JSON with the field names of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ottla.errors import ConfigError
from ottla.foreign_json import read_json
from ottla.serdes.avro import references_of, written_schema
from ottla.serdes.avro_branches import writing_steps
from ottla.serdes.avro_check import Checks
from ottla.serdes.avro_codec import Parsed, parse, reader, writer
from ottla.serdes.avro_schema import Schema
from ottla.serdes.lookups import Lookups
from ottla.serdes.models import explain
from ottla.serdes.protobuf_files import descriptor_in
from ottla.serdes.registered_schema import RegisteredSchema, SchemaReference, SchemaType
from ottla.serdes.registry import SchemaRegistry, UnknownSchema, UnusableSchema, quoted, referenced
from ottla.serdes.wire_format import HEADER_BYTES, header, message_indexes, message_path, schema_id_of


class RegistryValues:
    """Decodes by schema id. The decoder of each schema is made once."""

    __slots__ = ("_readers", "registry")

    def __init__(self, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._readers: Lookups[int, tuple[SchemaType, Callable[[bytes], Any]]] = Lookups(
            registry.clock, refusals=(UnknownSchema, UnusableSchema)
        )

    def decode(self, data: bytes) -> tuple[SchemaType, Any]:
        """Return the schema's type and the value.

        Raises `NotFramed` for bytes without a schema id, `UnknownSchema`, `RegistryUnavailable` for an outage, and what
        a decoder raises for bytes that are not of the schema.
        """
        schema_id = schema_id_of(data)
        found = self._readers.found.get(schema_id)
        if found is None:
            found = self._readers.get(schema_id, lambda: self._reader(self.registry.schema(schema_id)))
        return found[0], found[1](data)

    def encoder(self, schema: RegisteredSchema, message: str | None = None) -> Callable[[Any], bytes]:
        """Return a function from a plain value to bytes with this schema's id. `message` is the full name of a message
        in a Protobuf file; None selects the first. Raises ConfigError if there is none."""
        front = header(schema.id)
        if schema.type == "AVRO":
            encode = avro_encoder(read_json(schema.text), using=references_of(self.registry, schema))
            return lambda value: encode(value, front)
        if schema.type == "PROTOBUF":
            file = self.file_of(schema)
            path = _path_of(file, message)
            write = message_writer(message_at(file, path))
            front += message_path(path)
            return lambda value: front + write(value)
        as_json = msgspec.json.Encoder().encode
        return lambda value: front + as_json(value)

    def _reader(self, schema: RegisteredSchema) -> tuple[SchemaType, Callable[[bytes], Any]]:
        if schema.type == "AVRO":
            return "AVRO", plain_reader(written_schema(self.registry, schema), start=HEADER_BYTES)
        if schema.type == "PROTOBUF":
            try:
                return "PROTOBUF", self._protobuf(schema)
            except ValueError as error:
                raise UnusableSchema(f"schema {schema.id}: {error}") from error
        decode = msgspec.json.Decoder().decode
        return "JSON", lambda data: decode(data[HEADER_BYTES:])

    def file_of(self, schema: RegisteredSchema) -> Any:
        """Return the descriptor of the file that a Protobuf schema is. Raises `ValueError` for one that cannot be
        read."""
        pool = new_pool()
        for imported, used in referenced(self.registry, schema, name_of=_file_name):
            path = f"/subjects/{quoted(imported.subject)}/versions/{imported.version}?deleted=true&format=serialized"
            add_file(pool, imported.name, self._descriptor(used.text, path))
        descriptor = self._descriptor(schema.text, f"/schemas/ids/{schema.id}?format=serialized")
        return add_file(pool, f"schema-{schema.id}.proto", descriptor)

    def _protobuf(self, schema: RegisteredSchema) -> Callable[[bytes], Any]:
        file = self.file_of(schema)
        readers: dict[tuple[int, ...], Callable[[bytes], Any]] = {}

        def read(data: bytes) -> Any:
            path, start = message_indexes(data, HEADER_BYTES)
            found = readers.get(tuple(path))
            if found is None:  # a schema has few messages, and bytes that name another one end here
                found = readers[tuple(path)] = message_reader(message_at(file, path))
            return found(data[start:])

        return read

    def _descriptor(self, text: str, path: str) -> bytes:
        """Return a file's descriptor: as it was registered, or as the registry makes it of the source."""
        found = descriptor_in(text)
        if found is None:
            found = descriptor_in(self.registry.text_of(path))
        if found is None:
            raise ValueError("the registry has the schema as source only, wanted ?format=serialized to be served")
        return found


def _file_name(imported: SchemaReference) -> str | None:
    """Return the name of an imported file; None for Google's own, which the pool has."""
    return None if imported.name.startswith("google/protobuf/") else imported.name


def avro_encoder(schema: Schema, *, using: Sequence[Schema] = ()) -> Callable[[Any, bytes], bytes]:
    """Return a function that encodes a plain value, as JSON has it, behind a prefix.

    Dates are text and bytes are base64. A record of a union with several records is `{"full.Name": {...}}` where its
    fields do not show which one it is. The function raises ValueError for a value that does not fit.
    """
    parsed = parse(schema, using=using)
    checks = Checks(parsed.bodies)
    kind, write = checks.type_of(parsed.schema), writer(parsed)
    steps = writing_steps(parsed.schema, parsed.bodies, checks, is_json=True)

    def encode(value: Any, prefix: bytes) -> bytes:
        try:
            plain = msgspec.convert(value, kind)
            lost = _lost(value, plain)
            if lost:
                raise ValueError(f"the schema has no field {lost}")
            return write(plain if steps is None else steps(plain, None), prefix)
        except Exception as error:  # fastavro's own are of many kinds
            raise ValueError(f"does not fit the Avro schema: {explain(error)}") from None

    return encode


def plain_reader(written: Parsed, *, start: int = 0) -> Callable[[bytes], Any]:
    """Return a function that decodes values to the types of JSON."""
    read = reader(written, None, start=start)
    return (lambda data: named_as_json(read(data))) if written.names_records else read


def _lost(given: Any, converted: Any) -> str:
    """Return the path of a field that the conversion to the schema's type dropped; empty if none."""
    if isinstance(given, dict) and isinstance(converted, dict):
        for name, part in given.items():
            if name not in converted:
                return str(name)
            below = _lost(part, converted[name])
            if below:
                return f"{name}.{below}"
    elif isinstance(given, list) and isinstance(converted, list):
        for number, (part, of_it) in enumerate(zip(given, converted, strict=True)):
            below = _lost(part, of_it)
            if below:
                return f"{number}.{below}"
    return ""


def named_as_json(value: Any) -> Any:
    """Return a value in Avro's JSON encoding, in which a record of a union is `{"full.Name": {...}}`."""
    if isinstance(value, tuple):
        name, record = value
        return {name: named_as_json(record)}
    if isinstance(value, dict):
        return {name: named_as_json(part) for name, part in value.items()}
    return [named_as_json(part) for part in value] if isinstance(value, list) else value


def new_pool() -> Any:
    """Return a pool of Protobuf files, with Google's own in it."""
    try:
        from google.protobuf import (  # noqa: F401
            any_pb2,
            descriptor_pb2,
            descriptor_pool,
            duration_pb2,
            empty_pb2,
            field_mask_pb2,
            struct_pb2,
            timestamp_pb2,
            wrappers_pb2,
        )
    except ImportError as error:
        raise ConfigError("Protobuf needs protobuf: pip install 'ottla[protobuf]'") from error
    pool = descriptor_pool.DescriptorPool()
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    return pool


def add_file(pool: Any, name: str, descriptor: bytes) -> Any:
    """Add a file of messages under this name, and return its descriptor. Raises ValueError for an invalid one."""
    from google.protobuf import descriptor_pb2

    try:
        parsed = descriptor_pb2.FileDescriptorProto.FromString(descriptor)
        parsed.name = name
        pool.AddSerializedFile(parsed.SerializeToString())
        return pool.FindFileByName(name)
    except Exception as error:
        raise ValueError(f"{name}: not a Protobuf file: {error}") from error


def message_at(file: Any, indexes: Sequence[int]) -> Any:
    """Return the message at a path of indexes in a file. Raises ValueError for an invalid path."""
    try:
        found = list(file.message_types_by_name.values())[indexes[0]]
        for index in indexes[1:]:
            found = found.nested_types[index]
    except IndexError:
        raise ValueError(f"the schema has no message at {list(indexes)}") from None
    return found


def message_reader(descriptor: Any) -> Callable[[bytes], Any]:
    """Return a function from a message's bytes to a plain value."""
    from google.protobuf import json_format, message_factory

    parse_message = message_factory.GetMessageClass(descriptor).FromString
    return lambda data: json_format.MessageToDict(parse_message(data), preserving_proto_field_name=True)


def message_writer(descriptor: Any) -> Callable[[Any], bytes]:
    """Return a function from a plain value to a message's bytes. Raises ValueError for a value that is not of the
    message."""
    from google.protobuf import json_format, message_factory

    message = message_factory.GetMessageClass(descriptor)

    def write(value: Any) -> bytes:
        if not isinstance(value, dict):
            raise ValueError(f"not a {descriptor.full_name}: wanted an object")
        try:
            return bytes(json_format.ParseDict(value, message()).SerializeToString(deterministic=True))
        except (json_format.ParseError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"not a {descriptor.full_name}: {error}") from None

    return write


def _path_of(file: Any, name: str | None) -> list[int]:
    """Return the indexes of a message in its file."""
    names: dict[str, list[int]] = {}

    def collect(messages: Any, above: list[int]) -> None:
        for index, message in enumerate(messages):
            names[message.full_name] = [*above, index]
            collect(message.nested_types, [*above, index])

    collect(file.message_types_by_name.values(), [])
    if name is None and names:
        return [0]
    if name not in names:
        raise ConfigError(f"--message: found {name}, wanted one of {', '.join(list(names)[:20])}")
    return names[name]
