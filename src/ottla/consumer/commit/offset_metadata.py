"""Finished offsets beyond the committed one, in the metadata of the commit: a restart does not repeat them.

Kafka stores a string with each committed offset, 4,096 bytes at most by default (`offset.metadata.max.bytes`). Ours is
`ottla1:` and base64 of one byte for the encoding followed by the data, offsets counted from the committed one:

    1  run lengths: varint pairs (unfinished since the last run, finished), good for few and long runs
    2  a bitmap, the first bit is the committed offset + 1 (itself is unfinished), good for scattered ones

The shorter one is used. Before the metadata is full (`NEARLY_FULL_BYTES`) the session pauses the partition and logs
which record holds it up. If the records fetched by then do not fit, the tail is left out: offsets that are not named
are delivered again after a crash, which at-least-once allows. Metadata of another tool is read as empty.

`:limited` behind all that says that the handler's `max_rate` held back records when this was committed.

confluent-kafka treats metadata as a C string: it commits the zero byte after it, and reads beyond the buffer if
there is none. So the other clients commit that byte too (`terminated`), and it is ignored when read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Final

from ottla.commit_marks import LIMITED, MAGIC

LIMIT_BYTES: Final = 4_096
NEARLY_FULL_BYTES: Final = LIMIT_BYTES * 3 // 4
RELIEVED_BYTES: Final = LIMIT_BYTES // 2
_RUNS: Final = 1
_BITMAP: Final = 2
_MOST_FINISHED: Final = 1_000_000
"""More than any buffer holds. Any member of the group may write this, and four bytes name a million offsets."""
_DATA_LIMIT: Final = (LIMIT_BYTES - len(MAGIC)) // 4 * 3 - 1


def encode_finished(finished: Sequence[int], position: int) -> str:
    """Return the metadata that names `finished` (ascending, all beyond `position`); empty if there are none."""
    if not finished:
        return ""
    runs = _encode_runs(finished, position)
    bitmap = _encode_bitmap(finished, position)
    kind, data = (_RUNS, runs) if bitmap is None or len(runs) <= len(bitmap) else (_BITMAP, bitmap)
    return MAGIC + base64.b64encode(bytes((kind,)) + data).decode()


def decode_finished(metadata: str | None, position: int) -> frozenset[int]:
    """Return the finished offsets in `metadata`, committed with `position`. Empty for metadata of another tool."""
    if not metadata or not metadata.startswith(MAGIC):
        return frozenset()
    try:
        finished = metadata[len(MAGIC) :].rstrip("\0").removesuffix(LIMITED)
        data = base64.b64decode(finished, validate=True)
        if data[0] == _RUNS:
            return frozenset(_decode_runs(data[1:], position))
        if data[0] == _BITMAP:
            return frozenset(_decode_bitmap(data[1:], position))
    except (binascii.Error, IndexError, ValueError):
        pass  # Damaged metadata costs repeated records, never lost ones.
    return frozenset()


def terminated(metadata: str) -> str:
    """Return the metadata with a zero byte, for clients that do not add one."""
    return f"{metadata}\0" if metadata else ""


def _encode_runs(finished: Sequence[int], position: int) -> bytes:
    out = bytearray()
    at = position
    index = 0
    while index < len(finished):
        first = last = finished[index]
        while index + 1 < len(finished) and finished[index + 1] == last + 1:
            index += 1
            last = finished[index]
        index += 1
        pair = _varint(first - at) + _varint(last - first + 1)
        if len(out) + len(pair) > _DATA_LIMIT:
            break
        out += pair
        at = last + 1
    return bytes(out)


def _decode_runs(data: bytes, position: int) -> Iterable[int]:
    at = position
    numbers = list(_read_varints(data))
    if sum(numbers[1::2]) > _MOST_FINISHED:
        raise ValueError(f"{sum(numbers[1::2])} finished offsets are not plausible")
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        at += gap
        yield from range(at, at + length)
        at += length


def _encode_bitmap(finished: Sequence[int], position: int) -> bytes | None:
    span_bytes = (finished[-1] - position + 7) // 8
    if span_bytes > _DATA_LIMIT:
        return None
    bits = bytearray(span_bytes)
    for offset in finished:
        bit = offset - position - 1
        bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


def _decode_bitmap(data: bytes, position: int) -> Iterable[int]:
    for index, byte in enumerate(data):
        for bit in range(8):
            if byte >> bit & 1:
                yield position + 1 + index * 8 + bit


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varints(data: bytes) -> Iterable[int]:
    number = shift = 0
    for byte in data:
        if shift > 56:
            raise ValueError("a number of more than nine bytes, which no offset has")
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("the last number is cut off")
