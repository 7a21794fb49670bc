"""Descriptions of serdes for documents: the format of the bytes, its schema, and the registry behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import msgspec

from ottla.errors import ConfigError
from ottla.serdes.avro import Avro
from ottla.serdes.base import Serde
from ottla.serdes.builtin import Bytes, Int64, Str
from ottla.serdes.cloud_events import CloudEvents, content_type_of
from ottla.serdes.json import Json
from ottla.serdes.models import mentions_pydantic, type_text
from ottla.serdes.protobuf import Protobuf
from ottla.serdes.protobuf_source import source_of
from ottla.serdes.subjects import topic_name
from ottla_wire.facts import fact

SchemaFormat: TypeAlias = Literal["json-schema", "avro", "protobuf"]

_BINARY = "application/octet-stream"


@fact
class SerdeDescription:
    """The bytes that a serde reads and writes."""

    content_type: str
    schema: Any
    """JSON Schema (2020-12, `$defs` within), an Avro schema, or the source of a Protobuf file."""
    format: SchemaFormat = "json-schema"
    name: str | None = None
    """Name of the class, record or message, if there is one."""
    registry_url: str | None = None
    """Addresses of the registry whose schema id stands in front of the bytes, without credentials."""
    subject: str | None = None
    """The strategy that names its subjects, `topic_name` for example."""
    is_cloud_event: bool = False
    """The attributes of a CloudEvent are in the headers."""


def describe(serde: Serde[Any]) -> SerdeDescription:
    """Return the description of a serde. The schema of one that is not Ottla's is unknown, and is `{}`.

    Raises `ConfigError` for a type that has no JSON Schema.
    """
    if isinstance(serde, CloudEvents):
        inner = describe(serde.data)
        return replace(inner, content_type=serde.content_type or inner.content_type, is_cloud_event=True)
    framing = getattr(serde, "_framing", None)

    def described(schema: Any, name: str | None = None, format: SchemaFormat = "json-schema") -> SerdeDescription:
        return SerdeDescription(
            content_type=content_type_of(serde) or _BINARY,
            schema=schema,
            format=format,
            name=name,
            registry_url=None if framing is None else framing.registry.url,
            subject=None if framing is None else getattr(framing.subject, "__name__", topic_name.__name__),
        )

    if isinstance(serde, Str):
        return described({"type": "string"})
    if isinstance(serde, Int64):
        return described({"type": "integer", "format": "int64", "description": "8 bytes, big-endian."})
    if isinstance(serde, Bytes):
        return described({"type": "string", "format": "binary"})
    if isinstance(serde, Json):
        return described(_json_schema(serde.type), _class_name(serde.type))
    if isinstance(serde, Avro):
        name = serde.schema.get("name") if isinstance(serde.schema, dict) else None
        return described(serde.schema, None if name is None else str(name).rpartition(".")[2], "avro")
    if isinstance(serde, Protobuf):
        descriptor = serde.message.DESCRIPTOR
        return described(source_of(descriptor.file), descriptor.name, "protobuf")
    unknown = {"description": f"What the serde {type(serde).__name__} of the service reads and writes."}
    return described(unknown, _class_name(serde.value_type))


def _class_name(kind: Any) -> str | None:
    return kind.__name__ if isinstance(kind, type) and kind.__module__ != "builtins" else None


def _json_schema(kind: Any) -> Any:
    if kind is Any:
        return {}
    if mentions_pydantic(kind):
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            return json.loads(json.dumps(TypeAdapter(kind).json_schema(by_alias=True)))
        except PydanticInvalidForJsonSchema as error:
            raise ConfigError(f"Json({type_text(kind)}): it has no JSON Schema: {error}") from error
    try:
        # A class that hooks create has no schema: any JSON value.
        return json.loads(msgspec.json.encode(msgspec.json.schema(kind, schema_hook=lambda _: {})))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"Json({type_text(kind)}): it has no JSON Schema: {error}") from error
