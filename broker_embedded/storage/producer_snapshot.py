"""`<offset>.snapshot`: the producer state before that offset, so that a start need not read the whole log.

version (int16, 1), CRC-32C of what follows (uint32), number of entries (int32), then for each producer: producer id
(int64), epoch (int16), last sequence (int32), last offset (int64), offset delta of the last batch (int32), timestamp
(int64), coordinator epoch (int32), first offset of the open transaction (int64, -1 if none). Of the batches only the
last is kept.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla_wire.records.crc32c import crc32c

_VERSION = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(Exception):
    """The snapshot is damaged. Drop it: its content can be rebuilt from the log."""


class SnapshotEntry(NamedTuple):
    """One producer, as the file has it."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    packed = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(packed)) + b"".join(packed)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, *, path: str) -> list[SnapshotEntry]:
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshotError(f"{path}: {len(data)} bytes, wanted at least {_HEAD.size + _COUNT.size}")
    version, wanted = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshotError(f"{path}: version {version}, wanted {_VERSION}")
    body = data[_HEAD.size :]
    found = crc32c(body)
    if found != wanted:
        raise CorruptSnapshotError(f"{path}: CRC {found:#010x}, its header says {wanted:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"{path}: {count} entries announced in {len(body)} bytes")
    return [SnapshotEntry._make(_ENTRY.unpack_from(body, _COUNT.size + i * _ENTRY.size)) for i in range(count)]
