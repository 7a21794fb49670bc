"""At most once, event by event: nothing is handed out before the commit behind it is acknowledged."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla import App, AtMostOnce, ConfigError, DeadLetterBudget, Json, RetryPolicy, RetryTopics
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Dispatch,
    Effect,
    Notice,
)
from ottla.consumer.model.failed_writes import WriteDeadLetter
from ottla.consumer.model.run import AnyRecord, Run, RunResult, abandoned_run
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.errors import RegistryUnavailable
from ottla.failures import NO_RETRY, ExceptionTable, FailurePolicy
from ottla.records import Record, TopicPartition

A = TopicPartition("orders", 0)
BOOM = ExceptionTable().failure_of(RuntimeError("boom"))
OUTAGE = ExceptionTable().failure_of(RegistryUnavailable("away"))


class Once:
    def __init__(self, *, dead_letter_topic: str | None = None, **plan: Any) -> None:
        self.session = Session(
            [
                RoutePlan(
                    name="handler",
                    topics=frozenset({"orders"}),
                    is_at_most_once=True,
                    failures=FailurePolicy(retry=NO_RETRY, dead_letter_topic=dead_letter_topic),
                    **plan,
                )
            ],
            group="g",
            now_ms=0,
            random=Random(1),
            commits=AtMostOnce(),
        )
        self.now_ms = 0
        self.runs: list[Run] = []
        self.effects: list[Effect] = []
        self.step(events.Assigned([A]))

    def step(self, event: events.Event, *, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        effects = self.session.step(event, self.now_ms)
        self.effects += effects
        self.runs += [effect.run for effect in effects if isinstance(effect, Dispatch)]
        return effects

    def fetch(self, *offsets: int) -> list[Effect]:
        records: list[AnyRecord] = [Record(*A, offset, 0, None, b"v", [], None, b"v") for offset in offsets]
        return self.step(events.Fetched(A, records, 10))

    def acknowledge(self) -> list[Effect]:
        return self.step(events.CommitSucceeded({}))

    def finish(self, result: RunResult | None = None) -> list[Effect]:
        return self.step(events.RunFinished(self.runs.pop(0), result or RunResult()))


def commits(effects: list[Effect]) -> list[dict[TopicPartition, tuple[int, str]]]:
    return [dict(effect.offsets) for effect in effects if isinstance(effect, Commit)]


def offsets_of(run: Run) -> list[int]:
    return [record.offset for record in run.records]


def test_records_are_handed_out_when_the_commit_behind_them_is_acknowledged() -> None:
    once = Once()
    assert commits(once.fetch(5, 6)) == [{A: (7, "")}]
    assert once.runs == []

    once.acknowledge()
    assert offsets_of(once.runs[0]) == [5, 6]


def test_a_commit_that_failed_hands_nothing_out_and_is_tried_again() -> None:
    once = Once()
    once.fetch(5)
    once.step(events.CommitFailed("rebalance in progress", is_fenced=True))
    assert commits(once.step(events.Tick(), after_ms=499)) == []
    assert commits(once.step(events.Tick(), after_ms=1)) == [{A: (6, "")}]
    assert once.runs == []

    once.acknowledge()
    assert offsets_of(once.runs[0]) == [5]


def test_what_was_claimed_and_not_handed_out_goes_back_when_the_partition_is_revoked() -> None:
    once = Once()
    once.fetch(5, 6)
    once.acknowledge()
    once.fetch(7, 8)
    once.finish()  # 7 and 8 are claimed now, their commit is under way
    once.step(events.Revoking([A]))

    assert once.session.is_quiet([A])
    assert commits(once.step(events.Revoked([A]))) == [{A: (7, "")}]


def test_the_record_that_a_late_worker_is_at_is_never_given_to_the_next_owner() -> None:
    once = Once()
    once.fetch(5, 6, 7)
    once.acknowledge()
    once.runs[0].done = 1  # 5 is done, the worker is at 6
    once.step(events.Revoking([A]))

    assert commits(once.step(events.Revoked([A]))) == [{A: (7, "")}]


def test_records_that_wait_for_acknowledgements_are_never_given_to_the_next_owner() -> None:
    once = Once()
    once.fetch(5, 6, 7, 8)
    once.acknowledge()
    (run,) = once.runs
    run.reached = 3  # 5 waits for its acknowledgement, so that nothing counts as done; the worker is at 7
    once.step(events.Revoking([A]))
    assert commits(once.step(events.Revoked([A]))) == [{A: (8, "")}]


def test_what_a_worker_let_go_of_counts_as_far_as_it_came() -> None:
    once = Once()
    once.fetch(5, 6, 7, 8)
    once.acknowledge()
    (run,) = once.runs
    run.reached = 2  # a failure at 6 ended the run
    once.step(events.RunHandled(run))
    once.step(events.Revoking([A]))
    assert commits(once.step(events.Revoked([A]))) == [{A: (7, "")}]


def test_a_late_batch_counts_as_a_whole() -> None:
    once = Once(is_batch=True, max_records_per_turn=10)
    once.fetch(5, 6, 7)
    once.acknowledge()
    once.step(events.Revoking([A]))

    assert commits(once.step(events.Revoked([A]))) == [], "8 is committed, and stays"


def test_a_failing_record_is_dropped_with_a_notice_and_the_next_goes_on() -> None:
    once = Once()
    once.fetch(5, 6)
    once.acknowledge()
    (run,) = once.runs
    once.finish(RunResult(done=(), failures=[(run.records[0], BOOM)], untouched=run.records[1:]))

    assert [e.event for e in once.effects if isinstance(e, Notice) and e.level == "warning"] == ["record_dropped"]
    assert offsets_of(once.runs[0]) == [6], "its commit was acknowledged before: it need not wait"
    once.finish()
    assert once.session.is_idle


def test_with_a_dead_letter_topic_it_becomes_a_dead_letter() -> None:
    once = Once(dead_letter_topic="dead", is_batch=True, max_records_per_turn=10)
    once.fetch(5, 6)
    once.acknowledge()
    (run,) = once.runs
    once.finish(RunResult(done=(), failures=[(record, BOOM) for record in run.records], is_batch_failure=True))

    assert [e.record.offset for e in once.effects if isinstance(e, WriteDeadLetter)] == [5, 6]
    assert once.runs == [], "nothing is handed out again to find out who is to blame"


def test_an_outage_before_the_handler_is_waited_for() -> None:
    once = Once()
    once.fetch(5)
    once.acknowledge()
    (run,) = once.runs
    once.finish(RunResult(done=(), failures=[(run.records[0], OUTAGE)]))
    once.step(events.Tick(), after_ms=20_000)

    assert [offsets_of(run) for run in once.runs] == [[5]]


@pytest.mark.parametrize(
    "given",
    [{"retry": RetryPolicy()}, {"retry_topics": RetryTopics()}, {"budget": DeadLetterBudget()}, {"ordering": "key"}],
)
def test_what_would_hand_a_record_out_again_is_refused_where_it_is_declared(given: dict[str, Any]) -> None:
    app = App("billing", commit=AtMostOnce())

    with pytest.raises(ConfigError, match="AtMostOnce"):
        app.handler("orders", value=Json(), **given)(lambda value: None)


def test_what_was_handled_behind_a_dead_letter_that_is_not_written_yet_is_never_given_to_the_next_owner() -> None:
    once = Once(dead_letter_topic="dead")
    once.fetch(5, 6, 7)
    once.acknowledge()
    (run,) = once.runs
    once.finish(RunResult(done=(), failures=[(run.records[0], BOOM)], untouched=run.records[1:]))
    assert offsets_of(once.runs[0]) == [6, 7]
    once.runs[0].done = 1
    once.step(events.Revoking([A]))

    once.finish(RunResult(done=once.runs[0].records[:1], untouched=once.runs[0].records[1:]))
    assert commits(once.step(events.Revoked([A]))) == [{A: (7, "")}], "5 and 6 were handed out, 7 was not"


def test_a_dead_letter_that_is_not_written_was_handed_out_too() -> None:
    once = Once(dead_letter_topic="dead", max_records_per_turn=1)
    once.fetch(5, 6)
    once.acknowledge()
    once.step(events.Revoking([A]))
    once.finish(RunResult(done=(), failures=[(once.runs[0].records[0], BOOM)]))

    assert commits(once.step(events.Revoked([A]))) == [], "6 is committed, and stays"


@pytest.mark.parametrize(("is_batch", "next_offset"), [(False, 7), (True, 9)])
def test_what_a_worker_had_when_it_died_is_never_handed_out_again(is_batch: bool, next_offset: int) -> None:
    once = Once(is_batch=is_batch, max_records_per_turn=4)
    once.fetch(5, 6, 7, 8)
    once.acknowledge()
    (run,) = once.runs
    run.done = 0 if is_batch else 1
    once.finish(abandoned_run(run, BOOM))
    assert [e.event for e in once.effects if isinstance(e, Notice) and e.level == "warning"] == ["record_dropped"] * (
        4 if is_batch else 1
    )

    once.step(events.ResumeRequested())
    again = [offset for run in once.runs for offset in offsets_of(run)]
    assert again == list(range(next_offset, 9))
    if again:
        once.finish()
    assert once.session.is_idle


def test_the_record_that_a_worker_died_at_is_never_given_to_the_next_owner() -> None:
    once = Once()
    once.fetch(5, 6, 7)
    once.acknowledge()
    (run,) = once.runs
    run.done = 1
    once.finish(abandoned_run(run, BOOM))
    once.step(events.CloseRequested())

    assert commits(once.step(events.Closed())) == [{A: (7, "")}]
