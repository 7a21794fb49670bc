"""Encode and decode messages: requests, responses, coordinator and metadata records.

Functions are compiled at the first use of each (message, version, direction), about a quarter of a millisecond each.
Decoding ignores bytes behind the message, as Kafka does; a decoder itself returns where the message ended.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ottla_wire.protocol import schemas
from ottla_wire.protocol.api_keys import ApiKey
from ottla_wire.protocol.compile_decode import Decoder, compile_decoder
from ottla_wire.protocol.compile_encode import Encoder, compile_encoder
from ottla_wire.protocol.exceptions import ProtocolError, UnsupportedVersion
from ottla_wire.protocol.message import Message
from ottla_wire.protocol.primitives import Buffer, decode_uvarint, encode_uvarint
from ottla_wire.protocol.region import Part
from ottla_wire.protocol.schema import MessageSchema

Body = Any  # a dict by field name, or a Message
METADATA_FRAME_VERSION = 1


def encode_request(api_key: ApiKey, version: int, body: Body) -> bytes:
    return _join(request_encoder(api_key, version), body)


def decode_request(api_key: ApiKey, version: int, buffer: Buffer, offset: int = 0) -> Message:
    return request_decoder(api_key, version)(buffer, offset)[0]


def encode_response(api_key: ApiKey, version: int, body: Body) -> bytes:
    return _join(response_encoder(api_key, version), body)


def encode_response_parts(api_key: ApiKey, version: int, body: Body) -> list[Part]:
    """Return the response as buffers to write in order; record payloads are the caller's own objects, not copies."""
    pieces: list[Any] = []
    marks: list[int] = []
    response_encoder(api_key, version)(body, pieces, marks)
    return join_around_records(pieces, marks)


def decode_response(api_key: ApiKey, version: int, buffer: Buffer, offset: int = 0) -> Message:
    return response_decoder(api_key, version)(buffer, offset)[0]


# ---- records of the internal topics -------------------------------------------------------------------------------


def encode_record_value(name: str, version: int, body: Body) -> bytes:
    """Return a coordinator record's key or value, by Kafka's name ("OffsetCommitValue"): int16 version, then the
    fields."""
    return version.to_bytes(2, "big", signed=True) + _join(_record_encoder(name, version), body)


def decode_record_value(name: str, data: Buffer) -> tuple[int, Message]:
    """Return (version, message) of what `encode_record_value` wrote."""
    version = record_version(data)
    return version, _record_decoder(name, version)(data, 2)[0]


def record_version(data: Buffer) -> int:
    """Return the version prefix. In a key of `__consumer_offsets` it tells the kind of record."""
    if len(data) < 2:
        raise ProtocolError(f"a versioned record has at least 2 bytes, not {len(data)}")
    return int.from_bytes(data[:2], "big", signed=True)


def encode_metadata_record(name: str, version: int, body: Body) -> bytes:
    """Return a record of the metadata log: frame version, type id, version, then the fields."""
    type_id = schemas.metadata_record_types()[name]
    prefix = encode_uvarint(METADATA_FRAME_VERSION) + encode_uvarint(type_id) + encode_uvarint(version)
    return prefix + _join(_record_encoder(name, version), body)


def decode_metadata_record(data: Buffer) -> tuple[str, int, Message]:
    """Return (record name, version, message)."""
    frame_version, position = decode_uvarint(data, 0)
    if frame_version != METADATA_FRAME_VERSION:
        raise ProtocolError(f"metadata record frame version {frame_version}, wanted {METADATA_FRAME_VERSION}")
    type_id, position = decode_uvarint(data, position)
    version, position = decode_uvarint(data, position)
    name = schemas.metadata_record_names().get(type_id)
    if name is None:
        raise ProtocolError(f"unknown metadata record type {type_id}")
    return name, version, _record_decoder(name, version)(data, position)[0]


# ---- compiled functions, one cache each because a single-argument-shape lookup is what the hot path pays ----------


MAX_REQUEST_ELEMENTS = 30_000
"""Elements of a request's arrays, all together: three times the partitions that one request may create. They are
decoded in one go, which takes about 30 ms."""


@cache
def request_encoder(api_key: ApiKey, version: int) -> Encoder:
    return compile_encoder(_checked(schemas.request(api_key), version), version)


@cache
def request_decoder(api_key: ApiKey, version: int) -> Decoder:
    return compile_decoder(_checked(schemas.request(api_key), version), version, max_elements=MAX_REQUEST_ELEMENTS)


@cache
def response_encoder(api_key: ApiKey, version: int) -> Encoder:
    return compile_encoder(_checked(schemas.response(api_key), version), version)


@cache
def response_decoder(api_key: ApiKey, version: int) -> Decoder:
    return compile_decoder(_checked(schemas.response(api_key), version), version)


@cache
def _record_encoder(name: str, version: int) -> Encoder:
    return compile_encoder(_checked(schemas.record(name), version), version)


@cache
def _compiled_record_decoder(name: str, version: int) -> Decoder:
    return compile_decoder(_checked(schemas.record(name), version), version)


def _record_decoder(name: str, version: int) -> Decoder:
    """Return the decoder of a record. A wrong version is in the data here, not in the caller's code."""
    try:
        return _compiled_record_decoder(name, version)
    except UnsupportedVersion as error:
        raise ProtocolError(str(error)) from None


def join_around_records(pieces: list[Any], marks: list[int]) -> list[Part]:
    """Join the small pieces between record payloads, which stay as they are."""
    if not marks:
        return [b"".join(pieces)]
    parts: list[Part] = []
    position = 0
    for start, stop in zip(marks[::2], marks[1::2], strict=True):
        if start > position:
            parts.append(b"".join(pieces[position:start]))
        parts.extend(pieces[start:stop])
        position = stop
    if position < len(pieces):
        parts.append(b"".join(pieces[position:]))
    return parts


def _join(encoder: Encoder, body: Body) -> bytes:
    pieces: list[Any] = []
    encoder(body, pieces, [])
    return b"".join(pieces)


def _checked(schema: MessageSchema, version: int) -> MessageSchema:
    if version not in schema.versions:
        raise UnsupportedVersion(f"{schema.name} has versions {schema.versions}, not {version}")
    return schema
