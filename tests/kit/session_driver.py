"""A session of one handler, driven event by event, with a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any, TypeVar

from ottla.consumer.commit.commits import AtMostOnce, CommitPolicy
from ottla.consumer.model import events
from ottla.consumer.model.effects import Dispatch, Effect
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.failures import Dead, ExceptionTable, Failure, FailurePolicy, Retry, RetryPolicy
from ottla.records import Record, TopicPartition
from ottla.telemetry.metrics.measurements import MemberMeasure

A = TopicPartition("orders", 0)
B = TopicPartition("orders", 1)
E = TypeVar("E", bound=Effect)


class Driver:
    """A session with a clock that stands still, and what it wanted done so far."""

    def __init__(
        self, *, flow: FlowLimits | None = None, commits: CommitPolicy | AtMostOnce | None = None, **plan: Any
    ) -> None:
        plan.setdefault(
            "failures",
            FailurePolicy(retry=RetryPolicy(max_attempts=3, initial_s=1, jitter=0), dead_letter_topic="dead"),
        )
        self.now_ms = 0
        self.session = Session(
            [RoutePlan(name="handler", topics=frozenset({"orders"}), **plan)],
            group="g",
            now_ms=0,
            random=Random(1),
            flow=flow,
            commits=commits or CommitPolicy(every_records=1_000, every_s=5),
            epoch_offset_ms=1_700_000_000_000,
        )
        self.effects: list[Effect] = []
        self.runs: list[Run] = []

    def step(self, event: events.Event, *, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        effects = self.session.step(event, self.now_ms)
        self.effects += effects
        self.runs += [effect.run for effect in effects if isinstance(effect, Dispatch)]
        return effects

    def fetch(
        self,
        partition: TopicPartition,
        *offsets: int,
        key: bytes | None = b"k",
        behind: events.Behind = events.NOTHING_BEHIND,
    ) -> list[Effect]:
        records: list[AnyRecord] = [
            Record(partition.topic, partition.partition, offset, 0, key, b"v", [("h", b"1")], key, b"v")
            for offset in offsets
        ]
        return self.step(events.Fetched(partition, records, 10 * len(records), behind))

    def finish(self, run: Run | None = None, result: RunResult | None = None) -> list[Effect]:
        run = run or self.runs[-1]
        self.runs.remove(run)
        return self.step(events.RunFinished(run, result or RunResult()))

    def fail(self, at: int, failure: Failure, run: Run | None = None) -> list[Effect]:
        """The record at index `at` of the run fails; those before are done, those behind untouched."""
        run = run or self.runs[-1]
        records = run.records
        return self.finish(
            run, RunResult(done=records[:at], failures=[(records[at], failure)], untouched=records[at + 1 :])
        )


def measure_of(session: Session, now_ms: int) -> MemberMeasure:
    """Measure all partitions at once."""
    return measure_at_the_end_of(session.measures(now_ms))


def measure_at_the_end_of(steps: Iterator[None]) -> MemberMeasure:
    """Take the steps that are left."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            measure: MemberMeasure = end.value
            return measure


def of(kind: type[E], effects: list[Effect]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def offsets_of(run: Run) -> list[int]:
    return [record.offset for record in run.records]


BOOM = ExceptionTable().failure_of(RuntimeError("boom"))
RETRY = Failure.of_outcome(Retry())
DEAD = Failure.of_outcome(Dead("bad"))


def assigned(*partitions: TopicPartition, **options: Any) -> Driver:
    driver = Driver(**options)
    driver.step(events.Assigned(partitions or (A,)))
    return driver
