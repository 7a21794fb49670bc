"""Bytes to values and back. Decoding never raises for bad bytes: what cannot be decoded is a `Malformed` value."""

from ottla.serdes.avro import Avro
from ottla.serdes.avro_schema import AvroType, decimal
from ottla.serdes.base import Part, Serde, SerdeContext
from ottla.serdes.builtin import Bytes, Int64, Str
from ottla.serdes.choice import as_serde, serde_of
from ottla.serdes.json import Json
from ottla.serdes.protobuf import Protobuf
from ottla.serdes.registry import SchemaRegistry, UnknownSchema

__all__ = [
    "Avro",
    "AvroType",
    "Bytes",
    "Int64",
    "Json",
    "Part",
    "Protobuf",
    "SchemaRegistry",
    "Serde",
    "SerdeContext",
    "Str",
    "UnknownSchema",
    "as_serde",
    "decimal",
    "serde_of",
]
