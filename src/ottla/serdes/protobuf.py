"""Protobuf: messages of a generated class, as bytes alone or in the registry's wire format.

    Protobuf(OrderPb)                       the message's bytes
    Protobuf(OrderPb, registry=registry)    a schema id and the message's place in its file in front

*Malformed*: bytes that cannot be a message of this class. Protobuf keeps fields it does not know, so the bytes of
another message often parse: the format cannot tell, a rule of the value can.
*Invalid*: a message without a required field (proto2), and what `check`, a function of the message, raises for.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import ConfigError, SerializationError
from ottla.records import Malformed
from ottla.serdes.base import Serde, SerdeContext, invalid, malformed, type_name
from ottla.serdes.framing import Framing
from ottla.serdes.models import explain
from ottla.serdes.registry import SchemaReference, SchemaRegistry, UnknownSchema
from ottla.serdes.subjects import SubjectName, topic_name
from ottla.serdes.wire_format import HEADER_BYTES, NotFramed, message_path, schema_id_of, skip_message_path

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.message import Message

M = TypeVar("M", bound="Message")


class Protobuf(Serde[M]):
    """Values are messages of one generated class. Raises `ConfigError` for any other class."""

    __slots__ = ("_check", "_framing", "_parse", "_path", "message")

    def __init__(
        self,
        message: type[M],
        *,
        check: Callable[[M], object] | None = None,
        registry: SchemaRegistry | str | None = None,
        subject: SubjectName = topic_name,
        auto_register: bool = True,
    ) -> None:
        descriptor = getattr(message, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(message, "FromString"):
            raise ConfigError(f"Protobuf({message!r}): wanted a message class that protoc generated")
        self.message = message
        self._parse: Callable[[bytes], M] = message.FromString
        self._check = check
        self._path = b""
        self._framing: Framing | None = None
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
            value = self._parse(data if self._framing is None else _payload(data))
        except NotFramed as error:
            return malformed(data, ctx, error, what="not the registry wire format")
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

    def is_prepared(self, ctx: SerdeContext) -> bool:
        return self._framing is None or self._framing.knows(ctx)

    def prepare(self, ctx: SerdeContext) -> None:
        if self._framing is not None:
            self._framing.header(ctx)

    def __repr__(self) -> str:
        return f"Protobuf({self.message.__name__})"


def _payload(data: bytes) -> bytes:
    schema_id_of(data)
    return data[skip_message_path(data, HEADER_BYTES) :]


def _indexes(descriptor: Descriptor) -> Sequence[int]:
    """Where a message stands in its file: its index at each level of nesting, outermost first."""
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
    """The schema of a file as registries accept it without its source: the serialized descriptor in base64."""
    return base64.standard_b64encode(file.serialized_pb).decode()


def _imports(registry: SchemaRegistry, file: FileDescriptor, auto_register: bool) -> list[SchemaReference]:
    """The files that a file imports, as the registry has them, deepest first. Registers them first if it may.

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
