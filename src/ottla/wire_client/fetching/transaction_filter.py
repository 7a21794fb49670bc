"""Which transactional batches a read_committed reader shows.

A Fetch response lists the aborted transactions that overlap it, each with its producer and first offset; the log itself
has a control record where the abort was written. Between the two, every transactional batch of that producer is dropped
(KIP-98). The rule needs the batches of one partition in order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_wire.records import BATCH_OVERHEAD, BatchHeader
from ottla_wire.records.control import AbortedTransaction


class TransactionFilter:
    """Feed it every batch of a partition in order."""

    __slots__ = ("_aborting", "_next", "_waiting")

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._waiting = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        self._aborting: set[int] = set()

    def shows(self, data: memoryview, position: int, header: BatchHeader) -> bool:
        """Return whether the records of this batch are part of the committed log."""
        while self._next < len(self._waiting) and self._waiting[self._next].first_offset <= header.last_offset:
            self._aborting.add(self._waiting[self._next].producer_id)
            self._next += 1
        if header.is_control:
            if _is_abort_marker(data, position, header):
                self._aborting.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._aborting)


def _is_abort_marker(data: memoryview, position: int, header: BatchHeader) -> bool:
    """Return whether a control record is an abort marker: its key is a version (int16) and a type (int16), 0 abort, 1
    commit."""
    # length, attributes, timestamp delta, offset delta and key length are one byte each in a marker: the broker writes
    # markers alone in a batch, with zero deltas, and the key is four bytes long.
    body = position + BATCH_OVERHEAD
    is_whole = header.size_in_bytes >= BATCH_OVERHEAD + 9
    return is_whole and int.from_bytes(data[body + 7 : body + 9], "big") == 0
