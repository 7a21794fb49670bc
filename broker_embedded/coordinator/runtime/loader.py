"""Replays a partition of an internal topic into a shard, from the log's start to its end, a slice at a time."""

from __future__ import annotations

from broker_embedded.storage.log import Log
from ottla_wire.records.batch import BATCH_OVERHEAD, iter_batches
from ottla_wire.records.control import ControlType, decode_control_type
from ottla_wire.records.record import decode_batch

from .shard import CoordinatorRecord, Shard

SLICE_BYTES = 1_048_576
"""Replayed per turn of the loop: some tens of milliseconds of decoding."""


class LogReader:
    """One pass over a log."""

    def __init__(self, log: Log, *, slice_bytes: int = SLICE_BYTES) -> None:
        self._log = log
        self._slice_bytes = slice_bytes
        self._next_offset = log.log_start_offset

    def replay_some(self, shard: Shard) -> bool:
        """Replay up to `slice_bytes` more. True when the end of the log is reached."""
        if self._next_offset >= self._log.log_end_offset:
            return True
        data = b"".join(self._log.read(self._next_offset, self._slice_bytes).buffers())
        end = 0
        for position, header in iter_batches(data):
            if header.is_control:
                self._replay_control(data, position, header.producer_id, shard)
            else:
                producer_id = header.producer_id if header.is_transactional else -1
                for record in decode_batch(data, position):
                    if record.offset >= self._next_offset and record.key is not None:
                        shard.replay(
                            CoordinatorRecord(record.key, record.value),
                            timestamp_ms=record.timestamp_ms,
                            producer_id=producer_id,
                        )
            self._next_offset = header.next_offset
            end = position + header.size_in_bytes
        if end == 0:
            raise ValueError(
                f"{self._log.topic}-{self._log.partition}: no whole batch at offset {self._next_offset}, found"
                f" {len(data)} bytes, a batch has at least {BATCH_OVERHEAD}"
            )
        return self._next_offset >= self._log.log_end_offset

    def _replay_control(self, data: bytes, position: int, producer_id: int, shard: Shard) -> None:
        for record in decode_batch(data, position):
            kind = decode_control_type(record.key)
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                shard.replay_end_of_transaction(producer_id, committed=kind is ControlType.COMMIT)
