"""Retry topics, event by event: where a failed record goes, what follows it, when it comes back."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

import pytest
from session_driver import measure_of

from ottla.consumer.commit.commits import CommitPolicy
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Effect,
    FindRetryPositions,
    Notice,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.consumer.model.effects import Dispatch as DispatchRun
from ottla.consumer.model.failed_writes import WriteDeadLetter, WriteRetry
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.errors import ConfigError
from ottla.failures import NO_RETRY, Dead, ExceptionTable, Failure, FailurePolicy, Retry, RetryPolicy, RetryTopics
from ottla.failures.retry_headers import RetryState, original_of, retry_state_of
from ottla.records import Header, Record, TopicPartition
from ottla.telemetry.metrics.measurements import WaitingRetry

TOPIC = TopicPartition("orders", 0)
NAMES = ("orders.g.retry.1", "orders.g.retry.2")
FIRST, SECOND = (TopicPartition(name, 0) for name in NAMES)
BOOM = ExceptionTable().failure_of(RuntimeError("boom"))
EPOCH_MS = 1_700_000_000_000
E = TypeVar("E", bound=Effect)


def of(kind: type[E], effects: list[Effect]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


class Line:
    """A session that has the whole line, and a clock that stands still."""

    def __init__(self, *, ends: dict[TopicPartition, tuple[int, int]] | None = None, **options: Any) -> None:
        retry = options.pop("retry", NO_RETRY)
        topics = RetryTopics(
            delays_s=options.pop("delays_s", (10, 60)), keep_key_order=options.pop("keep_key_order", True)
        )
        dead = options.pop("dead_letter_topic", "dead")
        session = {name: options.pop(name) for name in ("flow", "unready_after_ms") if name in options}
        self.now_ms = 0
        self.session = Session(
            [
                RoutePlan(
                    name="handler",
                    topics=frozenset({"orders"}),
                    failures=FailurePolicy(retry=retry, retry_topics=topics, dead_letter_topic=dead),
                    retry_chains={"orders": NAMES},
                    **{"ordering": Ordering.KEY, "concurrency": 4, **options},
                )
            ],
            group="g",
            now_ms=0,
            random=Random(1),
            **session,
            commits=CommitPolicy(every_s=5),
            epoch_offset_ms=EPOCH_MS,
        )
        self.effects: list[Effect] = []
        self.runs: list[Run] = []
        self.step(events.Assigned([TOPIC, FIRST, SECOND]))
        if ends is None:
            ends = {FIRST: (0, 0), SECOND: (0, 0)}
        if ends:
            self.step(events.RetryPositionsFound([FIRST, SECOND], ends))

    def step(self, event: events.Event, *, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        effects = self.session.step(event, self.now_ms)
        self.effects += effects
        self.runs += [effect.run for effect in effects if isinstance(effect, DispatchRun)]
        return effects

    def fetch(self, partition: TopicPartition, *offsets: int, key: bytes | None = b"k") -> list[Effect]:
        records: list[AnyRecord] = [
            Record(*partition, offset, 5, key, b"v", [("own", b"\xff")], key, b"v") for offset in offsets
        ]
        return self.step(events.Fetched(partition, records, 10 * len(records)))

    def fetch_written(self, letter: WriteRetry, offset: int) -> list[Effect]:
        built = letter.build()
        name = TopicPartition(letter.target, letter.target_partition)
        record: AnyRecord = Record(
            *name, offset, 5, built.key, built.value, list(built.headers), built.key, built.value
        )
        return self.step(events.Fetched(name, [record], 10))

    def fail(self, failure: Failure = BOOM) -> list[Effect]:
        run = self.runs.pop(0)
        rest = run.records[1:]
        return self.step(
            events.RunFinished(run, RunResult(done=(), failures=[(run.records[0], failure)], untouched=rest))
        )

    def succeed(self) -> list[Effect]:
        return self.step(events.RunFinished(self.runs.pop(0), RunResult()))

    def acknowledge(self, letter: WriteRetry | WriteDeadLetter) -> list[Effect]:
        return self.step(events.WriteAcknowledged(letter.topic_partition, letter.epoch, letter.record.offset))

    def handled(self) -> list[tuple[str, int]]:
        return [(run.topic_partition.topic, record.offset) for run in self.runs for record in run.records]


def test_a_failed_record_goes_to_the_first_retry_topic_with_its_state() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())

    assert (letter.target, letter.target_partition) == ("orders.g.retry.1", 0)
    built = letter.build()
    assert (built.key, built.value, built.headers[0]) == (b"k", b"v", ("own", b"\xff"))
    assert retry_state_of(built.headers) == RetryState(
        topic="orders",
        partition=0,
        offset=7,
        timestamp_ms=5,
        attempts=1,
        first_failure_ms=EPOCH_MS,
        not_before_ms=EPOCH_MS + 10_000,
        error_type="RuntimeError",
        message="boom",
    )


def test_its_offset_is_done_when_the_retry_topic_acknowledged_it_and_not_before() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    assert of(Commit, line.step(events.Tick(), after_ms=5_000)) == []

    line.acknowledge(letter)
    assert of(Commit, line.step(events.Tick(), after_ms=5_000)) == [Commit({TOPIC: (8, "")})]


def test_it_is_handled_when_it_is_due_and_its_partition_is_paused_until_then() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    line.acknowledge(letter)
    assert of(PausePartitions, line.fetch_written(letter, 0)) == [PausePartitions([FIRST])]
    assert of(ResumePartitions, line.step(events.Tick(), after_ms=9_999)) == []
    assert line.runs == []

    assert of(ResumePartitions, line.step(events.Tick(), after_ms=1)) == [ResumePartitions([FIRST])]
    assert line.handled() == [(FIRST.topic, 0)]
    assert line.runs[0].attempt == 2
    assert original_of(line.runs[0].records[0]).position == "orders-0@7"


def test_from_the_last_retry_topic_it_becomes_a_dead_letter_of_its_own_topic() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (first,) = of(WriteRetry, line.fail())
    line.acknowledge(first)
    line.fetch_written(first, 0)
    line.step(events.Tick(), after_ms=10_000)
    (second,) = of(WriteRetry, line.fail())
    assert second.target == SECOND.topic
    assert second.state.attempts == 2
    assert second.state.first_failure_ms == EPOCH_MS
    line.acknowledge(second)
    line.fetch_written(second, 0)
    line.step(events.Tick(), after_ms=60_000)
    (dead,) = of(WriteDeadLetter, line.fail())

    built = dead.build()
    texts = {name: value for name, value in built.headers if value is not None}
    assert texts["ottla-dlq-topic"] == b"orders"
    assert texts["ottla-dlq-offset"] == b"7"
    assert texts["ottla-dlq-attempts"] == b"3"
    assert not [name for name, _ in built.headers if name.startswith("ottla-retry-")]


def test_without_a_dead_letter_topic_the_last_retry_topic_stops_and_the_topic_goes_on() -> None:
    line = Line(dead_letter_topic=None, keep_key_order=False)
    state = RetryState(topic="orders", partition=0, offset=7, timestamp_ms=5, attempts=2, not_before_ms=0)
    record: AnyRecord = Record(*SECOND, 0, 5, b"k", b"v", state.to_headers([]), b"k", b"v")
    line.step(events.Fetched(SECOND, [record], 10))
    line.fail()

    assert not line.session.health(line.now_ms).is_ready
    line.fetch(TOPIC, 8)
    assert line.handled() == [(TOPIC.topic, 8)]


def test_a_record_that_no_retry_would_help_is_dead_at_once() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    effects = line.fail(Failure.of_outcome(Dead("bad")))

    assert of(WriteRetry, effects) == []
    assert len(of(WriteDeadLetter, effects)) == 1


def test_retries_in_place_come_before_the_retry_topic() -> None:
    line = Line(retry=RetryPolicy(max_attempts=2, initial_s=1, jitter=0))
    line.fetch(TOPIC, 7)
    assert of(WriteRetry, line.fail()) == []
    line.step(events.Tick(), after_ms=1_000)

    (letter,) = of(WriteRetry, line.fail())
    assert letter.state.attempts == 2


def test_later_records_of_the_key_follow_it_and_others_do_not_wait() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    (parked,) = of(WriteRetry, line.fetch(TOPIC, 8))
    line.fetch(TOPIC, 9, key=b"other")
    line.fetch(TOPIC, 10, key=None)

    assert line.handled() == [(TOPIC.topic, 9), (TOPIC.topic, 10)]
    assert (parked.record.offset, parked.state.attempts, parked.state.not_before_ms) == (8, 0, 0)
    line.runs.clear()
    line.acknowledge(parked)
    line.fetch_written(failed, 0)
    line.fetch_written(parked, 1)
    line.step(events.Tick(), after_ms=10_000)
    assert line.handled() == [(FIRST.topic, 0)]
    line.succeed()
    assert line.handled() == [(FIRST.topic, 1)]


def test_what_follows_is_written_only_when_the_one_before_is_acknowledged() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    assert of(WriteRetry, line.fetch(TOPIC, 8, 9)) == []
    line.step(events.WriteFailed(TOPIC, failed.epoch, 7, "timed out"))
    (again,) = of(WriteRetry, line.step(events.Tick(), after_ms=1_000))
    assert again is failed

    (second,) = of(WriteRetry, line.acknowledge(failed))
    assert second.record.offset == 8
    (third,) = of(WriteRetry, line.acknowledge(second))
    assert third.record.offset == 9


def test_behind_a_short_delay_the_key_waits_where_it_is_and_nothing_of_it_is_written() -> None:
    line = Line(delays_s=(1, 60))
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.effects.clear()
    line.fetch(TOPIC, *range(8, 100))
    line.fetch(TOPIC, 100, key=b"other")
    assert line.handled() == [(TOPIC.topic, 100)], "other keys do not wait"
    line.succeed()
    line.fetch_written(failed, 0)
    line.step(events.Tick(), after_ms=1_000)
    assert line.handled() == [(FIRST.topic, 0)]
    line.succeed()

    came_back: list[tuple[str, int]] = []
    while line.runs:
        came_back += line.handled()
        line.succeed()
    assert came_back == [(TOPIC.topic, offset) for offset in range(8, 100)]
    line.fetch(TOPIC, 101)
    assert line.handled() == [(TOPIC.topic, 101)], "the key is free"
    assert of(WriteRetry, line.effects) == []
    assert line.session.position(TOPIC) == 101


def test_the_key_waits_for_a_few_seconds_and_is_passed_on_in_its_order_then() -> None:
    line = Line(delays_s=(5, 60))
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch(TOPIC, 8, 9)
    assert of(WriteRetry, line.step(events.Tick(), after_ms=4_999)) == []
    (second,) = of(WriteRetry, line.step(events.Tick(), after_ms=1))
    assert second.record.offset == 8
    assert of(WriteRetry, line.fetch(TOPIC, 10)) == []
    (third,) = of(WriteRetry, line.acknowledge(second))
    (fourth,) = of(WriteRetry, line.acknowledge(third))
    assert (third.record.offset, fourth.record.offset) == (9, 10), "what comes later does not wait either"
    line.acknowledge(fourth)
    for offset, letter in enumerate((failed, second, third, fourth)):
        line.fetch_written(letter, offset)
    while line.runs:
        line.succeed()
    assert line.session.position(FIRST) == 4

    line.fetch(TOPIC, 11)
    (letter,) = of(WriteRetry, line.fail())
    line.acknowledge(letter)
    assert of(WriteRetry, line.fetch(TOPIC, 12)) == [], "it waits again"


def test_the_key_is_passed_on_before_it_fills_half_of_what_is_fetched() -> None:
    line = Line(delays_s=(5, 60), flow=FlowLimits(high_records=20, low_records=10))
    line.fetch(TOPIC, 0)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch(TOPIC, *range(1, 10))
    assert of(WriteRetry, line.effects) == [failed]
    (passed_on,) = of(WriteRetry, line.fetch(TOPIC, 10))
    assert passed_on.record.offset == 1


def test_a_key_waits_for_no_record_that_may_take_long() -> None:
    line = Line(delays_s=(5, 5.001))
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail(Failure.of_outcome(Retry(after_s=5.001))))
    assert failed.target == SECOND.topic
    line.acknowledge(failed)
    assert [letter.record.offset for letter in of(WriteRetry, line.fetch(TOPIC, 8))] == [8]


def test_a_key_that_waits_goes_on_when_the_record_before_it_becomes_a_dead_letter() -> None:
    line = Line(delays_s=(1, 60))
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    line.fetch(TOPIC, 8)
    assert line.handled() == []
    too_large(line, letter)

    assert line.handled() == [(TOPIC.topic, 8)]


def test_what_waited_is_fetched_again_by_the_next_owner() -> None:
    line = Line(delays_s=(1, 60))
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch(TOPIC, 8)
    commits = of(Commit, line.step(events.Revoked([TOPIC, FIRST, SECOND])))
    assert [commit.offsets[TOPIC][0] for commit in commits] == [8]
    line.step(events.Tick(), after_ms=10_000)
    assert line.runs == []


def test_the_key_is_free_when_all_of_it_came_through() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch_written(failed, 0)
    line.step(events.Tick(), after_ms=10_000)
    line.succeed()
    line.fetch(TOPIC, 8)

    assert line.handled() == [(TOPIC.topic, 8)]


def test_a_follower_goes_further_when_its_predecessor_did() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    (parked,) = of(WriteRetry, line.fetch(TOPIC, 8))
    line.acknowledge(parked)
    line.fetch_written(failed, 0)
    line.step(events.Tick(), after_ms=10_000)
    (further,) = of(WriteRetry, line.fail())
    line.acknowledge(further)
    (behind,) = of(WriteRetry, line.fetch_written(parked, 1))

    assert (behind.target, behind.state.offset, behind.state.attempts) == (SECOND.topic, 8, 0)


def test_a_follower_has_deliveries_of_its_own_also_at_the_end_of_the_line() -> None:
    line = Line()
    state = RetryState(topic="orders", partition=0, offset=8, timestamp_ms=5, attempts=0, not_before_ms=0)
    record: AnyRecord = Record(*SECOND, 0, 5, b"k", b"v", state.to_headers([]), b"k", b"v")
    line.step(events.Fetched(SECOND, [record], 10))
    for delay_ms in (10_000, 60_000):
        assert of(WriteDeadLetter, line.fail()) == []
        line.step(events.Tick(), after_ms=delay_ms - 1)
        assert line.runs == []
        line.step(events.Tick(), after_ms=1)
    assert line.runs[0].attempt == 3

    (dead,) = of(WriteDeadLetter, line.fail())
    assert dead.reason.attempts == 3


def test_a_follower_that_failed_in_one_run_with_its_predecessor_has_deliveries_of_its_own() -> None:
    """Rows of columns fail together, and their attempts are counted at the first of them."""
    line = Line(ordering=Ordering.PARTITION, concurrency=1, is_batch=True, is_columnar=True)

    def waiting(offset: int, original: int, attempts: int) -> AnyRecord:
        first_failure_ms = EPOCH_MS - 5_000 if attempts else None
        state = RetryState(
            topic="orders",
            partition=0,
            offset=original,
            timestamp_ms=5,
            attempts=attempts,
            not_before_ms=0,
            first_failure_ms=first_failure_ms,
        )
        return Record(*SECOND, offset, 5, b"k", b"v", state.to_headers([]), b"k", b"v")

    def fail_as_one() -> list[Effect]:
        run = line.runs.pop(0)
        return line.step(events.RunFinished(run, RunResult(done=(), whole=(run.records, BOOM))))

    line.step(events.Fetched(SECOND, [waiting(0, 7, 2), waiting(1, 8, 0)], 20))
    assert line.handled() == [(SECOND.topic, 0), (SECOND.topic, 1)]
    assert of(WriteDeadLetter, fail_as_one()) == [], "each half is delivered once more"

    (first,) = of(WriteDeadLetter, fail_as_one())
    assert (first.record.offset, first.reason.attempts, first.reason.first_failure_ms) == (0, 3, EPOCH_MS - 5_000)
    line.acknowledge(first)
    for number, delay_ms in ((1, 10_000), (2, 60_000)):
        assert [(record.offset, run.attempt) for run in line.runs for record in run.records] == [(1, number)]
        assert of(WriteDeadLetter, fail_as_one()) == []
        line.step(events.Tick(), after_ms=delay_ms)

    (second,) = of(WriteDeadLetter, fail_as_one())
    assert (second.record.offset, second.reason.attempts, second.reason.first_failure_ms) == (1, 3, EPOCH_MS)


@pytest.mark.parametrize("options", [{"keep_key_order": False}, {"ordering": Ordering.UNORDERED}])
def test_released_keys_go_on_at_once(options: dict[str, Any]) -> None:
    line = Line(ends={}, **options)
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.fetch(TOPIC, 8)

    assert line.handled() == [(TOPIC.topic, 8)]
    assert of(FindRetryPositions, line.effects) == []
    line.acknowledge(failed)


def test_nothing_is_handled_before_the_retry_topics_were_read_to_their_end() -> None:
    line = Line(ends={})
    assert [effect.partitions for effect in of(FindRetryPositions, line.effects)] == [[FIRST], [SECOND]]
    line.fetch(TOPIC, 8)
    line.step(events.RetryPositionsFound([FIRST, SECOND], {FIRST: (0, 1), SECOND: (4, 4)}))
    assert line.runs == []

    state = RetryState(topic="orders", partition=0, offset=7, timestamp_ms=5, attempts=1, not_before_ms=EPOCH_MS + 9)
    waiting: AnyRecord = Record(*FIRST, 0, 5, b"k", b"v", state.to_headers([]), b"k", b"v")
    effects = line.step(events.Fetched(FIRST, [waiting], 10))
    assert line.runs == [], "an earlier record of the key waits in the retry topic"
    assert [letter.record.offset for letter in of(WriteRetry, effects)] == [8]


def test_positions_that_were_not_found_are_asked_for_again() -> None:
    line = Line(ends={})
    line.step(events.RetryPositionsFound([FIRST, SECOND], {SECOND: (0, 0)}))

    (again,) = of(FindRetryPositions, line.step(events.Tick(), after_ms=1_000))
    assert again.partitions == [FIRST]


def test_of_a_long_retry_topic_only_the_keys_are_kept_until_it_is_read_again() -> None:
    line = Line(ends={})
    line.step(events.RetryPositionsFound([FIRST, SECOND], {FIRST: (0, 9_000), SECOND: (0, 0)}))
    headers = RetryState(
        topic="orders", partition=0, offset=7, timestamp_ms=5, attempts=1, not_before_ms=EPOCH_MS + 1_000
    ).to_headers([])

    def fetch(start: int, end: int) -> list[Effect]:
        records: list[AnyRecord] = [
            Record(*FIRST, offset, 5, b"%d" % offset, b"v", headers, b"%d" % offset, b"v")
            for offset in range(start, end)
        ]
        return line.step(events.Fetched(FIRST, records, 10))

    fetch(0, 4_500)
    assert of(SeekPartition, fetch(4_500, 8_000)) == []
    assert of(SeekPartition, fetch(8_000, 9_000)) == [SeekPartition(FIRST, 4_500)]
    assert of(PausePartitions, line.effects) == [PausePartitions([FIRST])]
    line.fetch(TOPIC, 8, key=b"8999")
    assert line.runs == [], "a key that was only looked at counts"
    line.fetch(TOPIC, 9, key=b"another")
    assert line.handled() == [(TOPIC.topic, 9)]
    fetch(9_000, 9_001)  # it was under way before the seek
    assert line.session.position(FIRST) == 0
    fetch(4_500, 9_001)
    assert line.session._partitions[FIRST].tracker.end == 9_001


def test_a_line_that_is_split_over_members_waits_and_says_so() -> None:
    line = Line()
    line.step(events.Lost([FIRST]))
    line.fetch(TOPIC, 0)

    assert line.runs == []
    assert any("orders-0 waits for orders.g.retry.1-0" in problem for problem in line.session.health(0).problems)


def test_what_is_not_due_makes_nobody_unready() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch_written(failed, 0)
    assert line.session.health(9_000).is_ready

    line.step(events.Tick(), after_ms=65_000)
    assert line.session.health(line.now_ms).is_ready, "its age counts from when it fell due"


def test_a_drain_does_not_wait_for_what_is_not_due_and_a_drained_line_stays_silent() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch_written(failed, 0)
    line.step(events.DrainRequested())
    assert line.session.is_idle

    line.step(events.Tick(), after_ms=60_000)
    assert line.runs == []
    line.step(events.ResumeRequested())
    assert line.handled() == [(FIRST.topic, 0)]


def test_what_came_while_the_app_was_drained_outlives_a_change_of_the_line() -> None:
    line = Line(concurrency=1)
    line.step(events.DrainRequested())
    line.fetch(TOPIC, 0, 1)  # the client had them before it heard of the pause, and will not give them again
    line.step(events.Lost([SECOND]))
    line.step(events.Assigned([SECOND]))
    line.step(events.RetryPositionsFound([FIRST, SECOND], {FIRST: (0, 0), SECOND: (0, 0)}))
    line.step(events.ResumeRequested())

    assert line.handled() == [("orders", 0), ("orders", 1)]


def test_one_bad_record_of_a_batch_is_postponed_alone() -> None:
    line = Line(is_batch=True, ordering=Ordering.PARTITION, concurrency=1)
    line.fetch(TOPIC, 5, 6, 7)
    while line.runs:
        run = line.runs.pop(0)
        is_bad = any(record.offset == 6 for record in run.records)
        failures = [(record, BOOM) for record in run.records] if is_bad else []
        done = () if is_bad else run.records
        result = RunResult(done=done, failures=failures, is_batch_failure=is_bad)
        line.step(events.RunFinished(run, result))

    postponed = of(WriteRetry, line.effects)
    assert [(letter.record.offset, letter.state.attempts) for letter in postponed if letter.state.attempts] == [(6, 1)]


def test_foreign_headers_in_a_retry_topic_are_no_reason_to_fail() -> None:
    line = Line()
    bad: list[Header] = [("ottla-retry-version", b"1"), ("ottla-retry-attempts", b"many")]
    record: AnyRecord = Record(*FIRST, 0, 5, b"k", b"v", bad, b"k", b"v")
    line.step(events.Fetched(FIRST, [record], 10))

    assert line.handled() == [(FIRST.topic, 0)]


@pytest.mark.parametrize("ordering", [Ordering.PARTITION, Ordering.KEY])
def test_a_key_that_keeps_failing_in_a_retry_topic_holds_no_other_key(ordering: Ordering) -> None:
    line = Line(ordering=ordering, concurrency=1)
    for offset, key in enumerate((b"bad", b"bad", b"good", None)):
        state = RetryState(topic="orders", partition=0, offset=offset, timestamp_ms=5, attempts=0, not_before_ms=0)
        record: AnyRecord = Record(*SECOND, offset, 5, key, b"v", state.to_headers([]), key, b"v")
        line.step(events.Fetched(SECOND, [record], 10))
    line.fail()
    assert line.handled() == [(SECOND.topic, 2)], "the first one waits ten seconds, and the second behind it"
    line.succeed()
    assert line.handled() == [(SECOND.topic, 3)]
    line.succeed()
    assert line.handled() == []

    line.step(events.Tick(), after_ms=10_000)
    assert line.handled() == [(SECOND.topic, 0)]
    line.succeed()
    assert line.handled() == [(SECOND.topic, 1)]


@pytest.mark.parametrize("not_before", ["4102444800000", str(10**18), str(10**400)], ids=["2100", "10^18", "10^400"])
def test_a_forged_time_holds_a_retry_topic_for_its_delay_at_the_most(not_before: str) -> None:
    line = Line()
    state = RetryState(topic="orders", partition=0, offset=7, timestamp_ms=5, attempts=1, not_before_ms=0)
    forged: list[Header] = [(name, value) for name, value in state.to_headers([]) if not name.endswith("-not-before")]
    forged.append(("ottla-retry-not-before", not_before.encode()))
    line.step(events.Fetched(FIRST, [Record(*FIRST, 0, 5, b"a", b"v", forged, b"a", b"v")], 10))
    line.step(events.Fetched(FIRST, [Record(*FIRST, 1, 5, b"b", b"v", state.to_headers([]), b"b", b"v")], 10))
    line.step(events.Tick(), after_ms=10_000)

    assert line.handled() == [(FIRST.topic, 0), (FIRST.topic, 1)]
    assert line.session.next_wakeup_ms(line.now_ms) / 1_000 < 1_000


@pytest.mark.parametrize(
    ("name", "value"),
    [("attempts", b"-100000000000000000000"), ("attempts", b"1" * 30), ("offset", b"-5"), ("partition", b"9" * 12)],
)
def test_numbers_that_no_retry_can_have_are_no_reason_to_fail(name: str, value: bytes) -> None:
    line = Line(retry=RetryPolicy(max_attempts=2, initial_s=1, jitter=0))
    state = RetryState(topic="orders", partition=0, offset=7, timestamp_ms=5, attempts=1, not_before_ms=0)
    headers = [(key, value if key == f"ottla-retry-{name}" else own) for key, own in state.to_headers([])]
    line.step(events.Fetched(SECOND, [Record(*SECOND, 0, 5, b"k", b"v", headers, b"k", b"v")], 10))
    while not of(WriteDeadLetter, line.effects):
        assert line.runs, "it is handled until it is given up"
        line.fail()
        line.step(events.Tick(), after_ms=60_000)

    (dead,) = of(WriteDeadLetter, line.effects)
    assert 1 <= dead.reason.attempts <= 6


def test_a_delay_that_the_handler_asks_for_is_waited_for_in_the_topic_that_waits_as_long() -> None:
    for after_s, target, delay_ms in ((5, FIRST, 5_000), (30, SECOND, 30_000), (3_600, SECOND, 60_000)):
        line = Line()
        line.fetch(TOPIC, 7)
        (letter,) = of(WriteRetry, line.fail(Failure.of_outcome(Retry(after_s=after_s))))
        assert (letter.target, letter.state.not_before_ms) == (target.topic, EPOCH_MS + delay_ms)


def test_what_is_parked_is_counted_in_one_notice_per_turn() -> None:
    line = Line(concurrency=1)
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    effects = line.fetch(TOPIC, 8, 9, 10)

    assert [notice.fields["records"] for notice in of(Notice, effects) if notice.event == "records_diverted"] == [3]


def test_delays_are_checked_where_they_are_declared() -> None:
    with pytest.raises(ConfigError, match="one delay per retry topic"):
        RetryTopics(delays_s=())
    with pytest.raises(ConfigError, match="must not be negative"):
        RetryTopics(delays_s=(1, -1))


def too_large(line: Line, letter: WriteRetry) -> list[Effect]:
    name, epoch, offset = letter.topic_partition, letter.epoch, letter.record.offset
    return line.step(events.WriteFailed(name, epoch, offset, "RecordTooLarge", False))


def test_what_a_retry_topic_takes_in_no_form_is_a_dead_letter_with_its_failure() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    (dead,) = of(WriteDeadLetter, too_large(line, letter))

    assert (dead.record.offset, dead.reason.attempts, dead.reason.error_type) == (7, 1, "RuntimeError")
    assert dead.reason.message == "boom; the retry topic 'orders.g.retry.1' does not take the record: RecordTooLarge"
    assert dead.reason.stack_trace == BOOM.stack_trace
    line.acknowledge(dead)
    line.fetch(TOPIC, 8)
    assert line.handled() == [(TOPIC.topic, 8)], "nothing of its key is under way any more"


def test_what_waits_behind_it_for_the_same_retry_topic_is_written_next() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    assert of(WriteRetry, line.fetch(TOPIC, 8)) == [], "one after the other"
    effects = too_large(line, letter)

    assert [write.record.offset for write in of(WriteRetry, effects)] == [8]


def test_without_a_dead_letter_topic_it_stops_its_partition_and_says_why() -> None:
    line = Line(dead_letter_topic=None)
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    too_large(line, letter)

    assert "does not take the record: RecordTooLarge" in line.session.health(line.now_ms).problems[0]
    line.step(events.ResumeRequested())
    assert line.handled() == [(TOPIC.topic, 7)]


def test_failures_in_a_retry_topic_are_logged_with_all_their_attempts_and_where_they_come_from() -> None:
    line = Line(retry=RetryPolicy(max_attempts=2, initial_s=1, jitter=0))
    line.fetch(TOPIC, 7)
    line.fail()
    line.step(events.Tick(), after_ms=1_000)
    (letter,) = of(WriteRetry, line.fail())
    postponed = [
        notice for notice in of(Notice, line.acknowledge(letter)) if notice.event == "record_sent_to_retry_topic"
    ]
    assert [notice.fields["attempts"] for notice in postponed] == [2]
    line.fetch_written(letter, 0)
    line.step(events.Tick(), after_ms=10_000)
    (retried,) = [notice for notice in of(Notice, line.fail()) if notice.event == "record_retried"]

    assert retried.fields["attempts"] == 3
    assert retried.fields["origin"] == "orders-0@7"


def test_what_waits_in_a_retry_topic_is_told_with_its_attempts_and_its_time() -> None:
    line = Line()
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())
    line.acknowledge(letter)
    line.fetch_written(letter, 3)
    waiting = {each.topic_partition: each for each in measure_of(line.session, line.now_ms).partitions}

    assert waiting[FIRST].retries == (WaitingRetry(offset=3, records=1, attempts=1, due_ms=EPOCH_MS + 10_000),)
    assert (waiting[FIRST].retries_waiting, waiting[TOPIC].retries_waiting) == (1, 0)
    line.step(events.Tick(), after_ms=10_000)
    assert all(not each.retries_waiting for each in measure_of(line.session, line.now_ms).partitions)


def test_what_is_written_after_the_clock_was_set_is_due_by_the_new_time() -> None:
    line = Line()
    line.session.wall_clock_reads(EPOCH_MS + 3_600_000, 0)
    line.fetch(TOPIC, 7)
    (letter,) = of(WriteRetry, line.fail())

    assert letter.state.not_before_ms == EPOCH_MS + 3_600_000 + 10_000
    assert letter.state.first_failure_ms == EPOCH_MS + 3_600_000


def test_what_waits_in_a_retry_topic_is_due_by_the_new_time_once_the_clock_is_set() -> None:
    line = Line()
    line.session.wall_clock_reads(EPOCH_MS + 8_000, 0)
    state = RetryState(
        topic="orders", partition=0, offset=7, timestamp_ms=5, attempts=1, not_before_ms=EPOCH_MS + 10_000
    )
    letter = WriteRetry(TOPIC, 1, Record(*TOPIC, 7, 5, b"k", b"v", [], b"k", b"v"), NAMES[0], 0, 1, state)
    line.fetch_written(letter, 0)
    line.step(events.Tick(), after_ms=1_999)
    assert not line.runs

    line.session.wall_clock_reads(EPOCH_MS + line.now_ms, line.now_ms)
    line.step(events.Tick(), after_ms=8_000)
    assert not line.runs
    line.step(events.Tick(), after_ms=1)
    assert [run.records[0].offset for run in line.runs] == [0]


def test_a_key_that_waits_for_a_short_delay_is_not_late() -> None:
    line = Line(delays_s=(5, 60), unready_after_ms=1_000)
    line.fetch(TOPIC, 7)
    (failed,) = of(WriteRetry, line.fail())
    line.acknowledge(failed)
    line.fetch(TOPIC, 8)
    line.step(events.Tick(), after_ms=4_000)

    assert line.session.health(line.now_ms).is_ready
    waiting = {each.topic_partition: each for each in measure_of(line.session, line.now_ms).partitions}
    assert waiting[TOPIC].retries_waiting == 1
