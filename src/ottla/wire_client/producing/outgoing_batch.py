"""Record batches on their way out: planned as bytes, finished with header and CRC just before they are sent."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from ottla_wire.records import CompressionType, compress, crc32c

_FRONT = struct.Struct(">qiibI")  # base offset, length, leader epoch, magic, CRC
_AFTER_LENGTH = 4 + 1 + 4  # what the length counts before what the CRC covers
_CRC_COVERS = struct.Struct(">hiqqqhii")


@dataclass(slots=True, kw_only=True)
class OutgoingBatch:
    """Records of one partition that travel together, as bytes, without their header."""

    partition: int
    first_row: int
    row_count: int
    payload: bytes | bytearray | memoryview
    base_timestamp_ms: int
    max_timestamp_ms: int
    tag: Any = None
    """A value of the planner's own, returned with the result."""


def finish_batch(
    batch: OutgoingBatch,
    *,
    compression: CompressionType = CompressionType.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """Return the batch as it goes over the wire, with base offset 0: the broker gives the real one."""
    payload: bytes | bytearray | memoryview = batch.payload
    if compression is not CompressionType.NONE:
        payload = compress(compression, payload)
    attributes = int(compression) | (0x10 if is_transactional else 0)
    covered = _CRC_COVERS.pack(
        attributes,
        batch.row_count - 1,
        batch.base_timestamp_ms,
        batch.max_timestamp_ms,
        producer_id,
        producer_epoch,
        base_sequence,
        batch.row_count,
    )
    body = b"".join((covered, payload))
    front = _FRONT.pack(0, _AFTER_LENGTH + len(body), -1, 2, crc32c(body))
    return front + body
