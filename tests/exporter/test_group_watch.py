"""Since when groups stand still, and what they lost, from one reading to the next."""

from __future__ import annotations

from ottla.admin.facts.lag import GroupLag, PartitionLag
from ottla.exporter.group_watch import KEPT_MS, GroupWatch


def partition(committed: int | None, end: int | None, *, start: int | None = 0, number: int = 0) -> PartitionLag:
    lag = None if end is None or start is None else end - max(committed if committed is not None else start, start)
    return PartitionLag(topic="orders", partition=number, committed=committed, log_start=start, log_end=end, lag=lag)


def taken(watch: GroupWatch, at_ms: int, *partitions: PartitionLag) -> PartitionLag:
    watch.take([GroupLag(group_id="billing", state="Stable", partitions=partitions)], at_ms)
    return partitions[0]


def test_a_group_stalls_from_when_records_wait_and_no_commit_came() -> None:
    watch = GroupWatch()
    assert watch.stalled_since_ms("billing", taken(watch, 1_000, partition(5, 5))) is None
    assert watch.stalled_since_ms("billing", taken(watch, 2_000, partition(5, 9))) == 1_000
    assert watch.stalled_since_ms("billing", taken(watch, 3_000, partition(5, 20))) == 1_000
    assert watch.stalled_since_ms("billing", taken(watch, 4_000, partition(6, 20))) == 4_000, "it committed"
    assert watch.stalled_since_ms("billing", taken(watch, 5_000, partition(20, 20))) is None
    assert watch.stalled_since_ms("other", partition(1, 9)) is None


def test_a_partition_of_unknown_lag_neither_moves_nor_stands() -> None:
    watch = GroupWatch()
    taken(watch, 1_000, partition(5, 9))
    assert watch.stalled_since_ms("billing", taken(watch, 2_000, partition(5, None))) is None
    assert watch.stalled_since_ms("billing", taken(watch, 3_000, partition(5, 9))) == 1_000


def test_what_retention_took_unread_is_counted_once() -> None:
    watch = GroupWatch()
    taken(watch, 1_000, partition(5, 100, start=0))
    assert watch.lost("billing", "orders") == 0
    taken(watch, 2_000, partition(5, 100, start=15))
    assert watch.lost("billing", "orders") == 10
    taken(watch, 3_000, partition(5, 100, start=15))
    assert watch.lost("billing", "orders") == 10
    taken(watch, 4_000, partition(5, None, start=None))
    taken(watch, 5_000, partition(5, 100, start=20))
    assert watch.lost("billing", "orders") == 15
    taken(watch, 6_000, partition(60, 100, start=50))
    assert watch.lost("billing", "orders") == 15, "it had read them"


def test_what_was_lost_before_the_first_reading_is_not_counted() -> None:
    watch = GroupWatch()
    taken(watch, 1_000, partition(5, 100, start=50))
    taken(watch, 2_000, partition(5, 100, start=50))
    assert watch.lost("billing", "orders") == 0


def test_a_topic_that_was_created_again_has_lost_nothing() -> None:
    watch = GroupWatch()
    taken(watch, 1_000, partition(500, 600, start=400))
    taken(watch, 2_000, partition(500, 3, start=0))
    taken(watch, 3_000, partition(0, 10, start=4))
    assert watch.lost("billing", "orders") == 4


def test_a_group_that_was_not_read_is_remembered_for_a_while() -> None:
    watch = GroupWatch()
    taken(watch, 1_000, partition(5, 9))
    watch.take([], 1_000 + KEPT_MS)
    assert watch.stalled_since_ms("billing", taken(watch, 2_000 + KEPT_MS, partition(5, 9))) == 1_000
    watch.take([], 3_001 + 2 * KEPT_MS)
    assert watch.stalled_since_ms("billing", taken(watch, 10**9, partition(5, 9))) == 10**9
