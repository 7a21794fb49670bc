"""The metadata log on disk, as the quorum's decisions see it, with encoding and decoding of its batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from broker_embedded.common.errors import BrokerError, StartupError
from broker_embedded.controller.commits import CommittedBatch
from broker_embedded.metadata import serde
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.append import AppendInfo, AppendOrigin
from broker_embedded.storage.log import Log
from ottla_wire.protocol import ErrorCode, ProtocolError
from ottla_wire.records import batch, record

READ_BYTES = 1024 * 1024
UNREADABLE = (ProtocolError, ValueError, LookupError, TypeError, AttributeError, AssertionError, OverflowError)
"""Errors that a record raises when it is read or replayed, if it was changed on the disk and its CRC is right."""
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
        """Return the batches from `start_offset` up to `end_offset`.

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
            except UNREADABLE as error:
                raise self._unreadable(offset, error) from error
            if position == 0:
                raise self._unreadable(offset, None)

    def unusable_record(self) -> StartupError | None:
        """Return the error of the first record that cannot be read or replayed; None if all can."""
        delta = MetadataDelta(ClusterImage(cluster_id=""))
        offset = self._log.log_start_offset
        try:
            while offset < self._log.log_end_offset:
                data = b"".join(self._log.read(offset, READ_BYTES).buffers())
                for position, header in batch.iter_batches(data):
                    offset = header.base_offset
                    for each in () if header.is_control else record.decode_batch(data, position):
                        offset = each.offset
                        decoded = None if each.value is None else serde.decode(each.value)
                        if decoded is not None:
                            delta.replay_all([decoded])
                    offset = header.next_offset
        except UNREADABLE as error:
            return StartupError(self._unreadable(offset, error).message)
        return None

    def _unreadable(self, offset: int, error: Exception | None) -> BrokerError:
        segments = self._log.segments
        path = segments[segments.floor_index(offset)].log_file.path
        reason = f" ({type(error).__name__}: {error})" if error is not None else ""
        return BrokerError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{path}: the metadata record at offset {offset} is none, or cannot follow those before it{reason}."
            " Restore the file from a copy",
        )


def encode_records(records: Sequence[MetadataRecord], *, now_ms: int) -> bytes:
    """Encode the records as one batch."""
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
