"""The read side of one partition's log: its segments, its end, and byte ranges by offset and by time. It changes no
file. `storage.log_maintenance` maintains the segments, `storage.log` appends."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.storage.append import TimestampOffset
from broker_embedded.storage.batch_walk import BatchAt
from broker_embedded.storage.faults import offline_error, storage_error
from broker_embedded.storage.file_pool import FilePool, PooledFile
from broker_embedded.storage.leader_epochs import EpochEndOffset, EpochEntry
from broker_embedded.storage.log_loader import LoadedLog
from broker_embedded.storage.log_slice import LogSlice
from broker_embedded.storage.segments import Segments
from broker_embedded.storage.transaction_index import AbortedTransactionEntry
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import LOG_APPEND_TIME_FLAG
from ottla_wire.records.control import AbortedTransaction
from ottla_wire.records.record import decode_batch

_EMPTY = LogSlice(None, 0, 0, -1)


@fact
class ProducerView:
    """One row of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_start_offset: int


class ReadableLog:
    """State and reads of a partition's log.

    Offsets: `log_start_offset` <= `high_watermark` <= `log_end_offset`; `last_stable_offset` <= `high_watermark`.
    """

    def __init__(
        self,
        fs: FileSystem,
        pool: FilePool,
        directory: str,
        *,
        topic: str,
        partition: int,
        topic_id: bytes | None,
        config: TopicConfig,
        clock: Clock,
        loaded: LoadedLog,
        high_watermark: int = 0,
        on_cut: Callable[[Any], None] | None = None,
        on_failure: Callable[[Any, OSError], None] | None = None,
    ) -> None:
        self._fs = fs
        self._pool = pool
        self._clock = clock
        self._config = config
        self._on_cut = on_cut
        self._on_failure = on_failure
        self.offline_reason: str | None = None
        """Why the directory is offline: this log is not served until the broker restarts."""
        self.is_stray = False
        """Unknown to the metadata: left unchanged, also by retention and compaction."""
        self.directory = directory
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.name = f"{topic}-{partition}"
        self.segments = loaded.segments
        self.epochs = loaded.epochs
        self.producers = loaded.producers
        self.log_start_offset = loaded.log_start_offset
        self._is_start_unsaved = False
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        """Everything below is on the disk, fsynced."""
        self.high_watermark = self.log_start_offset
        self.update_high_watermark(high_watermark)
        self.flushed_at_ms = clock.now_ms()
        self.cleaned_to = 0
        """Compaction has been through everything below (Kafka's first dirty offset)."""
        self._latest_epoch = loaded.epochs.latest_written
        self.is_settled = True
        """Whether the directory's name and the topic id in it are durable. A new directory is settled by the first
        flush of its log: before that, nothing in it has to survive a crash of the machine."""
        self._doomed: deque[tuple[int, PooledFile]] = deque()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"Log({self.name}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def config(self) -> TopicConfig:
        return self._config

    def update_config(self, config: TopicConfig) -> None:
        """Replace the settings. Index settings reach new segments only."""
        self._config = config

    def failed(self, error: OSError, *, path: str, doing: str) -> BrokerError:
        """Return the error for a disk failure. It may take the directory and this log offline."""
        if self._on_failure is not None:
            self._on_failure(self, error)
        return storage_error(error, path=path, doing=doing)

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR once the directory is offline."""
        if self.offline_reason is not None:
            raise offline_error(self.directory, self.offline_reason)

    # -- reading

    def read(
        self, offset: int, max_bytes: int, *, max_offset: int | None = None, at_least_one: bool = True
    ) -> LogSlice:
        """Return bytes from the batch that contains `offset` on, of one segment, below `max_offset` (exclusive; None =
        end).

        At least one whole batch if `at_least_one`, even above `max_bytes`. Empty at `max_offset` and at the log end.
        Raises OFFSET_OUT_OF_RANGE outside [log_start_offset, log_end_offset].
        """
        if self.offline_reason is not None:
            self.check_online()
        end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= end_offset:
            raise BrokerError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset}, the log has {self.log_start_offset} to {end_offset}",
            )
        limit = end_offset if max_offset is None or max_offset > end_offset else max_offset
        if offset >= limit:
            return _EMPTY
        for segment in self.segments.holding(offset, limit):
            located = segment.locate(offset)
            if located is None:
                continue  # the rest of this segment was compacted away
            position, size, base_offset = located
            if base_offset >= limit:
                return _EMPTY
            end_position = segment.size
            if limit < end_offset:
                beyond = segment.locate(limit)
                if beyond is not None:
                    end_position = beyond.position
            wanted = min(end_position - position, max_bytes)
            if wanted < size:
                if not at_least_one or position + size > end_position:
                    return _EMPTY
                wanted = size
            return segment.slice(position, wanted)
        return _EMPTY

    def offset_for_timestamp(self, timestamp_ms: int) -> TimestampOffset | None:
        """Return the first record whose timestamp is >= `timestamp_ms`, or None (ListOffsets by time).

        May lie above the high watermark: who answers a client compares.
        """
        return first_record_from(self.segments, timestamp_ms, log_start_offset=self.log_start_offset)

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """Return the first record with the largest timestamp in the log, or None if there is no record (ListOffsets
        -3)."""
        return newest_record(self.segments, log_start_offset=self.log_start_offset, log_end_offset=self.log_end_offset)

    # -- positions

    def update_high_watermark(self, offset: int) -> bool:
        """Set the high watermark, bounded to [log start, log end]. True if it moved."""
        bounded = min(max(offset, self.log_start_offset), self.log_end_offset)
        if bounded == self.high_watermark:
            return False
        self.high_watermark = bounded
        self.producers.on_high_watermark(bounded)
        return True

    @property
    def last_stable_offset(self) -> int:
        """Everything below is decided: min(high watermark, first offset of the oldest undecided transaction)."""
        unstable = self.producers.first_unstable_offset
        if unstable is None:
            return self.high_watermark
        return min(self.high_watermark, max(unstable, self.log_start_offset))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions that overlap [start_offset, end_offset), for a read_committed fetch response."""
        return [
            AbortedTransaction(entry.producer_id, entry.first_offset)
            for entry in self.aborted_entries(start_offset, end_offset)
        ]

    def aborted_entries(self, start_offset: int, end_offset: int) -> list[AbortedTransactionEntry]:
        """Return the entries of the transaction indexes behind `aborted_transactions`."""
        found: list[AbortedTransactionEntry] = []
        for segment in self.segments.with_aborted(start_offset):
            entries, is_complete = segment.txn_index.overlapping(start_offset, end_offset)
            found += entries
            if is_complete:
                break
        return found

    def aborted_transactions_in(self, fetched: LogSlice, start_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions of a slice from `read(start_offset, ...)`; its end comes from the offset
        index.
        """
        if not fetched.size:
            return []
        if not self.segments.with_aborted(fetched.segment_base_offset):
            return []  # most logs never had one; finding where the slice ends costs a tenth of a small fetch
        segment = self.segments[self.segments.floor_index(fetched.segment_base_offset)]
        end = segment.offset_index.upper_bound_offset(position=fetched.position, fetch_bytes=fetched.size)
        if end is None:
            end = self.segments.next_base_offset(segment) or self.log_end_offset
        return self.aborted_transactions(start_offset, end)

    @property
    def latest_leader_epoch(self) -> int | None:
        """Return the epoch of the last batch, or None."""
        return self.epochs.latest

    @property
    def leader_epochs(self) -> tuple[EpochEntry, ...]:
        """Return every epoch and its start offset."""
        return self.epochs.entries

    def leader_epoch_end_offset(self, leader_epoch: int) -> EpochEndOffset:
        """Return the end offset of a leader epoch, for OffsetForLeaderEpoch (KIP-101, KIP-279)."""
        return self.epochs.end_offset_of(leader_epoch, log_end_offset=self.log_end_offset)

    # -- state

    def active_producers(self) -> Sequence[ProducerView]:
        """Return the active producers, for DescribeProducers."""
        return [
            ProducerView(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp_ms=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_transaction_start_offset=entry.current_transaction_first_offset,
            )
            for entry in self.producers.entries.values()
        ]

    def size_bytes(self) -> int:
        """Return bytes of all .log files."""
        return self.segments.size_bytes()

    @property
    def unflushed_records(self) -> int:
        return self.log_end_offset - self.recovery_point


def first_record_from(segments: Segments, timestamp_ms: int, *, log_start_offset: int) -> TimestampOffset | None:
    """Return the first record, by offset, whose timestamp is >= `timestamp_ms`."""
    for segment in segments:
        if segment.max_timestamp.timestamp_ms < timestamp_ms:
            continue
        for batch in segment.locate_by_timestamp(timestamp_ms, log_start_offset):
            found = _first_in(batch, timestamp_ms, log_start_offset)
            if found is not None:
                return found
    return None


def newest_record(segments: Segments, *, log_start_offset: int, log_end_offset: int) -> TimestampOffset | None:
    """Return the first record with the largest timestamp."""
    best = max(segments, key=lambda segment: segment.max_timestamp.timestamp_ms)
    located = best.locate(best.max_timestamp.offset)
    if located is not None and located.base_offset >= log_start_offset:
        batch = best.batch_at(located)
        return _first_in(batch, batch.header.max_timestamp, log_start_offset)
    newest: TimestampOffset | None = None  # the youngest record may have been deleted: look at what is left
    for segment in segments.holding(log_start_offset, log_end_offset):
        for batch in segment.batches():
            if newest is None or batch.header.max_timestamp > newest.timestamp_ms:
                newest = _newest_in(batch, newest, log_start_offset)
    return newest


def _first_in(batch: BatchAt, timestamp_ms: int, log_start_offset: int) -> TimestampOffset | None:
    header = batch.header
    epoch = header.partition_leader_epoch
    if header.attributes & LOG_APPEND_TIME_FLAG:  # one time for all records: no need to open the batch
        offset = max(header.base_offset, log_start_offset)
        return TimestampOffset(header.max_timestamp, offset, epoch) if header.record_count else None
    for record in decode_batch(batch.data):
        if record.timestamp_ms >= timestamp_ms and record.offset >= log_start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset, epoch)
    return None


def _newest_in(batch: BatchAt, newest: TimestampOffset | None, log_start_offset: int) -> TimestampOffset | None:
    for record in decode_batch(batch.data):
        is_left = record.offset >= log_start_offset
        if is_left and (newest is None or record.timestamp_ms > newest.timestamp_ms):
            newest = TimestampOffset(record.timestamp_ms, record.offset, batch.header.partition_leader_epoch)
    return newest
