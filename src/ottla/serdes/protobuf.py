"""Protobuf: messages of a generated class, as bytes alone or in the registry's wire format.

    Protobuf(OrderPb)                       the message's bytes
    Protobuf(OrderPb, registry=registry)    a schema id and the message's place in its file in front

*Malformed*: bytes that cannot be a message of this class. Protobuf keeps fields it does not know, so the bytes of
another message often parse: the format cannot tell, a rule of the value can. With a registry it is known: the schema
behind the id names the message at the path in front of the payload, and another message than this one is malformed.
*Invalid*: a message without a required field (proto2), and what `check`, a function of the message, raises for.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import ConfigError, RegistryUnavailable, SerializationError
from ottla.records import Malformed
from ottla.serdes.base import SerdeContext, invalid, malformed, type_name
from ottla.serdes.framing import FramedSerde, Framing, has_unseen_id
from ottla.serdes.lookups import Lookups
from ottla.serdes.models import explain
from ottla.serdes.protobuf_files import MessagePlace, messages_in, messages_of, names_at, names_in, paths_to
from ottla.serdes.registered_schema import RegisteredSchema, SchemaReference
from ottla.serdes.registry import SchemaRegistry, UnknownSchema, UnusableSchema
from ottla.serdes.subjects import SubjectName, topic_name
from ottla.serdes.wire_format import HEADER_BYTES, NotFramed, message_indexes, message_path, schema_id_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")


class Protobuf(FramedSerde[M]):
    """Values are messages of one generated class. Raises `ConfigError` for any other class.

    `aliases` are full names of messages that are read as this one, where their writers have them in another package:
    with a registry only, which knows what was written.
    """

    __slots__ = ("_check", "_mine", "_names", "_parse", "_path", "_places", "message")

    def __init__(
        self,
        message: type[M],
        *,
        check: Callable[[M], object] | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
        aliases: Sequence[str] = (),
    ) -> None:
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(message, "FromString"):
            raise ConfigError(f"Protobuf({message!r}): wanted a message class that protoc generated")
        self.message = message
        self._parse: Callable[[bytes], M] = message.FromString
        self._check = check
        self._path = b""
        self._framing: Framing | None = None
        self._names = frozenset((descriptor.full_name, *_checked(aliases)))
        self._mine: set[tuple[int, tuple[int, ...]]] = set()
        self._places: Lookups[int, list[MessagePlace]] | None = None
        if registry is None and aliases:
            raise ConfigError("Protobuf: found aliases= without registry=; only a registry knows what was written")
        if registry is not None:
            self._path = message_path(_indexes(descriptor))
            self._framing = Framing(
                registry,
                "PROTOBUF",
                lambda: _schema_text(descriptor.file),
                record_name=descriptor.full_name,
                subject=subject,
                auto_register=auto_register,
                references=lambda client, auto_register: _imports(client, descriptor.file, auto_register),
            )
            self._places = Lookups(self._framing.registry.clock, refusals=(UnknownSchema, UnusableSchema))

    @property
    def value_type(self) -> type[M]:
        return self.message

    def serialize(self, value: M | None, ctx: SerdeContext) -> bytes | None:
        if value is None:
            return None
        if not isinstance(value, self.message):
            raise SerializationError(
                f"{ctx.topic} {ctx.part}: expected a {self.message.__name__} message, got {type_name(value)}"
            )
        prefix = b"" if self._framing is None else self._framing.header(ctx) + self._path
        try:
            return prefix + value.SerializeToString()
        except Exception as error:  # a required field that is not set
            raise SerializationError(f"{ctx.topic} {ctx.part}: {explain(error)}") from error

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> M | Malformed | None:
        if data is None:
            return None
        try:
            value = self._parse(data if self._framing is None else self._payload(data))
        except RegistryUnavailable:
            raise
        except NotFramed as error:
            return malformed(data, ctx, error, what="not the registry wire format")
        except (UnknownSchema, UnusableSchema) as error:
            return malformed(data, ctx, error)
        except Exception as error:
            return malformed(data, ctx, error, what=f"not a {self.message.__name__} message")
        try:
            if not value.IsInitialized():
                missing: list[str] = value.FindInitializationErrors()  # type: ignore[attr-defined]
                raise ValueError(f"missing required fields: {', '.join(missing)}")
            if self._check is not None:
                self._check(value)
        except Exception as error:
            return invalid(data, ctx, error, explain(error), what=f"not a valid {self.message.__name__}")
        return value

    def would_block(self, data: Sequence[bytes | None], ctx: SerdeContext) -> bool:
        return self._places is not None and has_unseen_id(data, self._places)

    def _payload(self, data: bytes) -> bytes:
        """Return the bytes behind the schema id and the path, where these name this message."""
        schema_id = schema_id_of(data)
        path, start = message_indexes(data, HEADER_BYTES)
        place = (schema_id, tuple(path))
        if place not in self._mine:
            self._check_place(schema_id, path)
            self._mine.add(place)  # few: only places that name this message get here
        return data[start:]

    def _check_place(self, schema_id: int, path: Sequence[int]) -> None:
        assert self._framing is not None
        assert self._places is not None
        registry = self._framing.registry
        places = self._places.get(schema_id, lambda: _places_in(registry.schema(schema_id)))
        found = names_at(places, path)
        if not found & self._names and self._is_own_place(places, path):
            return
        if not found:
            raise UnusableSchema(f"schema {schema_id} has no message at {list(path)}")
        if not found & self._names:
            raise UnusableSchema(
                f"schema {schema_id}: the message is {' or '.join(sorted(found))}, wanted "
                f"{' or '.join(sorted(self._names))}; aliases= names messages that are read as this one"
            )

    def _is_own_place(self, places: list[MessagePlace], path: Sequence[int]) -> bool:
        """Return whether a path within a message is this one's in its own file, of which the registry may have another
        text: registries generate source in which maps are ordered differently.
        """
        if len(path) < 2:
            return False
        descriptor = self.message.DESCRIPTOR
        own = messages_of(descriptor.file.serialized_pb)
        return tuple(path) in paths_to(own, descriptor.full_name) and names_in(own) == names_in(places)

    def __repr__(self) -> str:
        return f"Protobuf({self.message.__name__})"


def _places_in(schema: RegisteredSchema) -> list[MessagePlace]:
    if schema.type != "PROTOBUF":
        raise UnusableSchema(f"schema {schema.id} is {schema.type}, wanted PROTOBUF")
    try:
        return messages_in(schema.text)
    except ValueError as error:
        raise UnusableSchema(f"schema {schema.id}: {error}") from error


def _checked(aliases: Sequence[str]) -> Sequence[str]:
    if isinstance(aliases, str) or not all(isinstance(each, str) and each for each in aliases):
        raise ConfigError(f"Protobuf: found aliases={aliases!r}, wanted a list of full names, as shop.v1.Order")
    return aliases


def _indexes(descriptor: Descriptor) -> Sequence[int]:
    """Return a message's index at each level of nesting in its file, outermost first."""
    path: list[int] = []
    current: Any = descriptor
    while current is not None:
        siblings = (
            current.file.message_types_by_name
            if current.containing_type is None
            else current.containing_type.nested_types
        )
        names = [sibling if isinstance(sibling, str) else sibling.name for sibling in siblings]
        path.insert(0, names.index(current.name))
        current = current.containing_type
    return path


def _schema_text(file: FileDescriptor) -> str:
    """Return the schema of a file as registries accept it without its source: the serialized descriptor in base64."""
    return base64.standard_b64encode(file.serialized_pb).decode()


def _imports(registry: SchemaRegistry, file: FileDescriptor, auto_register: bool) -> list[SchemaReference]:
    """Return the files that a file imports, as the registry has them, deepest first. Registers them first if it may.

    Google's own types are part of every registry. Raises `ConfigError` for a file that has to be registered by
    somebody else.
    """
    references = []
    for imported in file.dependencies:
        if imported.name.startswith("google/protobuf/"):
            continue
        below = _imports(registry, imported, auto_register)
        text = _schema_text(imported)
        if auto_register:
            registry.register(imported.name, text, "PROTOBUF", below)
        try:
            version = registry.version_of(imported.name, text, "PROTOBUF", below)
        except UnknownSchema as error:
            raise ConfigError(f"{file.name} imports {imported.name}, which is not registered: {error}") from error
        references.append(SchemaReference(imported.name, imported.name, version))
    return references
