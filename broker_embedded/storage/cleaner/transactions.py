"""State of transactions during compaction: aborted records are removed, a marker after its records."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from broker_embedded.storage.batch_walk import BatchAt
from broker_embedded.storage.transaction_index import AbortedTransactionEntry
from ottla_wire.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG
from ottla_wire.records.control import ControlType, decode_control_type
from ottla_wire.records.record import decode_batch


class _Aborted:
    __slots__ = ("entry", "was_seen")

    def __init__(self, entry: AbortedTransactionEntry) -> None:
        self.entry = entry
        self.was_seen = False


class CleanedTransactions:
    """Fed with every batch in order of offsets. `retained` collects the entries of the new transaction index."""

    def __init__(self) -> None:
        self._coming: list[tuple[int, AbortedTransactionEntry]] = []  # a heap by first offset
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self.retained: list[AbortedTransactionEntry] = []

    def add(self, entries: Iterable[AbortedTransactionEntry]) -> None:
        """Add aborted transactions whose markers are in the next segment."""
        for entry in entries:
            heapq.heappush(self._coming, (entry.first_offset, entry))

    def can_discard(self, batch: BatchAt) -> bool:
        """Return whether transactions alone allow dropping the batch: aborted data, or a marker without data."""
        header = batch.header
        self._begin_up_to(header.last_offset)
        if header.attributes & CONTROL_FLAG:
            return self._can_discard_marker(batch)
        if not header.attributes & TRANSACTIONAL_FLAG:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.was_seen = True
        return True

    def _can_discard_marker(self, batch: BatchAt) -> bool:
        records = decode_batch(batch.data)
        if not records:
            return True
        producer_id = batch.header.producer_id
        kind = decode_control_type(records[0].key)
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or not aborted.was_seen:
                return True
            # Records of it were still there in this round: a reader may be between them and the marker.
            self.retained.append(aborted.entry)
            return False
        if kind is ControlType.COMMIT:
            has_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not has_records
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            entry = heapq.heappop(self._coming)[1]
            self._aborted.setdefault(entry.producer_id, _Aborted(entry))
