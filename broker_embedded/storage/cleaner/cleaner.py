"""One cleaning of one log, in steps, so that an event loop can do other things in between.

    1. Read the dirty part and remember the last offset of each key.
    2. Flush it and save the recovery point behind it. Recovery after a crash then does not check the cleaned segments:
       one may end long before the next one starts, and would be taken for a segment that lost its end.
    3. For groups of segments that fit into one: write a replacement (`.cleaned`) with what stays, fsync it.
    4. Swap it in. The `.log` renamed to `.swap` is the point of no return; `log_loader` goes on from there.

Readers see the old segments until the swap and the new one after it. Appends go on: the active segment is not cleaned.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from broker_embedded.storage.batch_walk import BatchAt
from broker_embedded.storage.cleaner.batch_filter import BatchFilter, LastOfProducer
from broker_embedded.storage.cleaner.offset_map import OffsetMap
from broker_embedded.storage.cleaner.selection import LogToClean
from broker_embedded.storage.cleaner.transactions import CleanedTransactions
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_loader import CLEANED_SUFFIX, SWAP_SUFFIX
from broker_embedded.storage.offset_index import MAX_RELATIVE_OFFSET
from broker_embedded.storage.segment import LogSegment
from broker_embedded.storage.transaction_index import AbortedTransactionEntry
from ottla_wire.records.batch import check_crc, parse_header
from ottla_wire.records.record import decode_batch

logger = logging.getLogger(__name__)

_STEP_BYTES = 1 << 20


class CleaningAbortedError(Exception):
    """The log lost segments while it was being cleaned (truncation, retention, deletion). Start again later."""


class Cleaning:
    """`for _ in Cleaning(target, now_ms=...).steps(): ...`; afterwards `log.cleaned_to` has moved."""

    def __init__(self, target: LogToClean, *, now_ms: int, max_keys: int = 1_000_000) -> None:
        self._target = target
        self._log: Log = target.log
        self._now_ms = now_ms
        self._offsets = OffsetMap(max_entries=max_keys)
        self._offsets.latest_offset = target.first_dirty_offset - 1
        self._changes = target.log.segments.changes
        self._unfinished: LogSegment | None = None

    @property
    def log(self) -> Log:
        return self._log

    def run(self) -> None:
        """Run all steps at once."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Yield about once per megabyte read. CleaningAbortedError if the log changed in a way that matters."""
        try:
            yield from self._map_dirty_part()
            end_offset = self._offsets.latest_offset + 1
            self._log.save_recovery_point(self._target.end_offset)
            transactions = CleanedTransactions()
            for group in self._groups(end_offset):
                yield from self._clean_group(group, transactions)
            self._log.cleaned_to = max(self._log.cleaned_to, end_offset)
        finally:
            if self._unfinished is not None:
                self._unfinished.delete_files()

    # -- 1. which record of each key is the last

    def _map_dirty_part(self) -> Iterator[None]:
        start, end = self._target.first_dirty_offset, self._target.end_offset
        transactions = CleanedTransactions()
        pending = 0
        segments = self._log.segments.holding(start, end)
        for segment in segments:
            transactions.add(self._aborted_in(segment))
            located = segment.locate(start)
            for batch in segment.batches(located.position) if located is not None else ():
                if not self._map_batch(batch, transactions, start):
                    return
                pending += len(batch.data)
                if pending >= _STEP_BYTES:
                    pending = 0
                    yield
                    self._check_unchanged()
            # Offsets may be missing at the end of a segment that was cleaned before: the next one starts later.
            next_base = self._log.segments.next_base_offset(segment)
            self._offsets.latest_offset = min(next_base if next_base is not None else end, end) - 1

    def _map_batch(self, batch: BatchAt, transactions: CleanedTransactions, start: int) -> bool:
        """Return False if the map is full; then the batch is not in it, and `latest_offset` says so."""
        is_discarded = transactions.can_discard(batch)
        if not batch.header.is_control and not is_discarded:
            for record in decode_batch(batch.data):
                if record.key is None or record.offset < start:
                    continue
                if not self._offsets.put(record.key, record.offset):
                    # A part of the batch is in the map: records before this one may be compared with it safely.
                    self._offsets.latest_offset = record.offset - 1
                    return False
        self._offsets.latest_offset = batch.header.last_offset
        return True

    # -- 3. write the replacement

    def _groups(self, end_offset: int) -> list[list[LogSegment]]:
        """Return neighbours that fit into one segment together, so that cleaned segments do not get smaller and
        smaller."""
        config = self._log.config
        groups: list[list[LogSegment]] = []
        sizes = [0, 0, 0]
        for segment in self._log.segments.holding(0, end_offset):
            if segment is self._log.segments.active:
                break
            added = [segment.size, segment.offset_index.size_bytes, segment.time_index.size_bytes]
            total = [a + b for a, b in zip(sizes, added, strict=True)]
            next_base = self._log.segments.next_base_offset(segment) or end_offset
            fits = (
                bool(groups)
                and total[0] <= config.segment_bytes
                and max(total[1:]) <= config.segment_index_bytes
                and next_base - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
            )
            if fits:
                groups[-1].append(segment)
                sizes = total
            else:
                groups.append([segment])
                sizes = added
        return groups

    def _clean_group(self, group: Sequence[LogSegment], transactions: CleanedTransactions) -> Iterator[None]:
        log = self._log
        cleaned = self._unfinished = log.new_segment(group[0].base_offset, group[-1].created_ms, suffix=CLEANED_SUFFIX)
        cleaned.delete_files()  # what an earlier, failed attempt left
        cleaned.size = 0
        cleaned.create_files()
        batch_filter = BatchFilter(
            self._offsets,
            active_producers=LastOfProducer.of(log.producers.entries),
            high_watermark=log.high_watermark,
            delete_retention_ms=log.config.delete_retention_ms,
            now_ms=self._now_ms,
        )
        pending = 0
        for segment in group:
            transactions.add(self._aborted_in(segment))
            for batch in segment.batches():
                if not check_crc(batch.data, 0, batch.header):  # what is written again gets a CRC that is right
                    raise ValueError(f"{segment.log_file.path}: the batch at position {batch.position} has a wrong CRC")
                kept = batch_filter.apply(batch, can_discard=transactions.can_discard(batch))
                if kept is not None:
                    _append(cleaned, kept)
                pending += len(batch.data)
                if pending >= _STEP_BYTES:
                    pending = 0
                    yield
                    self._check_unchanged()
        for entry in transactions.retained:
            cleaned.txn_index.append(entry)
        transactions.retained = []
        cleaned.stop_writing()
        cleaned.flush()
        modified_ms = log.modified_ms(group[-1])
        log.set_modified_ms(cleaned, modified_ms)
        self._check_unchanged()
        log.replace_segments(group, cleaned, swap_suffix=SWAP_SUFFIX)
        self._unfinished = None
        self._changes = log.segments.changes
        yield
        self._check_unchanged()

    # -- helpers

    def _aborted_in(self, segment: LogSegment) -> Sequence[AbortedTransactionEntry]:
        """Return every aborted transaction with records in this segment, including those whose marker is in a later
        one."""
        next_base = self._log.segments.next_base_offset(segment)
        end = self._log.log_end_offset if next_base is None else next_base
        return self._log.aborted_entries(segment.base_offset, end)

    def _check_unchanged(self) -> None:
        if self._log.segments.changes != self._changes:
            raise CleaningAbortedError(f"{self._log.name} lost segments during its cleaning")


def _append(segment: LogSegment, data: bytes | memoryview) -> None:
    header = parse_header(data, 0)
    segment.note_batch(
        position=segment.write(data),
        size=len(data),
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        max_timestamp_ms=header.max_timestamp,
    )
