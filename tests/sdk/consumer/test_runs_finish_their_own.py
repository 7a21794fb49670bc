"""After every run, of whatever order and outcome: exactly the records that it finished are finished.

Few events, many of each: what mixes the records of runs (keys that wait for one another, retries, pauses while runs
end) has to happen often before a shortcut in the counting shows.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.consumer.model import events
from ottla.consumer.model.effects import Commit, Dispatch
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.failures import Failure, FailurePolicy, Retry, RetryPolicy
from ottla.records import Record, TopicPartition

A = TopicPartition("orders", 0)
KEYS = [b"a", b"b", b"c", b"d", b"e", None]
AGAIN = Failure.of_outcome(Retry())
STEPS = 60


class Ordinary:
    """One partition whose records are fetched and handled, and the set of those that are finished."""

    def __init__(self, chance: Random, ordering: Ordering, is_batch: bool) -> None:
        self.chance = chance
        self.failing = chance.choice([0, 0.4])  # while a record is retried nothing is taken for a first delivery
        self.now_ms = 0
        self.next_offset = 0
        self.registered: list[int] = []
        self.finished: set[int] = set()
        self.runs: list[Run] = []
        plan = RoutePlan(
            name="handler",
            topics=frozenset({A.topic}),
            ordering=ordering,
            concurrency=chance.choice([1, 3, 4, 4]),
            max_records_per_turn=chance.choice([3, 8]),
            is_batch=is_batch,
            failures=FailurePolicy(retry=RetryPolicy(max_attempts=None, initial_s=0.01, max_s=0.02)),
        )
        self.session = Session([plan], group="g", now_ms=0, random=chance)
        self.step(events.Assigned([A]))

    def step(self, event: events.Event) -> None:
        for effect in self.session.step(event, self.now_ms):
            if isinstance(effect, Dispatch):
                self.runs.append(effect.run)
            elif isinstance(effect, Commit):
                self.step(events.CommitSucceeded({}))

    def fetch(self) -> None:
        self.next_offset += self.chance.random() < 0.1  # a hole
        keys = [self.chance.choice(KEYS) for _ in range(self.chance.randrange(1, 9))]
        records: list[AnyRecord] = [
            Record(*A, self.next_offset + at, 0, key, b"v", [], key, b"v") for at, key in enumerate(keys)
        ]
        self.next_offset += len(keys)
        self.registered += [record.offset for record in records]
        self.step(events.Fetched(A, records, 1))

    def finish(self) -> None:
        run = self.runs.pop(self.chance.randrange(len(self.runs)))
        done = list(run.records)
        failed: list[AnyRecord] = []
        if self.chance.random() < self.failing:  # of what it sent on; the rest is acknowledged in its own time
            failed = self.chance.sample(done, self.chance.randrange(len(done)))
            done = [record for record in done if record not in failed]
            if self.chance.random() < 0.5:
                self.chance.shuffle(done)
            else:
                done[-2:] = reversed(done[-2:])
        self.finished.update(record.offset for record in done)
        failures = [(record, AGAIN) for record in failed]
        self.step(events.RunFinished(run, RunResult(done=done, failures=failures) if failed else RunResult()))

    def something(self) -> None:
        choice = self.chance.random()
        if choice < 0.25:
            self.fetch()
        elif choice < 0.8 and self.runs:
            self.finish()
        elif choice < 0.9:  # what ended runs free goes out together, in the order in which they ended
            self.step(events.PauseRequested())
            for _ in range(min(len(self.runs), self.chance.randrange(5))):
                self.finish()
            self.fetch()
            self.step(events.ResumeRequested())
        else:
            self.now_ms += self.chance.randrange(30)
            self.step(events.Tick())

    def check(self) -> None:
        tracker = self.session._partitions[A].tracker
        unfinished = [offset for offset in self.registered if offset not in self.finished]
        assert list(tracker.unfinished()) == unfinished
        if self.registered:
            assert tracker.position == (unfinished[0] if unfinished else self.registered[-1] + 1)


@pytest.mark.representative("Ordering.PARTITION-False")
@pytest.mark.parametrize(
    ("ordering", "is_batch"),
    [
        (Ordering.KEY, False),
        (Ordering.PARTITION, False),
        (Ordering.UNORDERED, False),
        (Ordering.PARTITION, True),
        (Ordering.UNORDERED, True),
    ],
)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=120)
def test_a_run_finishes_its_own_records_and_no_others(ordering: Ordering, is_batch: bool, seed: int) -> None:
    ordinary = Ordinary(Random(seed), ordering, is_batch)
    for _ in range(STEPS):
        ordinary.something()
        ordinary.check()
