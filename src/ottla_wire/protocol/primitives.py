"""Variable-length integers and the text form of ids.

Fixed-width values need no code here: the compiled codecs read whole runs of them with one `struct` call.
A uuid (topic id, directory id) is 16 raw bytes everywhere in Ottla, because it is a dictionary key on the fetch path
and `uuid.UUID` costs a microsecond each; `uuid_text` and `uuid_from_text` convert to Kafka's printed form.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ottla_wire.protocol.exceptions import ProtocolError, SchemaError

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID  # takes two milliseconds of a start

Buffer = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)

MAX_UVARINT_BYTES = 5  # a 32-bit value never needs more; a longer run is hostile
MAX_UVARLONG_BYTES = 10

ONE_BYTE_UVARINTS = tuple(bytes([value]) for value in range(128))

SHORT = 8
"""An array of fewer numbers has its functions ready. The replicas of a partition are three: to write a format for each
array, and look it up, took a third of the time that metadata of ten thousand partitions takes."""


@cache
def short_readers(code: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return `unpack_from` for 0, 1, 2, ... numbers of this format."""
    return tuple(struct.Struct(f">{count}{code}").unpack_from for count in range(SHORT))


@cache
def short_writers(code: str) -> tuple[Callable[..., bytes], ...]:
    """Return `pack` for 0, 1, 2, ... numbers of this format."""
    return tuple(struct.Struct(f">{count}{code}").pack for count in range(SHORT))


def encode_uvarint(value: int) -> bytes:
    """Encode as unsigned LEB128, as flexible versions do for lengths, counts and tags."""
    if value < 0:
        raise SchemaError(f"an unsigned varint cannot hold {value}")
    out = bytearray()
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position behind it)."""
    if position >= len(buffer):
        raise ProtocolError("the buffer ends before a varint", position=position)
    first = buffer[position]
    if first < 128:
        return first, position + 1
    return finish_uvarint(buffer, position + 1, first)


def finish_uvarint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """Read the rest of a varint whose first byte, already read, had its continuation bit set."""
    value = first & 127
    shift = 7
    end = min(len(buffer), position + MAX_UVARINT_BYTES - 1)
    while position < end:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                raise ProtocolError(f"varint {value} exceeds 32 bits", position=position)
            return value, position
        shift += 7
    raise ProtocolError("a varint is cut off or longer than five bytes", position=position)


def encode_varint(value: int) -> bytes:
    """Encode as zigzag LEB128, as records do for lengths and deltas (32 and 64 bits alike)."""
    raw = (value << 1) ^ (value >> 63)
    out = bytearray()
    while raw > 127:
        out.append((raw & 127) | 128)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def decode_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return (value, position behind it) of a zigzag integer of at most 64 bits."""
    raw = 0
    shift = 0
    end = min(len(buffer), position + MAX_UVARLONG_BYTES)
    while position < end:
        byte = buffer[position]
        position += 1
        raw |= (byte & 127) << shift
        if byte < 128:
            if raw >> 64:
                break
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7
    raise ProtocolError("a varint is cut off or longer than 64 bits", position=position)


def uuid_text(raw: bytes) -> str:
    """Return Kafka's printed form: URL-safe base64 without padding, 22 characters."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def uuid_from_text(text: str) -> bytes:
    try:
        raw = base64.urlsafe_b64decode(text + "==")
    except (binascii.Error, ValueError) as error:
        raise SchemaError(f"{text!r} is not a Kafka uuid: {error}") from error
    return uuid_bytes(raw)


def uuid_bytes(value: bytes | UUID) -> bytes:
    """Return the 16 bytes to put on the wire; a shorter value would be padded silently by `struct`."""
    if not isinstance(value, bytes):
        return value.bytes
    if len(value) != 16:
        raise SchemaError(f"a uuid has 16 bytes, not {len(value)}")
    return value


def random_uuid(random: Random) -> bytes:
    """Return a uuid of version 4 (RFC 9562), as its 16 bytes."""
    raw = bytearray(random.getrandbits(128).to_bytes(16, "big"))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)
