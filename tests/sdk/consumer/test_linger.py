"""A batch handler's linger: full batches at once, others when they have waited long enough."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import App, ConfigError, Json
from ottla.consumer.model import events
from ottla.consumer.model.effects import Dispatch, Effect
from ottla.consumer.model.run import AnyRecord, Run, RunResult
from ottla.consumer.partitions.flow import FlowLimits
from ottla.consumer.partitions.lanes import Ordering
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.session import Session
from ottla.failures import ExceptionTable, FailurePolicy, RetryPolicy
from ottla.records import Record, TopicPartition

A = TopicPartition("orders", 0)
BOOM = ExceptionTable().failure_of(RuntimeError("boom"))


class Batches:
    def __init__(self, *, flow: FlowLimits | None = None, concurrency: int = 1) -> None:
        self.now_ms = 0
        self.runs: list[Run] = []
        self.handed_out_ms: dict[int, int] = {}
        self.session = Session(
            [
                RoutePlan(
                    name="handler",
                    topics=frozenset({"orders"}),
                    is_batch=True,
                    max_records_per_turn=10,
                    linger_ms=100,
                    concurrency=concurrency,
                    ordering=Ordering.UNORDERED if concurrency > 1 else Ordering.PARTITION,
                    failures=FailurePolicy(retry=RetryPolicy(initial_s=1, jitter=0)),
                )
            ],
            group="g",
            now_ms=0,
            random=Random(1),
            flow=flow,
        )
        self.step(events.Assigned([A]))

    def step(self, event: events.Event, *, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        effects = self.session.step(event, self.now_ms)
        for effect in effects:
            if isinstance(effect, Dispatch):
                self.runs.append(effect.run)
                self.handed_out_ms.update((record.offset, self.now_ms) for record in effect.run.records)
        return effects

    def fetch(self, *offsets: int) -> None:
        records: list[AnyRecord] = [Record(*A, offset, 0, None, b"v", [], None, b"v") for offset in offsets]
        self.step(events.Fetched(A, records, 10 * len(records)))

    def finish(self) -> list[int]:
        run = self.runs.pop(0)
        self.step(events.RunFinished(run, RunResult()))
        return [record.offset for record in run.records]

    @property
    def sizes(self) -> list[int]:
        return [len(run.records) for run in self.runs]


def test_a_batch_that_is_not_full_waits_for_its_linger() -> None:
    batches = Batches()
    batches.fetch(0, 1)
    batches.step(events.Tick(), after_ms=50)
    batches.fetch(2)
    batches.step(events.Tick(), after_ms=49)
    assert batches.sizes == []
    assert batches.session.next_wakeup_ms(batches.now_ms) == 100

    batches.step(events.Tick(), after_ms=1)
    assert batches.sizes == [3]


def test_a_full_batch_goes_at_once_and_the_rest_waits_anew() -> None:
    batches = Batches()
    batches.fetch(*range(14))
    assert batches.sizes == [10]
    batches.finish()
    assert batches.sizes == []

    batches.step(events.Tick(), after_ms=100)
    assert batches.sizes == [4]


def test_the_wait_counts_while_the_worker_is_busy() -> None:
    batches = Batches()
    batches.fetch(*range(10))
    batches.fetch(10)
    batches.step(events.Tick(), after_ms=150)
    batches.finish()

    assert batches.sizes == [1]


def test_a_retry_does_not_linger() -> None:
    batches = Batches()
    batches.fetch(*range(10))
    run = batches.runs.pop()
    failures = [(record, BOOM) for record in run.records]
    batches.step(events.RunFinished(run, RunResult(done=(), failures=failures, is_batch_failure=True)))
    batches.step(events.Tick(), after_ms=1_000)

    assert batches.sizes == [10]


def test_a_full_buffer_does_not_linger() -> None:
    batches = Batches(flow=FlowLimits(high_records=4, low_records=1, hold_ms=0))
    batches.fetch(0, 1, 2, 3)
    batches.step(events.Tick())

    assert batches.sizes == [4]


def test_a_drain_does_not_wait_for_the_linger() -> None:
    batches = Batches()
    batches.fetch(0)
    batches.step(events.DrainRequested())

    assert batches.sizes == [1]


def test_several_workers_get_full_batches_not_shares() -> None:
    batches = Batches(concurrency=4)
    batches.fetch(*range(20))

    assert batches.sizes == [10, 10]


@given(arrivals=st.lists(st.tuples(st.integers(0, 150), st.integers(1, 15)), min_size=1, max_size=12))
def test_nothing_waits_longer_than_the_linger_and_every_batch_is_full_or_was_waited_for(
    arrivals: list[tuple[int, int]],
) -> None:
    batches = Batches()
    came_ms: dict[int, int] = {}
    handled: list[int] = []

    def work() -> None:
        while batches.runs:
            size = len(batches.runs[0].records)
            oldest_ms = came_ms[batches.runs[0].records[0].offset]
            assert size == 10 or batches.now_ms - oldest_ms >= 100 or batches.now_ms - last_full_ms >= 100
            handled.extend(batches.finish())

    last_full_ms = 0
    for pause_ms, count in arrivals:
        for _ in range(pause_ms):
            batches.step(events.Tick(), after_ms=1)
            work()
        start = len(came_ms)
        came_ms.update((offset, batches.now_ms) for offset in range(start, start + count))
        batches.fetch(*range(start, start + count))
        last_full_ms = batches.now_ms
        work()
    for _ in range(101):
        batches.step(events.Tick(), after_ms=1)
        work()

    assert handled == list(range(len(came_ms)))
    assert all(batches.handed_out_ms[offset] - at_ms <= 100 for offset, at_ms in came_ms.items())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"linger_ms": 5}, "single records has none"),
        ({"linger_ms": -1, "batch": True}, "must not be negative"),
        ({"linger_ms": 5, "batch": True, "fair_by": "bytes"}, "use fair_by='records'"),
    ],
)
def test_a_linger_that_has_no_meaning_is_refused_where_it_is_declared(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        App("billing").handler("orders", value=Json(), **given)(lambda numbers: None)  # type: ignore[arg-type]
