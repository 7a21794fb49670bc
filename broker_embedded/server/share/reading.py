"""What one fetch of a share group acquires on one partition: bytes of whole batches, and the ranges leased in them."""

from __future__ import annotations

from collections.abc import Sequence

from broker_embedded.replication.partition import Isolation, Partition
from broker_embedded.share.events import Acquire, AcquiredRange, LogBatch, LogStartMoved
from broker_embedded.share.share_host import ShareHost
from ottla_wire.facts import fact
from ottla_wire.records.batch import BatchHeader, iter_batches

CHUNK_BYTES = 64 * 1024
"""Read at a time: a member wants some hundred records, and a partition may have a million."""


@fact
class Wanted:
    """What a fetch asks for."""

    member_id: str
    max_records: int
    max_bytes: int
    batch_size: int
    is_strict: bool


class Found:
    """What was acquired on one partition."""

    __slots__ = ("count", "ranges", "records", "size")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.ranges: list[AcquiredRange] = []
        self.count = 0
        self.size = 0


def acquire(host: ShareHost, partition: Partition, wanted: Wanted, isolation: Isolation) -> Found:
    """Acquire what there is, up to the limits of the request. Raises BrokerError, OSError."""
    found = Found()
    share = host.partition
    assert share is not None
    if partition.log_start_offset > share.start_offset:
        host.step(LogStartMoved(offset=partition.log_start_offset))
    log = partition.log
    limit = partition.read_limit(isolation)
    while found.count < wanted.max_records and (not found.size or found.size < wanted.max_bytes):
        offset = share.next_offset()
        if not share.can_acquire() or offset >= limit:
            break
        chunk = min(CHUNK_BYTES, wanted.max_bytes - found.size)
        stored = log.read(offset, max(0, chunk), max_offset=limit, at_least_one=not found.size)
        data = b"".join(stored.buffers())
        batches = list(iter_batches(data))
        if not batches:
            break
        aborted = _aborted_ranges(partition, offset, batches[-1][1].next_offset, isolation)
        acquired = host.step(
            Acquire(
                member_id=wanted.member_id,
                offset=offset,
                batches=tuple(_seen(header, aborted) for _, header in batches),
                max_records=wanted.max_records - found.count,
                batch_size=wanted.batch_size,
                is_strict=wanted.is_strict,
                is_continued=bool(found.ranges),
            )
        )
        assert acquired is not None
        if acquired.ranges:
            _add(found, data, batches, acquired.ranges)
        next_offset = share.next_offset()
        # The rest of a batch that was leased in part would be read again, and the batch be in the response twice.
        may_be_read_again = bool(acquired.ranges) and next_offset < batches[-1][1].next_offset
        if acquired.ends_fetch or may_be_read_again or next_offset <= offset:
            break
    return found


def readable_bytes(host: ShareHost, partition: Partition, isolation: Isolation, *, at_most: int) -> int:
    """Return about how many bytes a fetch would find, counting no further than `at_most`."""
    share = host.partition
    if share is None or not share.can_acquire():
        return 0
    limit = partition.read_limit(isolation)
    offset = max(share.next_offset(), partition.log_start_offset)
    if offset >= limit:
        return 0
    return partition.log.read(offset, at_most, max_offset=limit, at_least_one=True).size


def _add(
    found: Found, data: bytes, batches: Sequence[tuple[int, BatchHeader]], ranges: Sequence[AcquiredRange]
) -> None:
    """Add the bytes from the first acquired batch to the last."""
    first, last = ranges[0].first, ranges[-1].last
    begin = next(position for position, header in batches if header.last_offset >= first)
    end = next(
        (position for position, header in batches if header.base_offset > last),
        batches[-1][0] + batches[-1][1].size_in_bytes,
    )
    found.records.append(data[begin:end])
    found.size += end - begin
    found.ranges += ranges
    found.count += sum(each.size for each in ranges)


Aborted = list[tuple[int, int, int]]
"""Producer id, first and last offset of aborted transactions."""


def _aborted_ranges(partition: Partition, start: int, end: int, isolation: Isolation) -> Aborted:
    if isolation is not Isolation.READ_COMMITTED:
        return []
    return [
        (each.producer_id, each.first_offset, each.last_offset) for each in partition.log.aborted_entries(start, end)
    ]


def _seen(header: BatchHeader, aborted: Aborted) -> LogBatch:
    is_aborted = header.is_transactional and any(
        producer_id == header.producer_id and first <= header.base_offset <= last
        for producer_id, first, last in aborted
    )
    return LogBatch(header.base_offset, header.last_offset, not header.is_control and not is_aborted)


def isolation_of(level: str) -> Isolation:
    """Return how far a group reads (`share.isolation.level`)."""
    return Isolation.READ_COMMITTED if level == "read_committed" else Isolation.HIGH_WATERMARK
