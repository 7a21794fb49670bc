"""A worker that finished a run lets the thread that fetches take in what is urgent, before it gets its next run."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla.app.member import poll_priority
from ottla.app.member.handler_workers import ThreadWorkers
from ottla.app.member.poll_priority import PollThreadPriority
from ottla.clock import SystemClock
from ottla.consumer.model import events
from ottla.consumer.model.run import Run, RunResult
from ottla.records import TopicPartition
from ottla.telemetry import Listeners

FOR_EVER_S = 60.0


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released by each thread that begins to wait."""
    semaphore = threading.Semaphore(0)

    class SeenLock:
        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.release = self._lock.release

        def acquire(self, timeout: float = -1) -> bool:
            if timeout >= 0:
                semaphore.release()
            return self._lock.acquire(timeout=timeout)

    monkeypatch.setattr(poll_priority, "Lock", SeenLock)
    return semaphore


def giving(priority: PollThreadPriority, begun: threading.Semaphore) -> threading.Thread:
    thread = threading.Thread(target=priority.yield_to_poller, daemon=True)
    thread.start()
    assert begun.acquire(timeout=FOR_EVER_S / 2)
    return thread


def is_through(thread: threading.Thread) -> bool:
    thread.join(FOR_EVER_S / 2)
    return not thread.is_alive()


def test_all_who_give_wait_until_the_one_who_has_it_is_through(begun: threading.Semaphore) -> None:
    priority = PollThreadPriority(most_s=FOR_EVER_S)
    with priority:
        threads = [giving(priority, begun) for _ in range(3)]
        assert all(thread.is_alive() for thread in threads)
    assert all(map(is_through, threads))


def test_who_waits_for_one_time_does_not_wait_for_the_next(begun: threading.Semaphore) -> None:
    priority = PollThreadPriority(most_s=FOR_EVER_S)
    with priority:
        thread = giving(priority, begun)
    with priority:
        assert is_through(thread)


def test_nobody_waits_where_nobody_has_it() -> None:
    priority = PollThreadPriority(most_s=FOR_EVER_S)
    priority.yield_to_poller()
    with pytest.raises(KeyError), priority:
        raise KeyError
    priority.yield_to_poller()


def test_nobody_waits_for_ever_for_one_that_waits_for_workers_itself() -> None:
    priority = PollThreadPriority(most_s=0.001)
    with priority:
        priority.yield_to_poller()


def test_a_worker_gives_way_before_its_next_run_is_chosen() -> None:
    happened: list[str] = []

    class Priority(PollThreadPriority):
        def yield_to_poller(self) -> None:
            happened.append("gave")

    def step(event: events.Event, *, takes_run: bool = False) -> Run | None:
        happened.append(type(event).__name__)
        return None

    def execute(run: Run) -> Any:
        happened.append("handled")
        return RunResult()

    workers = ThreadWorkers(
        count=1,
        poll_priority=Priority(),
        group="billing",
        execute={"handle": execute},
        step=step,
        end=lambda error: None,
        batches=(),
        hooks=Listeners.of(None),
        clock=SystemClock(),
    )
    place = TopicPartition("orders", 0)
    workers.put(Run(topic_partition=place, epoch=1, route="handle", records=[], attempt=1, started_ms=0))
    workers.start()
    workers.stop()
    assert happened == ["handled", "gave", "RunFinished"]
