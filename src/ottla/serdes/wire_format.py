"""The schema registry's wire format: a zero byte, the schema id in four bytes big-endian, then the payload.

Protobuf payloads begin with the path of the message inside its file: a count and that many indexes, zigzag varints;
the path [0], the first message of the file, is the single byte 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAGIC: Final = 0
HEADER_BYTES: Final = 5

_INDEX_LIMIT: Final = 1_000
"""More nesting or messages per file than any schema has; a larger number is a sign of foreign bytes."""
_MOST_VARINT_BYTES: Final = 5
"""Maximum length of a 32-bit number. An endless number would be an attack: each further byte costs more than the one
before."""


class NotFramed(ValueError):
    """Treat the bytes as malformed: they do not begin with a schema id."""


def header(schema_id: int) -> bytes:
    """Return the five bytes in front of a payload."""
    return b"\0" + schema_id.to_bytes(4, "big")


def schema_id_of(data: bytes) -> int:
    """Return the schema id that the bytes begin with. The payload starts at `HEADER_BYTES`."""
    if len(data) < HEADER_BYTES:
        raise NotFramed(f"{len(data)} bytes are too few for a schema id")
    if data[0] != MAGIC:
        looks_like_json = data[:1] in (b"{", b"[", b'"')
        raise NotFramed(f"first byte is {data[0]:#04x}, wanted 0x00{' (looks like JSON)' if looks_like_json else ''}")
    return int.from_bytes(data[1:HEADER_BYTES], "big")


def message_path(indexes: Sequence[int]) -> bytes:
    """Return the path of a Protobuf message inside its file, encoded."""
    if list(indexes) == [0]:
        return b"\0"
    from ottla_wire.protocol.primitives import encode_varint  # few programs nest messages: others start quicker

    return b"".join(map(encode_varint, (len(indexes), *indexes)))


def message_indexes(data: bytes, position: int) -> tuple[list[int], int]:
    """Return the path of a Protobuf message inside its file, and where its payload starts."""
    if data[position : position + 1] == b"\0":  # mostly
        return [0], position + 1
    count, position = _read_varint(data, position)
    indexes = []
    for _ in range(count >> 1):
        index, position = _read_varint(data, position)
        indexes.append(index >> 1)
    return indexes or [0], position


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    for byte in data[position : position + _MOST_VARINT_BYTES]:
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        if shift == 7 * _MOST_VARINT_BYTES:
            raise NotFramed(f"no message path: a number of more than {_MOST_VARINT_BYTES} bytes")
        raise NotFramed(f"{len(data)} bytes end inside the message path")
    if number >> 1 > _INDEX_LIMIT or number & 1:
        raise NotFramed(f"no message path: {number} is not a count or an index")
    return number, position
