"""The 61-byte header of a record batch (magic 2), read and patched without touching the records behind it.

    base_offset 8 · batch_length 4 · partition_leader_epoch 4 · magic 1 · crc 4 · attributes 2 · last_offset_delta 4 ·
    base_timestamp 8 · max_timestamp 8 · producer_id 8 · producer_epoch 2 · base_sequence 4 · record_count 4

`batch_length` counts from behind itself. The CRC covers everything from `attributes` on, so a leader may set the base
offset and its epoch in place without computing it again: that is what makes a batch opaque to a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla_wire.protocol.exceptions import ProtocolError
from ottla_wire.records.crc32c import crc32c

Buffer = bytes | bytearray | memoryview

BATCH_OVERHEAD = 61
LOG_OVERHEAD = 12  # base_offset and batch_length, which batch_length does not count
MAGIC = 2
MAGIC_POSITION = 16  # in every message format
CRC_POSITION = 17
CRC_COVERS_FROM = 21  # the attributes

HEADER = Struct(">qiibIhiqqqhii")
_INT64 = Struct(">q")
_INT32 = Struct(">i")
_UINT32 = Struct(">I")
_INT16 = Struct(">h")

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40  # base_timestamp then says when tombstones may go (KIP-534)

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1


_new_tuple = tuple.__new__  # `_make` checks the number of fields, which a Struct has checked


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """Fields as on the wire; a named tuple because `unpack` makes one in half a microsecond."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the last record, or the last one there was before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_in_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def compression(self) -> int:
        """A CompressionType, or 5 to 7, which no one has defined."""
        return self.attributes & COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & LOG_APPEND_TIME_FLAG else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id != NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequences wrap from 2³¹-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`. It judges nothing: magic, CRC and lengths are the caller's to check."""
    if len(buffer) - position < BATCH_OVERHEAD:
        raise ProtocolError(
            f"{len(buffer) - position} bytes, a header has {BATCH_OVERHEAD}", message="record batch", position=position
        )
    return _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))


def iter_batches(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each whole batch; stop at a partial tail, raise at a length that cannot be."""
    end = len(buffer)
    while end - position >= BATCH_OVERHEAD:
        header = _new_tuple(BatchHeader, HEADER.unpack_from(buffer, position))
        size = header.batch_length + LOG_OVERHEAD
        if size < BATCH_OVERHEAD:
            raise ProtocolError(
                f"a batch of {size} bytes, a header alone has {BATCH_OVERHEAD}",
                message="record batch",
                position=position,
            )
        if size > end - position:
            return
        yield position, header
        position += size


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[BatchHeader]:
    """Yield the header of each whole batch, as `iter_batches`."""
    for _, header in iter_batches(buffer, position):
        yield header


def compute_crc(buffer: Buffer, position: int, header: BatchHeader) -> int:
    return crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : position + header.size_in_bytes])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Return whether the batch at `position` is whole and its bytes are those that its CRC was made of."""
    size = header.batch_length + LOG_OVERHEAD
    is_whole = BATCH_OVERHEAD <= size <= len(buffer) - position
    return is_whole and crc32c(memoryview(buffer)[position + CRC_COVERS_FROM : position + size]) == header.crc


def patch_batch(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Set what only the leader knows, in place. Neither field is covered by the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + 12, leader_epoch)


def patch_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Mark the batch as stamped by the broker and compute its CRC again, which covers both fields."""
    header = parse_header(buffer, position)
    _INT16.pack_into(buffer, position + 21, header.attributes | LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buffer, position + 35, timestamp_ms)
    _UINT32.pack_into(buffer, position + CRC_POSITION, compute_crc(buffer, position, header))
