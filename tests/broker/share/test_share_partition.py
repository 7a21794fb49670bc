"""A share partition step by step: lots that shrink, and what many leases cost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker_embedded.share.events import (
    Acknowledge,
    AcknowledgedRange,
    Acquire,
    Acquired,
    AcquiredRange,
    LogBatch,
    Persist,
    Persisted,
    PersistedState,
    Tick,
)
from broker_embedded.share.partition import SharePartition, ShareSettings
from broker_embedded.share.states import AcknowledgeType


def acquire(
    partition: SharePartition, batches: list[LogBatch], *, now_ms: int = 0, **more: object
) -> list[AcquiredRange]:
    offset = partition.next_offset()
    seen = tuple(each for each in batches if each.last >= offset)
    event = Acquire(member_id="m", offset=offset, batches=seen, **{"max_records": 500, **more})  # type: ignore[arg-type]
    (acquired,) = [each for each in partition.step(event, now_ms) if isinstance(each, Acquired)]
    return list(acquired.ranges)


def settle(partition: SharePartition, held: list[AcquiredRange], kind: AcknowledgeType) -> None:
    ranges = tuple(AcknowledgedRange(each.first, each.last, (kind,)) for each in held)
    for effect in partition.step(Acknowledge(ticket=object(), member_id="m", ranges=ranges), 0):
        if isinstance(effect, Persist):
            partition.step(Persisted(write_id=effect.write_id), 0)


def test_lots_shrink_until_a_bad_record_is_alone() -> None:
    """A record that is always released takes the others of its batch down only to the lot before the last."""
    partition = SharePartition(PersistedState(0, 0), ShareSettings(delivery_limit=5))
    batches = [LogBatch(0, 99)]
    sizes = []
    for _ in range(3):
        held = acquire(partition, batches)
        sizes.append([each.size for each in held])
        settle(partition, held, AcknowledgeType.RELEASE)
    assert sizes == [[100], [100], [100]]
    lot = acquire(partition, batches)
    assert lot == [AcquiredRange(0, 49, 4)]
    settle(partition, lot, AcknowledgeType.RELEASE)
    assert acquire(partition, batches) == [AcquiredRange(0, 0, 5)]


def test_a_lot_is_leased_alone() -> None:
    """What failed often does not come with other records, which would be released with it."""
    partition = SharePartition(PersistedState(0, 0), ShareSettings(delivery_limit=3))
    batches = [LogBatch(0, 1), LogBatch(2, 3), LogBatch(4, 5), LogBatch(6, 7)]
    assert acquire(partition, batches[:3]) == [AcquiredRange(0, 5, 1)]
    settle(partition, [AcquiredRange(0, 1, 1), AcquiredRange(2, 3, 1)], AcknowledgeType.RELEASE)
    assert acquire(partition, batches[:3]) == [AcquiredRange(0, 3, 2)]
    settle(partition, [AcquiredRange(2, 3, 2)], AcknowledgeType.RELEASE)
    assert acquire(partition, batches) == [AcquiredRange(2, 2, 3)]
    assert acquire(partition, batches) == [AcquiredRange(3, 3, 3)]
    assert acquire(partition, batches) == [AcquiredRange(6, 7, 1)]


def lease_one_by_one(first_ms: int = 0) -> SharePartition:
    """Lease as many records as a partition may have in flight, each with a run and a deadline of its own."""
    partition = SharePartition(PersistedState(0, 0), ShareSettings(max_locks=10_000))
    for offset in range(10_000):
        acquire(partition, [LogBatch(offset, offset)], now_ms=first_ms + offset, max_records=1, is_strict=True)
    return partition


@contextmanager
def memory_of(what: str) -> Iterator[list[int]]:
    """Yield a list that has the bytes that were allocated and kept, once the block has ended."""
    sizes: list[int] = []
    tracemalloc.start()
    try:
        yield sizes
        sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    print(f"{what}: {sizes[0] / 1e6:.1f} MB")


def test_ten_thousand_leases_of_one_record_take_less_than_2_mb() -> None:
    with memory_of("10,000 leases") as sizes:
        partition = lease_one_by_one()
    assert partition.in_flight == 10_000
    assert sizes[0] < 2_000_000
    expired = partition.step(Tick(), 1_000_000)
    assert len([each for each in expired if isinstance(each, Persist)]) == 1, "one write for all that expired together"
    assert acquire(partition, [LogBatch(0, 9_999)], now_ms=1_000_000)[0] == AcquiredRange(0, 9_999, 2)


@pytest.mark.complete
@pytest.mark.timeout(900)
def test_a_million_leases_over_a_hundred_partitions_take_less_than_300_mb() -> None:
    with memory_of("1,000,000 leases") as sizes:
        partitions = [lease_one_by_one(number * 10_000) for number in range(100)]
    assert sum(partition.in_flight for partition in partitions) == 1_000_000
    assert sum(len(partition.runs) for partition in partitions) == 1_000_000
    assert sizes[0] < 300_000_000


def test_records_that_agree_are_one_run() -> None:
    partition = SharePartition(PersistedState(0, 0), ShareSettings())
    held = acquire(partition, [LogBatch(0, 999)])
    assert len(partition.runs) == 1
    settle(partition, [AcquiredRange(5, 5, 1), AcquiredRange(7, 7, 1)], AcknowledgeType.ACCEPT)
    assert len(partition.runs) == 5
    settle(partition, [AcquiredRange(6, 6, 1)], AcknowledgeType.ACCEPT)
    assert len(partition.runs) == 3
    assert held == [AcquiredRange(0, 999, 1)]
