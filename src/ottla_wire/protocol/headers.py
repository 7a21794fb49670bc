"""Request and response headers, and whole frames.

Written by hand, not compiled from a table: every request passes here. Header versions follow from the API: a request
header gains tagged fields (v2) with the API's first flexible version, and so does the response header (v1), except for
ApiVersions, whose response header stays v0 so that a client can read it before it knows what the broker speaks.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct, error
from typing import Any, NamedTuple

from ottla_wire.protocol import codec, schemas
from ottla_wire.protocol.api_keys import ApiKey
from ottla_wire.protocol.exceptions import ProtocolError, UnsupportedVersion
from ottla_wire.protocol.primitives import Buffer, decode_uvarint
from ottla_wire.protocol.region import Part

_REQUEST = Struct(">hhih")
_SIZED_REQUEST = Struct(">ihhih")
_INT32 = Struct(">i")
_SIZED_RESPONSE = Struct(">ii")
_SIZED_FLEXIBLE_RESPONSE = Struct(">iix")

_API_VERSIONS = int(ApiKey.API_VERSIONS)

_flexible_from: dict[int, int] = {}  # by API key, filled on first use


class RequestHeader(NamedTuple):
    api_key: int  # not an ApiKey: the peer may send any number
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


def is_flexible(api_key: int, version: int) -> bool:
    """Return whether this version has compact lengths and tagged fields. An API without a table counts as not
    flexible."""
    first = _flexible_from.get(api_key)
    if first is None:
        try:
            first = schemas.request(ApiKey(api_key)).flexible_from
        except (ValueError, UnsupportedVersion):
            return False  # not remembered: the peer chooses this number
        _flexible_from[api_key] = first
    return version >= first


def decode_request_header(frame: Buffer, offset: int = 0) -> RequestHeader:
    """Read the header at `offset` (behind the frame's size). Works for unknown APIs and versions too."""
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(frame, offset)
    except error:
        raise ProtocolError(
            "the frame is shorter than a header", message="request header", position=len(frame)
        ) from None
    position = offset + 10
    client_id: str | None = None
    if size >= 0:
        end = position + size
        if end > len(frame):
            raise ProtocolError(
                f"it claims {size} bytes", message="request header", field="client_id", position=position
            )
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolError(
                "not valid UTF-8", message="request header", field="client_id", position=position
            ) from None
        position = end
    elif size != -1:
        raise ProtocolError(f"its length is {size}", message="request header", field="client_id", position=position)
    if is_flexible(api_key, api_version):
        # Clients send no tags here; the byte that says so is not worth three calls.
        is_untagged = position < len(frame) and frame[position] == 0
        position = position + 1 if is_untagged else _skip_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def encode_request_frame(api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, body: Any) -> bytes:
    """Return a whole frame, with its 4-byte size. `body` is a dict, or the already encoded bytes."""
    content = body if isinstance(body, bytes) else codec.encode_request(api_key, version, body)
    name_size, ending = _end_of_request_header(api_key, version, client_id)
    size = 10 + len(ending) + len(content)
    return _SIZED_REQUEST.pack(size, api_key, version, correlation_id, name_size) + ending + content


@lru_cache(maxsize=256)
def _end_of_request_header(api_key: int, version: int, client_id: str | None) -> tuple[int, bytes]:
    """Return the part of a header that all requests of a client share: the size of its name, and the bytes of the name
    and of empty tags."""
    tags = b"\0" if is_flexible(api_key, version) else b""
    if client_id is None:
        return -1, tags
    name = client_id.encode()
    return len(name), name + tags


@lru_cache(maxsize=256)
def has_flexible_response_header(api_key: int, version: int) -> bool:
    return api_key != _API_VERSIONS and is_flexible(api_key, version)


def encode_response_frame(api_key: ApiKey, version: int, correlation_id: int, body: Any) -> list[Part]:
    """Return a whole frame, with its 4-byte size, as buffers to write in order. `body` is a dict, or encoded bytes."""
    parts: list[Part]
    parts = [body] if isinstance(body, bytes) else codec.encode_response_parts(api_key, version, body)
    size = sum(map(len, parts))
    if has_flexible_response_header(api_key, version):
        prefix = _SIZED_FLEXIBLE_RESPONSE.pack(size + 5, correlation_id)
    else:
        prefix = _SIZED_RESPONSE.pack(size + 4, correlation_id)
    if isinstance(parts[0], bytes) and len(parts[0]) < 4096:  # joining a small head is cheaper than one more iovec
        parts[0] = prefix + parts[0]
    else:
        parts.insert(0, prefix)
    return parts


def decode_response_header(api_key: ApiKey, version: int, frame: Buffer, offset: int = 0) -> tuple[int, int]:
    """Return (correlation id, offset of the body)."""
    try:
        (correlation_id,) = _INT32.unpack_from(frame, offset)
    except error:
        raise ProtocolError("the frame is shorter than a header", message="response header") from None
    position = offset + 4
    if has_flexible_response_header(api_key, version):
        # Brokers send no tags here either.
        is_untagged = position < len(frame) and frame[position] == 0
        position = position + 1 if is_untagged else _skip_tags(frame, position)
    return correlation_id, position


def _skip_tags(frame: Buffer, position: int) -> int:
    count, position = decode_uvarint(frame, position)
    for _ in range(count):
        _, position = decode_uvarint(frame, position)
        size, position = decode_uvarint(frame, position)
        position += size
    if position > len(frame):
        raise ProtocolError("a tagged field reaches beyond the frame", message="header", position=position)
    return position
