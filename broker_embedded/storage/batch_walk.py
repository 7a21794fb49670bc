"""Walks the batches of a segment's file by their headers, and reads nothing else unless asked.

The caller gives a position where a batch starts (from the offset index) and the position where whole batches end. The
file may have been damaged since it was written, so each header is checked; an impossible one raises CORRUPT_MESSAGE.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from broker_embedded.common.errors import BrokerError
from broker_embedded.storage.file_pool import PooledFile
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import BATCH_OVERHEAD, MAGIC, MAGIC_POSITION, BatchHeader, check_crc, parse_header

LOG_OVERHEAD = 12
"""Base offset and batch length, which the batch length does not count."""

_BASE_AND_LENGTH = struct.Struct(">qi")
_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23
_SEARCH_BYTES = 8192  # twice index.interval.bytes: a search inside an interval of small batches is one read
_SCAN_BYTES = 1 << 20
_SHORTEST = BATCH_OVERHEAD - LOG_OVERHEAD
"""The length that a batch without records states."""


class Located(NamedTuple):
    """A batch by position."""

    position: int
    size: int
    base_offset: int


class BatchAt(NamedTuple):
    """A whole batch, read from the file."""

    position: int
    header: BatchHeader
    data: memoryview


def first_batch_ending_at_or_after(file: PooledFile, offset: int, position: int, *, size: int) -> Located | None:
    """Return the first batch from `position` on whose last offset is >= `offset`; BrokerError where the file is
    damaged."""
    while position < size:
        chunk = file.read_at(min(_SEARCH_BYTES, size - position), position)
        at, end = 0, len(chunk) - _LAST_OFFSET_DELTA_AT - 4
        if end < 0:
            return None
        while at <= end:
            base_offset, length = _BASE_AND_LENGTH.unpack_from(chunk, at)
            if not _SHORTEST <= length <= size - position - at - LOG_OVERHEAD or chunk[at + MAGIC_POSITION] != MAGIC:
                raise _damaged(file, position + at, length, chunk[at + MAGIC_POSITION], size=size)
            if base_offset + _LAST_OFFSET_DELTA.unpack_from(chunk, at + _LAST_OFFSET_DELTA_AT)[0] >= offset:
                return Located(position + at, length + LOG_OVERHEAD, base_offset)
            at += length + LOG_OVERHEAD
        position += at
    return None


def walk_headers(file: PooledFile, position: int, *, size: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of all batches from a batch's position on; bodies are skipped.

    BrokerError where the file is damaged.
    """
    while position + BATCH_OVERHEAD <= size:
        chunk = file.read_at(min(_SEARCH_BYTES, size - position), position)
        at = 0
        while at + BATCH_OVERHEAD <= len(chunk):
            header = parse_header(chunk, at)
            length = header.batch_length
            if not _SHORTEST <= length <= size - position - at - LOG_OVERHEAD or header.magic != MAGIC:
                raise _damaged(file, position + at, length, header.magic, size=size)
            yield position + at, header
            at += header.batch_length + LOG_OVERHEAD
        if at == 0:
            return
        position += at


def walk_batches(file: PooledFile, position: int, *, limit: int) -> Iterator[BatchAt]:
    """Yield whole batches from a batch's position on; stops at `limit`, or at the first thing that is not a whole
    batch."""
    wanted = _SCAN_BYTES
    while position + BATCH_OVERHEAD <= limit:
        data = memoryview(file.read_at(min(wanted, limit - position), position))
        wanted = _SCAN_BYTES
        at = 0
        while at + BATCH_OVERHEAD <= len(data):
            size = _BASE_AND_LENGTH.unpack_from(data, at)[1] + LOG_OVERHEAD
            if size < BATCH_OVERHEAD or position + at + size > limit:
                return
            if at + size > len(data):
                wanted = max(_SCAN_BYTES, size)
                break
            yield BatchAt(position + at, parse_header(data, at), data[at : at + size])
            at += size
        if at == 0 and wanted <= len(data):
            return
        position += at


def find_valid_batch(file: PooledFile, position: int, *, size: int, from_offset: int) -> int | None:
    """Return where the next valid batch with offsets from `from_offset` on starts; None without one.

    Looks at every position, for a file whose batches cannot be followed any more.
    """
    overlap = BATCH_OVERHEAD - 1
    while position + BATCH_OVERHEAD <= size:
        chunk = file.read_at(min(_SCAN_BYTES, size - position), position)
        magic_at = chunk.find(MAGIC, MAGIC_POSITION)
        while magic_at >= 0 and magic_at - MAGIC_POSITION + BATCH_OVERHEAD <= len(chunk):
            at = magic_at - MAGIC_POSITION
            base_offset, length = _BASE_AND_LENGTH.unpack_from(chunk, at)
            fits = _SHORTEST <= length <= size - position - at - LOG_OVERHEAD
            if fits and from_offset <= base_offset < from_offset + 2**31:
                batch = file.read_at(length + LOG_OVERHEAD, position + at)
                if len(batch) == length + LOG_OVERHEAD and check_crc(batch, 0, parse_header(batch)):
                    return position + at
            magic_at = chunk.find(MAGIC, magic_at + 1)
        if len(chunk) <= overlap:
            return None
        position += len(chunk) - overlap
    return None


def _damaged(file: PooledFile, position: int, length: int, magic: int, *, size: int) -> BrokerError:
    return BrokerError(
        ErrorCode.CORRUPT_MESSAGE,
        f"{file.path}: damaged at position {position}: found a batch of {length + LOG_OVERHEAD} bytes, magic {magic}; "
        f"wanted {BATCH_OVERHEAD} to {size - position} bytes, magic {MAGIC}",
    )
