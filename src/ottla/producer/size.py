"""How many bytes a record takes on the wire, exactly: Kafka's record batch format, version 2 (KIP-98, KIP-82).

A record is `length, attributes, timestamp delta, offset delta, key, value, headers`; lengths and deltas are zigzag
varints. Size is counted before compression: a record that fits only because it compresses well would fail on another
day. What a broker compares with its limit is a whole batch, and the smallest batch a record can travel in is its own:
`size_in_own_batch`, where both deltas are 0.
"""

from __future__ import annotations

from typing import Final

from ottla.records import Headers

BATCH_OVERHEAD: Final = 61
"""Bytes of a version 2 batch before its first record."""

FIXED_BYTES: Final = 96
"""At least what everything but key, value and headers takes: 61 for the batch, 5 + 1 + 10 + 5 + 5 + 5 + 5 more."""

_PER_HEADER: Final = 10
"""Minimum size of a header beside its name and value: two lengths of at most 5 bytes."""


def varint_size(number: int) -> int:
    """Return bytes of a signed number as a zigzag varint, which is how lengths and deltas are written."""
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    return max(1, (zigzag.bit_length() + 6) // 7)


def size_of_record(
    key: bytes | None, value: bytes | None, headers: Headers, *, timestamp_delta: int = 0, offset_delta: int = 0
) -> int:
    """Return bytes of one record in a batch, its own length prefix included."""
    body = (
        1  # attributes
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + _size_of_bytes(key)
        + _size_of_bytes(value)
        + varint_size(len(headers))
    )
    for name, content in headers:
        body += _size_of_bytes(name.encode()) + _size_of_bytes(content)
    return varint_size(body) + body


def size_in_own_batch(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return bytes of a batch that holds this record alone, uncompressed: what the broker's limit is compared with."""
    return BATCH_OVERHEAD + size_of_record(key, value, headers)


def most_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return an upper bound of `size_in_own_batch`, in a fifth of the time."""
    most = FIXED_BYTES
    if key is not None:
        most += len(key)
    if value is not None:
        most += len(value)
    for name, content in headers:
        most += _PER_HEADER + 4 * len(name)  # a character is at most four bytes of UTF-8
        if content is not None:
            most += len(content)
    return most


def _size_of_bytes(data: bytes | None) -> int:
    """Return the size of a length and the bytes; null has the length -1, one byte."""
    if data is None:
        return 1
    return varint_size(len(data)) + len(data)
