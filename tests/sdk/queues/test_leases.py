"""The table of leases: when something is due of each, and what is kept of those that ended."""

from __future__ import annotations

import gc
import weakref

from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.lease import Lease, LeaseState
from ottla.queues.core.leases import Leases
from ottla.topics import TopicPartition

PLACE = Place(b"t" * 16, 0)


class Body:
    """What a record holds in memory."""


def leased(offset: int, *, at_ms: int = 0, record: object = None) -> Lease:
    lease = Lease(
        topic_partition=TopicPartition("jobs", 0),
        place=PLACE,
        node=1,
        offset=offset,
        record=record,
        delivery_count=1,
        acquired_ms=at_ms,
        lock_ms=10_000,
    )
    lease.becomes(LeaseState.RUNNING)
    return lease


def settle(leases: Leases, lease: Lease) -> None:
    lease.becomes(LeaseState.SETTLING)
    lease.becomes(LeaseState.SETTLED)
    leases.remove(lease)


def test_leases_that_came_together_are_due_each_by_itself() -> None:
    leases = Leases(max_job_ms=600_000)
    some = [leased(offset) for offset in range(5)]
    leases.add(PLACE, some)
    settle(leases, some[4])
    settle(leases, some[0])
    assert leases.next_due_ms() == 7_000
    assert list(leases.due(6_999)) == []
    assert list(leases.due(7_000)) == some[1:4]
    for lease in some[1:3]:
        leases.watch(lease)
    assert leases.next_due_ms() == 7_000
    settle(leases, some[1])
    settle(leases, some[2])
    assert leases.next_due_ms() is None
    assert len(leases) == 1


def test_a_member_without_leases_waits_for_no_time() -> None:
    leases = Leases(max_job_ms=600_000)
    some = [leased(offset) for offset in range(3)]
    leases.add(PLACE, some)
    assert leases.oldest_ms == 0
    for lease in some:
        settle(leases, lease)
    assert leases.next_due_ms() is None
    assert leases.oldest_ms is None
    assert not len(leases)


def test_records_of_settled_leases_are_not_kept_beside_a_job_that_takes_long() -> None:
    leases = Leases(max_job_ms=600_000)
    leases.add(PLACE, [leased(0)])
    kept: list[weakref.ref[Body]] = []
    for first in range(1, 20_001, 100):
        some = [leased(first + number, at_ms=first, record=Body()) for number in range(100)]
        kept += [weakref.ref(lease.record) for lease in some]
        leases.add(PLACE, some)
        for lease in some:
            settle(leases, lease)
        assert leases.next_due_ms() == 7_000
    del some, lease
    gc.collect()
    assert sum(each() is not None for each in kept) < 2_000
