"""Idempotence and transactions of one partition: who may append which sequence next, and which transactions are open.

`check` decides before a leader appends and changes nothing; `update` records what was appended (also by followers and
by recovery, which believe the log). The state up to an offset is saved as `<offset>.snapshot` when a segment is rolled
and when the log closes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import FileSystem, read_whole, write_whole
from broker_embedded.storage.append import AppendOrigin
from broker_embedded.storage.producer_entry import (
    MAX_SEQUENCE,
    NO_EPOCH,
    NO_OFFSET,
    NO_SEQUENCE,
    BatchMetadata,
    ProducerEntry,
)
from broker_embedded.storage.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from broker_embedded.storage.segment import segment_name
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from ottla_wire.records.control import ControlType, EndTxnMarker, decode_control_type, decode_end_txn_marker
from ottla_wire.records.record import decode_batch

logger = logging.getLogger(__name__)

SNAPSHOT_SUFFIX = ".snapshot"


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was just appended at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class ProducerStateManager:
    """See the module. `name` is the topic-partition, for messages; `files`, if known, are those in the directory."""

    def __init__(self, fs: FileSystem, directory: str, *, name: str, files: Collection[str] | None = None) -> None:
        self._fs = fs
        self.directory = directory
        self._name = name
        self.entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # first offset -> producer id
        self._unreplicated: dict[int, int] = {}  # first offset -> offset of the marker, above the high watermark
        self.end_offset = 0
        """The state covers the log up to here (exclusive)."""
        self._snapshots: set[int] = {
            int(stem)
            for file_name in (fs.list_dir(directory) if files is None else files)
            if file_name.endswith(SNAPSHOT_SUFFIX)
            and (stem := file_name.removesuffix(SNAPSHOT_SUFFIX)).isdecimal()
            and stem.isascii()
        }

    # -- appending

    def check(self, header: BatchHeader, data: memoryview, *, origin: AppendOrigin) -> BatchMetadata | None:
        """Check a batch: returns the original if it is a duplicate, None if it is new. Raises BrokerError if it is
        refused.
        """
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        epoch = header.producer_epoch
        if epoch < entry.producer_epoch:
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self._name}: producer {header.producer_id} has epoch {epoch}, a newer has {entry.producer_epoch}",
            )
        if header.attributes & CONTROL_FLAG:
            self._check_coordinator(entry, data)
            return None
        if origin is AppendOrigin.CLIENT and header.base_sequence != NO_SEQUENCE:
            if epoch == entry.producer_epoch:
                duplicate = entry.find_duplicate(header.base_sequence, header.last_sequence)
                if duplicate is not None:
                    return duplicate
            self._check_sequence(entry, header)
        is_transactional = bool(header.attributes & TRANSACTIONAL_FLAG)
        if entry.current_transaction_first_offset != NO_OFFSET and not is_transactional:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._name}: producer {header.producer_id} has a transaction open since offset "
                f"{entry.current_transaction_first_offset} and sent a batch outside of it",
            )
        return None

    def _check_sequence(self, entry: ProducerEntry, header: BatchHeader) -> None:
        found = header.base_sequence
        if header.producer_epoch != entry.producer_epoch:
            if found != 0 and entry.producer_epoch != NO_EPOCH:
                raise BrokerError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"{self._name}: producer {header.producer_id} starts epoch {header.producer_epoch} with sequence "
                    f"{found}, wanted 0",
                )
            return
        last = entry.last_sequence
        wanted = 0 if last == MAX_SEQUENCE else last + 1
        if found != wanted and entry.producer_epoch != NO_EPOCH:
            raise BrokerError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self._name}: producer {header.producer_id} sent sequence {found}, wanted {wanted}",
            )

    def _check_coordinator(self, entry: ProducerEntry, data: memoryview) -> None:
        marker = _marker(data)
        if marker is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise BrokerError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self._name}: a marker of coordinator epoch {marker.coordinator_epoch} for producer "
                f"{entry.producer_id}, a newer coordinator has {entry.coordinator_epoch}",
            )

    def update(self, header: BatchHeader, data: memoryview, *, now_ms: int) -> CompletedTransaction | None:
        """Record an appended batch (base offset already set). A completed transaction must be passed to `complete`."""
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        self.end_offset = last_offset + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return None
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, used_at_ms=now_ms)
        entry.used_at_ms = now_ms
        attributes = header.attributes
        if attributes & CONTROL_FLAG:
            return self._update_by_marker(entry, header, data)
        last_sequence = header.last_sequence
        entry.add_batch(
            header.producer_epoch,
            BatchMetadata(last_sequence, last_offset, header.last_offset_delta, header.max_timestamp),
        )
        if attributes & TRANSACTIONAL_FLAG and entry.current_transaction_first_offset == NO_OFFSET:
            entry.current_transaction_first_offset = base_offset
            self._open[base_offset] = producer_id
        return None

    def _update_by_marker(
        self, entry: ProducerEntry, header: BatchHeader, data: memoryview
    ) -> CompletedTransaction | None:
        marker = _marker(data)
        if marker is None:  # compaction removed the whole transaction and kept the empty batch for its epoch
            entry.set_epoch(header.producer_epoch)
            return None
        first_offset = entry.current_transaction_first_offset
        entry.set_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_marker_offset = header.base_offset
        entry.last_timestamp_ms = header.max_timestamp
        entry.current_transaction_first_offset = NO_OFFSET
        if first_offset == NO_OFFSET:
            return None
        return CompletedTransaction(
            entry.producer_id, first_offset, header.base_offset, marker.control_type is ControlType.ABORT
        )

    def complete(self, transaction: CompletedTransaction) -> None:
        """Record that the transaction is decided; it stays unstable until its marker is below the high watermark."""
        self._open.pop(transaction.first_offset, None)
        self._unreplicated[transaction.first_offset] = transaction.last_offset

    # -- last stable offset

    def last_stable_offset_after(self, transaction: CompletedTransaction) -> int:
        """Return the first open offset after the end of `transaction`, for the transaction index."""
        others = [first for first in self._open if first != transaction.first_offset]
        return min(others, default=transaction.last_offset + 1)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of a transaction that is open, or decided by a marker not yet replicated."""
        if not self._open and not self._unreplicated:
            return None
        return min((*self._open, *self._unreplicated))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget transactions whose markers are replicated: they are below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: marker for first, marker in self._unreplicated.items() if marker >= high_watermark
            }

    # -- forgetting

    def expire(self, *, now_ms: int, after_ms: int) -> int:
        """Forget producers idle for `producer.id.expiration.ms`, except those with an open transaction."""
        expired = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.current_transaction_first_offset == NO_OFFSET and now_ms - entry.used_at_ms >= after_ms
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    # -- snapshots

    @property
    def snapshot_offsets(self) -> list[int]:
        return sorted(self._snapshots)

    def take_snapshot(self) -> None:
        """Save the state as of `end_offset`, durably."""
        if self.end_offset in self._snapshots:
            return
        data = encode_snapshot(entry.to_snapshot() for _, entry in sorted(self.entries.items()))
        write_whole(self._fs, self._path(self.end_offset), data)
        self._snapshots.add(self.end_offset)

    def load_snapshot(self, *, first_base_offset: int, up_to_offset: int, now_ms: int) -> None:
        """Start from the newest valid snapshot in [first segment, up_to_offset], or from nothing at the first segment.
        The other snapshots are removed: those beyond `up_to_offset` describe records that no longer exist, and those
        before the first segment describe producers whose later batches may have been deleted."""
        self.entries.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = first_base_offset
        self._remove_snapshots([o for o in self._snapshots if o > up_to_offset or o < first_base_offset])
        for offset in sorted(self._snapshots, reverse=True):
            try:
                found = decode_snapshot(read_whole(self._fs, self._path(offset)), path=self._path(offset))
            except (CorruptSnapshotError, FileNotFoundError) as error:
                logger.warning("dropped a producer snapshot: %s", error)
                self._remove_snapshots([offset])
                continue
            for saved in found:
                self.entries[saved.producer_id] = ProducerEntry.from_snapshot(saved, used_at_ms=now_ms)
                if saved.current_transaction_first_offset != NO_OFFSET:
                    self._open[saved.current_transaction_first_offset] = saved.producer_id
            self.end_offset = offset
            return

    def keep_snapshots_of(self, segment_base_offsets: Iterable[int]) -> None:
        """Remove snapshots that belong to no segment, except the newest one (taken by a clean stop)."""
        wanted = set(segment_base_offsets)
        newest = max(self._snapshots, default=None)
        self._remove_snapshots([o for o in self._snapshots if o not in wanted and o != newest])

    def remove_snapshots_before(self, offset: int) -> None:
        self._remove_snapshots([o for o in self._snapshots if o < offset])

    def clear(self, offset: int) -> None:
        """Clear all state from `offset` on, after the log was emptied."""
        self._remove_snapshots(list(self._snapshots))
        self.entries.clear()
        self._open.clear()
        self._unreplicated.clear()
        self.end_offset = offset

    def _remove_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._fs.remove(self._path(offset))
            self._snapshots.discard(offset)

    def _path(self, offset: int) -> str:
        return f"{self.directory}/{segment_name(offset)}{SNAPSHOT_SUFFIX}"


def _marker(data: memoryview) -> EndTxnMarker | None:
    """Return how a control batch ends its producer's transaction; None for an empty batch and for other control
    records.
    """
    records = decode_batch(data)
    if not records:
        return None
    if decode_control_type(records[0].key) not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return decode_end_txn_marker(records[0].key, records[0].value)
