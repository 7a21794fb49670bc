"""The metadata log on disk: what it looks like to the quorum's decisions, and records in and out of its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.metadata import serde
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.log import AppendInfo, AppendOrigin, Log
from ottla_wire.protocol import ErrorCode, ProtocolError
from ottla_wire.records import batch, record

READ_BYTES = 1024 * 1024
MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Kafka's bound of one batch of metadata: a topic of 10,000 partitions is one, and takes 1.2 MB."""


class StoredLog:
    """A `LogView` of a partition's log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # What a request changes is one batch, and nothing of it may ever be deleted.
        log.update_config(replace(log.config, max_message_bytes=MAX_BATCH_BYTES, retention_ms=-1, retention_bytes=-1))

    @property
    def end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def epoch_starts(self) -> Sequence[tuple[int, int]]:
        """Without an epoch that was noted but whose first batch did not reach the disk: it would claim too much."""
        end_offset = self._log.log_end_offset
        return [(epoch, start) for epoch, start in self._log.leader_epochs if start < end_offset]

    def append(self, data: bytes, *, epoch: int) -> AppendInfo:
        """Append one batch as the leader of `epoch`, durably."""
        info = self._log.append_as_leader(
            memoryview(bytearray(data)), leader_epoch=epoch, origin=AppendOrigin.COORDINATOR
        )
        self._log.flush()
        return info

    def committed(self, start_offset: int, end_offset: int) -> Iterator[CommittedBatch]:
        """The batches from `start_offset` up to `end_offset`.

        What cannot be read is an error: metadata is never guessed.
        """
        offset = start_offset
        while offset < end_offset:
            data = b"".join(self._log.read(offset, READ_BYTES, max_offset=end_offset).buffers())
            position = 0
            try:
                for header in batch.iter_headers(data):
                    yield _decode(data, position, header)
                    position += header.size_in_bytes
                    offset = header.next_offset
            except (ProtocolError, ValueError) as error:
                raise BrokerError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be read at offset {offset}: {error}"
                ) from error
            if position == 0:
                raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be read at offset {offset}")


def encode_records(records: Sequence[MetadataRecord], *, now_ms: int) -> bytes:
    """One batch."""
    return record.encode_batch(
        record.RecordData(offset=index, timestamp_ms=now_ms, key=None, value=serde.encode(each), headers=())
        for index, each in enumerate(records)
    )


def _decode(data: bytes, position: int, header: batch.BatchHeader) -> CommittedBatch:
    known: list[MetadataRecord] = []
    if not header.is_control:
        for each in record.decode_batch(data, position):
            decoded = None if each.value is None else serde.decode(each.value)
            if decoded is not None:
                known.append(decoded)
    return CommittedBatch(known, header.last_offset, header.partition_leader_epoch)
