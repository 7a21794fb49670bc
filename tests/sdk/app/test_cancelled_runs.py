"""Runs that were cancelled while they waited for a worker: given back in both shells, and no other run is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.aio.consume.workers import Workers as Tasks
from ottla.app.member.handler_workers import ThreadWorkers as Threads
from ottla.app.member.handler_workers import WorkerBase
from ottla.clock import SystemClock
from ottla.consumer.model import events
from ottla.consumer.model.run import Run
from ottla.records import TopicPartition
from ottla.telemetry import Listeners


def run_of(number: int, *, is_cancelled: bool) -> Run:
    run = Run(
        topic_partition=TopicPartition("orders", number),
        epoch=1,
        route="handle",
        records=[],
        attempt=1,
        started_ms=0,
    )
    run.is_cancelled = is_cancelled
    return run


class Told:
    """The session's side: what it hears, and the run that it hands out in the step that hears it."""

    def __init__(self, next_run: Run) -> None:
        self.finished: list[Run] = []
        self._next: list[Run] = [next_run]
        self.workers: WorkerBase

    def step(self, event: events.Event, *, takes_run: bool = False) -> Run | None:
        assert isinstance(event, events.RunFinished)
        assert (event.result.done, event.result.untouched) == ((), event.run.records)
        self.finished.append(event.run)
        if self._next:
            self.workers.put(self._next.pop())
        return None


@pytest.mark.parametrize("kind", [Threads, Tasks])
@given(cancelled=st.lists(st.booleans(), max_size=12))
def test_cancelled_runs_are_given_back_in_order_and_the_others_stay_in_order(kind: Any, cancelled: list[bool]) -> None:
    async def on_a_loop() -> None:
        runs = [run_of(number, is_cancelled=each) for number, each in enumerate(cancelled)]
        handed_out = run_of(99, is_cancelled=False)
        told = Told(handed_out)
        more = {"is_stopping": asyncio.Event()} if kind is Tasks else {}
        workers = told.workers = kind(
            count=0,
            group="billing",
            execute={},
            step=told.step,
            end=lambda error: None,
            batches=(),
            hooks=Listeners.of(None),
            clock=SystemClock(),
            **more,
        )
        for run in runs:
            workers.put(run)

        workers.give_back_cancelled()

        assert told.finished == [run for run in runs if run.is_cancelled]
        kept = [run for run in runs if not run.is_cancelled] + ([handed_out] if any(cancelled) else [])
        taken = [await taken if asyncio.iscoroutine(taken := workers.take(1.0)) else taken for _ in kept]
        assert taken == kept

    asyncio.run(on_a_loop())
