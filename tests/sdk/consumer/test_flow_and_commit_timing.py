"""When a partition is paused and resumed, and when a commit is due."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.consumer.commit.commits import CommitPolicy, CommitTimer
from ottla.consumer.partitions.flow import FlowControl, FlowLimits, HandlingRate, PauseReason
from ottla.errors import ConfigError
from ottla.records import TopicPartition

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
LIMITS = FlowLimits(high_records=100, low_records=20, high_bytes=10_000, low_bytes=2_000, hold_ms=5)


def full(flow: FlowControl, now_ms: int, records: int = 100, size_bytes: int = 0) -> None:
    flow.observe(A, records=records, size_bytes=size_bytes, now_ms=now_ms)


def test_a_full_buffer_is_held_before_it_is_paused() -> None:
    flow = FlowControl(LIMITS)
    full(flow, 0)
    assert list(flow.held) == [A]
    assert flow.changes() == ([], [])

    full(flow, 5)
    assert flow.changes() == ([A], [])
    assert list(flow.held) == []


def test_a_buffer_that_drains_in_time_is_never_paused() -> None:
    flow = FlowControl(LIMITS)
    full(flow, 0)
    full(flow, 4, records=99)
    full(flow, 5)
    full(flow, 9)

    assert flow.changes() == ([], [])


def test_it_resumes_below_the_low_watermark_only() -> None:
    flow = FlowControl(LIMITS)
    full(flow, 0)
    full(flow, 5)
    flow.changes()

    full(flow, 6, records=21)
    assert flow.changes() == ([], [])
    full(flow, 7, records=20)
    assert flow.changes() == ([], [A])


def test_bytes_count_as_well_as_records() -> None:
    flow = FlowControl(LIMITS)
    full(flow, 0, records=3, size_bytes=10_000)
    full(flow, 5, records=3, size_bytes=10_000)
    assert flow.changes() == ([A], [])

    full(flow, 6, records=0, size_bytes=2_001)
    assert flow.changes() == ([], [])
    full(flow, 7, records=0, size_bytes=2_000)
    assert flow.changes() == ([], [A])


def test_only_the_full_partition_is_paused() -> None:
    flow = FlowControl(LIMITS)
    for now_ms in (0, 5):
        full(flow, now_ms)
        flow.observe(B, records=99, size_bytes=0, now_ms=now_ms)

    assert flow.changes() == ([A], [])


def test_the_client_hears_of_the_first_and_of_the_last_reason() -> None:
    flow = FlowControl(LIMITS)
    flow.pause(A, PauseReason.USER)
    assert flow.changes() == ([A], [])
    flow.pause(A, PauseReason.STOPPED)
    flow.resume(A, PauseReason.USER)
    assert flow.changes() == ([], [])
    flow.resume(A, PauseReason.STOPPED)

    assert flow.changes() == ([], [A])


def test_a_revoked_partition_takes_its_pause_along() -> None:
    flow = FlowControl(LIMITS)
    flow.pause(A, PauseReason.USER)
    flow.forget(A)

    assert flow.changes() == ([], [])
    assert not flow.is_paused(A)


def test_a_fast_handler_gets_a_buffer_that_lasts_for_its_lead_time() -> None:
    flow = FlowControl(replace(LIMITS, lead_s=1.0))
    for now_ms in (0, 5):
        flow.observe(A, records=999, size_bytes=0, now_ms=now_ms, records_per_s=1_000)
    assert flow.changes() == ([], [])
    for now_ms in (6, 11):
        flow.observe(A, records=1_000, size_bytes=0, now_ms=now_ms, records_per_s=1_000)
    assert flow.changes() == ([A], [])

    flow.observe(A, records=501, size_bytes=0, now_ms=12, records_per_s=1_000)
    assert flow.changes() == ([], [])
    flow.observe(A, records=500, size_bytes=0, now_ms=13, records_per_s=1_000)
    assert flow.changes() == ([], [A])


def test_bytes_bound_the_buffer_however_fast_the_handler_is() -> None:
    flow = FlowControl(LIMITS)
    for now_ms in (0, 5):
        flow.observe(A, records=10, size_bytes=10_000, now_ms=now_ms, records_per_s=1e9)

    assert flow.changes() == ([A], [])


@pytest.mark.parametrize(
    ("records", "size_bytes", "total_records"),
    [(100, 10_000, 1_000), (100, 0, 150)],
    ids=["over in bytes", "the room is short"],
)
def test_what_its_pace_cannot_change_is_paused_although_the_pace_is_not_known(
    records: int, size_bytes: int, total_records: int
) -> None:
    flow = FlowControl(replace(LIMITS, total_records=total_records))
    for now_ms in (0, 5):
        flow.observe(A, records=records, size_bytes=size_bytes, now_ms=now_ms, records_per_s=None)

    assert flow.changes() == ([A], [])


def test_partitions_of_a_slow_handler_are_not_held_one_after_the_other() -> None:
    flow = FlowControl(LIMITS)
    for now_ms in (0, 49, 50):
        assert flow.changes() == ([], [])
        flow.observe(A, records=100, size_bytes=0, now_ms=now_ms, records_per_s=None)
    assert flow.changes() == ([A], [])

    for now_ms in (51, 56):
        flow.observe(B, records=100, size_bytes=0, now_ms=now_ms, records_per_s=None)
    assert flow.changes() == ([B], [])


def test_the_pace_is_known_after_the_first_run() -> None:
    pace = HandlingRate(0)
    pace.came(0)
    pace.finished(20, 4, is_idle=False)
    assert pace.records_per_s is None, "too short to tell"
    pace.finished(30, 5, is_idle=False)
    assert pace.records_per_s == 10_000

    pace.finished(400, 14, is_idle=False)
    assert pace.records_per_s == 10_000
    pace.finished(0, 15, is_idle=False)
    assert pace.records_per_s == 40_000, "the second sample is taken soon as well"


def test_the_pace_fades_every_tenth_of_a_second() -> None:
    pace = HandlingRate(0)
    pace.came(0)
    for at_ms in (5, 15, 35, 75):
        pace.finished(1_000, at_ms, is_idle=False)
    assert pace.records_per_s == pytest.approx(200_000 * 0.9**3)

    pace.finished(0, 154, is_idle=False)
    assert pace.records_per_s == pytest.approx(200_000 * 0.9**3)
    pace.finished(0, 155, is_idle=False)
    pace.finished(0, 255, is_idle=False)
    assert pace.records_per_s == pytest.approx(200_000 * 0.9**5)


def test_waiting_for_records_does_not_lower_the_pace() -> None:
    pace = HandlingRate(0)
    pace.came(200)  # since the assignment the client was fetching
    pace.finished(100, 210, is_idle=True)
    assert pace.records_per_s == 10_000

    pace.came(1_000)
    pace.finished(150, 1_005, is_idle=True)
    pace.came(5_000)
    pace.finished(150, 5_005, is_idle=False)
    assert pace.records_per_s == 30_000


SHARED = FlowLimits(high_bytes=1_000, low_bytes=500, total_bytes=1_200, hold_ms=0)


def hold(flow: FlowControl, number: int, size_bytes: int) -> TopicPartition:
    name = TopicPartition("orders", number)
    flow.observe(name, records=size_bytes // 10, size_bytes=size_bytes, now_ms=0)
    return name


def test_one_partition_may_have_half_of_the_room_and_two_have_a_third_each() -> None:
    flow = FlowControl(SHARED)
    hold(flow, 0, 590)
    assert flow.changes() == ([], [])
    first = hold(flow, 0, 600)
    assert flow.changes() == ([first], [])

    second = hold(flow, 1, 200)
    assert flow.changes() == ([], []), "the other one has room"
    hold(flow, 0, 400)
    hold(flow, 1, 390)
    assert flow.changes() == ([], [])
    hold(flow, 1, 400)
    assert flow.changes() == ([second], [])


def test_a_partition_that_the_room_was_too_small_for_resumes_at_half_of_what_it_had() -> None:
    flow = FlowControl(SHARED)
    first = hold(flow, 0, 600)
    flow.changes()
    hold(flow, 0, 310)
    assert flow.changes() == ([], [])
    hold(flow, 0, 300)
    assert flow.changes() == ([], [first])


def test_a_partition_with_nothing_buffered_is_never_kept_waiting_by_the_others() -> None:
    flow = FlowControl(FlowLimits(high_bytes=1_000, low_bytes=500, total_bytes=100, hold_ms=0))
    first, second = hold(flow, 0, 90), hold(flow, 1, 90)
    assert flow.changes() == ([first, second], []), "two batches that came at the same time"
    hold(flow, 0, 0)
    assert flow.changes() == ([], [first])


def test_a_revoked_partition_gives_its_room_back() -> None:
    flow = FlowControl(SHARED)
    first = hold(flow, 0, 600)
    flow.forget(first)
    assert flow.buffered == (0, 0)
    hold(flow, 1, 590)

    assert flow.changes() == ([], [])


@given(
    partitions=st.integers(1, 80),
    steps=st.lists(st.tuples(st.integers(0, 79), st.integers(1, 300)), min_size=1, max_size=300),
)
def test_all_partitions_together_hold_no_more_than_the_room_and_the_batch_that_filled_it(
    partitions: int, steps: list[tuple[int, int]]
) -> None:
    """Whoever is not paused gets more; nothing is ever done. What is over the room was under way when it was full."""
    flow = FlowControl(FlowLimits(high_bytes=5_000, low_bytes=1, total_bytes=10_000, hold_ms=0))
    sizes: dict[int, int] = {}
    paused: set[TopicPartition] = set()
    for number, size_bytes in steps:
        number %= partitions
        if TopicPartition("orders", number) in paused:
            continue
        before = flow.buffered[1]
        sizes[number] = sizes.get(number, 0) + size_bytes
        hold(flow, number, sizes[number])
        paused.update(flow.changes()[0])
        assert flow.buffered[1] == sum(sizes.values())
        is_first = sizes[number] == size_bytes
        assert before < 10_000 or is_first
    assert flow.buffered[1] < 10_000 + 300 * partitions


class PauseLedger(RuleBasedStateMachine):
    """What the client was told always equals whether anybody wants the pause."""

    def __init__(self) -> None:
        super().__init__()
        self.flow = FlowControl(LIMITS)
        self.wanted: dict[TopicPartition, set[PauseReason]] = {A: set(), B: set()}
        self.told = {A: False, B: False}

    @rule(partition=st.sampled_from([A, B]), reason=st.sampled_from([PauseReason.USER, PauseReason.STOPPED]))
    def pause(self, partition: TopicPartition, reason: PauseReason) -> None:
        self.flow.pause(partition, reason)
        self.wanted[partition].add(reason)

    @rule(partition=st.sampled_from([A, B]), reason=st.sampled_from([PauseReason.USER, PauseReason.STOPPED]))
    def resume(self, partition: TopicPartition, reason: PauseReason) -> None:
        self.flow.resume(partition, reason)
        self.wanted[partition].discard(reason)

    @rule()
    def tell(self) -> None:
        to_pause, to_resume = self.flow.changes()
        for partition in to_pause:
            assert not self.told[partition], "told to pause twice"
            self.told[partition] = True
        for partition in to_resume:
            assert self.told[partition], "told to resume what was not paused"
            self.told[partition] = False
        assert self.told == {partition: bool(reasons) for partition, reasons in self.wanted.items()}

    @invariant()
    def the_ledger_agrees(self) -> None:
        assert {p: self.flow.is_paused(p) for p in self.wanted} == {p: bool(r) for p, r in self.wanted.items()}


TestPauseLedger = PauseLedger.TestCase


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"high_records": 10, "low_records": 10}, "low_records"),
        ({"high_bytes": 10, "low_bytes": 20}, "low_bytes"),
        ({"hold_ms": -1}, "hold_ms"),
        ({"lead_s": -1}, "lead_s"),
        ({"total_records": 0}, "total_records"),
        ({"total_bytes": 0}, "total_bytes"),
    ],
)
def test_limits_that_make_no_sense_are_refused_by_name(values: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        FlowLimits(**values)


def test_a_commit_is_due_by_records_or_by_time() -> None:
    timer = CommitTimer(CommitPolicy(every_records=10, every_s=1), now_ms=0)
    timer.count(9)
    assert not timer.is_due(999)
    assert timer.is_due(1_000)
    timer.count(1)
    assert timer.is_due(1)


def test_one_commit_at_a_time() -> None:
    timer = CommitTimer(CommitPolicy(every_records=1, every_s=1), now_ms=0)
    timer.count(1)
    timer.sent(0)
    timer.count(5)
    assert not timer.is_due(5_000)

    timer.answered()
    assert timer.is_due(1)


def test_a_failed_commit_is_tried_again_soon() -> None:
    timer = CommitTimer(CommitPolicy(every_s=60), now_ms=0)
    timer.sent(0)
    timer.failed(10)

    assert not timer.is_due(509)
    assert timer.is_due(510)


@pytest.mark.parametrize(("values", "named"), [({"every_records": 0}, "every_records"), ({"every_s": -1}, "every_s")])
def test_a_commit_policy_that_makes_no_sense_is_refused_by_name(values: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        CommitPolicy(**values)  # type: ignore[arg-type]


def test_when_the_room_is_used_up_whoever_holds_something_is_looked_at() -> None:
    flow = FlowControl(replace(LIMITS, total_bytes=100, high_bytes=100, low_bytes=10))
    restoring = TopicPartition("orders-retry", 0)
    places = [TopicPartition("orders", number) for number in range(5)]
    flow.count(restoring, records=1, size_bytes=10)
    for place in places[:4]:
        flow.observe(place, records=2, size_bytes=22 if place.partition else 0, now_ms=0)
    assert list(flow.held) == [], "none of them holds more than is free"
    flow.observe(places[4], records=2, size_bytes=24, now_ms=1)
    assert sorted(flow.held) == places
    for place in places:
        flow.observe(place, records=2, size_bytes=24 if place.partition == 4 else 22, now_ms=6)
    assert flow.changes() == (places, [])
    assert not flow.is_paused(restoring), "what is only counted is not bounded here"
    flow.observe(places[0], records=0, size_bytes=0, now_ms=7)
    flow.observe(places[1], records=1, size_bytes=11, now_ms=7)
    assert flow.changes() == ([], [places[0]]), "there is room for one that holds nothing"
    flow.observe(places[2], records=0, size_bytes=0, now_ms=8)
    flow.observe(places[1], records=1, size_bytes=11, now_ms=8)
    assert flow.changes() == ([], places[1:3])
