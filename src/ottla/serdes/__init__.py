"""Bytes to values and back. Decoding never raises for bad bytes: what cannot be decoded is a `Malformed` value."""

from ottla.serdes.avro import Avro
from ottla.serdes.avro_schema import AvroType, decimal
from ottla.serdes.base import Part, Serde, SerdeContext
from ottla.serdes.builtin import Bytes, Int64, Str
from ottla.serdes.choice import as_serde, serde_of
from ottla.serdes.cloud_events import CloudEvents, CloudEventType
from ottla.serdes.json import Json
from ottla.serdes.protobuf import Protobuf
from ottla.serdes.registry import SchemaRegistry, UnknownSchema
from ottla.serdes.tags import SchemaName, Tag, TagField, TagHeader

__all__ = [
    "Avro",
    "AvroType",
    "Bytes",
    "CloudEventType",
    "CloudEvents",
    "Int64",
    "Json",
    "Part",
    "Protobuf",
    "SchemaName",
    "SchemaRegistry",
    "Serde",
    "SerdeContext",
    "Str",
    "Tag",
    "TagField",
    "TagHeader",
    "UnknownSchema",
    "as_serde",
    "decimal",
    "serde_of",
]
