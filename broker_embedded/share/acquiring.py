"""Which records a fetch leases: whole batches of the log, or no more than was asked for.

A record that cannot be handled makes a member release its whole batch, again and again, and the limit would archive
the good records with it. So once a count has reached half the limit its records are leased in lots, and alone: half a
batch, a quarter, and for the last delivery one record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .events import Acquire, Acquired, AcquiredRange, LogBatch
from .runs import Run, standing
from .states import RecordState

if TYPE_CHECKING:
    from .partition import SharePartition


def acquire(partition: SharePartition, request: Acquire, now_ms: int) -> Acquired:
    """Lease records of the batches that were read, and archive the offsets in between that have none."""
    acquired: list[AcquiredRange] = []
    ends_fetch = False
    room = request.max_records
    expected = max(request.offset, partition.start_offset)
    for batch in request.batches:
        if room <= 0:
            break
        first = max(batch.first, expected)
        if batch.last < expected:
            continue
        if first > expected:
            _archive(partition, expected, first - 1)
        expected = batch.last + 1
        if not batch.is_deliverable:
            _archive(partition, first, batch.last)
            continue
        lot = _lot(partition, first, batch)
        if lot and (acquired or request.is_continued):
            ends_fetch = True
            break
        if lot:
            taken = _one_lot(partition, request, LogBatch(first, batch.last), min(lot, room), now_ms)
        else:
            taken = _from_batch(partition, request, LogBatch(first, batch.last), room, now_ms)
        room -= sum(each.size for each in taken)
        for each in taken:
            _add(acquired, each, request.batch_size)
        if lot and taken:
            ends_fetch = True
            break
    partition.advance()
    return Acquired(ranges=tuple(acquired), ends_fetch=ends_fetch)


def _lot(partition: SharePartition, first: int, batch: LogBatch) -> int:
    """Return how many records of a batch may be leased at once; 0 for all of them."""
    limit = partition.settings.delivery_limit
    throttled_from = max(2, (limit + 1) // 2)
    counts = [
        run.standing.delivery_count for run in partition.runs.overlapping(first, batch.last) if _is_available(run)
    ]
    count = max(counts, default=0)
    if count < throttled_from:
        return 0
    if count >= limit - 1:
        return 1
    return max(1, (batch.last - batch.first + 1) >> (count - throttled_from + 1))


def _one_lot(
    partition: SharePartition, request: Acquire, batch: LogBatch, lot: int, now_ms: int
) -> list[AcquiredRange]:
    """Lease the first available records of a batch, at most `lot` of them."""
    for run in partition.runs.overlapping(batch.first, batch.last):
        if _is_available(run):
            first = max(run.first, batch.first)
            last = min(run.last, batch.last, first + lot - 1)
            (leased,) = partition.runs.within(first, last)
            partition.lease([leased], request.member_id, now_ms)
            taken = AcquiredRange(leased.first, leased.last, leased.standing.delivery_count)
            partition.runs.join(first, last)
            return [taken]
    return []


def _from_batch(
    partition: SharePartition, request: Acquire, batch: LogBatch, room: int, now_ms: int
) -> list[AcquiredRange]:
    """Lease what is available of one batch: all of it, or `room` records of a strict request."""
    taken: list[AcquiredRange] = []
    end_offset = partition.end_offset
    if batch.first < end_offset:
        for run in partition.runs.within(batch.first, min(batch.last, end_offset - 1)):
            if not _is_available(run):
                continue
            if request.is_strict:
                if room <= 0:
                    break
                if run.size > room:
                    run = partition.runs.within(run.first, run.first + room - 1)[0]
            partition.lease([run], request.member_id, now_ms)
            taken.append(AcquiredRange(run.first, run.last, run.standing.delivery_count))
            room -= run.size
        partition.runs.join(batch.first, min(batch.last, end_offset - 1))
    free = partition.settings.max_locks - partition.in_flight
    if batch.last < end_offset or free <= 0 or room <= 0:
        return taken
    last = min(batch.last, end_offset + min(room, free) - 1) if request.is_strict else batch.last
    if batch.first > end_offset:  # nothing was read in between
        return taken
    run = partition.runs.append(last, standing(RecordState.AVAILABLE, 0))
    partition.lease([run], request.member_id, now_ms)
    taken.append(AcquiredRange(run.first, run.last, 1))
    partition.runs.join(run.first, run.last)
    return taken


def _archive(partition: SharePartition, first: int, last: int) -> None:
    """Archive what is not settled yet of offsets without a record to deliver."""
    end_offset = partition.end_offset
    if first < end_offset:
        known_last = min(last, end_offset - 1)
        partition.archive([run for run in partition.runs.within(first, known_last) if _is_available(run)])
        partition.runs.join(first, known_last)
    if last >= end_offset and first <= end_offset:
        partition.archive_new(last)
        partition.runs.join(last, last)


def _is_available(run: Run) -> bool:
    return run.standing.state is RecordState.AVAILABLE and not run.write_id


def _add(acquired: list[AcquiredRange], new: AcquiredRange, batch_size: int) -> None:
    """Add a range to the last one if they agree, in pieces of at most `batch_size`."""
    previous = acquired[-1] if acquired else None
    if previous is not None and previous.last + 1 == new.first and previous.delivery_count == new.delivery_count:
        acquired.pop()
        new = AcquiredRange(previous.first, new.last, new.delivery_count)
    if batch_size <= 0 or new.size <= batch_size:
        acquired.append(new)
        return
    for first in range(new.first, new.last + 1, batch_size):
        acquired.append(AcquiredRange(first, min(first + batch_size - 1, new.last), new.delivery_count))
