"""Work that runs beside an app: it begins again when it fails, and a close ends whichever runs."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ottla.app.background import background_task as beside
from ottla.app.background.background_task import BackgroundTask, RestartedWork
from ottla.consumer.readiness.health import Health
from ottla.testing.waiting import wait_until


class Work:
    """Runs until it is stopped or told to fail."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.fails: Exception | None = None

    def run(self) -> None:
        self.stopped.wait()
        if self.fails is not None:
            raise self.fails

    def stop(self) -> None:
        self.stopped.set()

    def health(self) -> Health:
        return Health(is_alive=True, is_ready=True, problems=("of the work",))

    def fail(self, error: Exception) -> None:
        self.fails = error
        self.stopped.set()


class Worker(BackgroundTask):
    """Counts what it makes. `on_made` is called while one is being made."""

    def __init__(self, *, refusal: Exception | None = None) -> None:
        super().__init__("worker", close_s=20)
        self.made: list[Work] = []
        self.logged: list[str] = []
        self.refusal = refusal
        self.on_made: Callable[[], None] = lambda: None

    def _made(self) -> RestartedWork:
        self.on_made()
        self.made.append(Work())
        return self.made[-1]

    def _begin(self, work: RestartedWork) -> None:
        if self.refusal is not None:
            raise self.refusal

    def _log_failure(self, error: str) -> None:
        self.logged.append(error)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "ottla-worker"]


def test_it_begins_again_and_says_so_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_AGAIN_S", 0.2)
    worker = Worker()
    assert worker.health().problems == ()
    worker.open()
    assert worker.health().problems == ("of the work",)

    worker.made[0].fail(OSError("no disk"))
    wait_until(lambda: len(worker.logged) == 1)
    assert "no disk" in worker.logged[0]
    seen = []
    wait_until(lambda: bool(seen.append(worker.health())) or len(worker.made) == 2)
    assert any("the worker ended, and begins again" in text for health in seen for text in health.problems)
    wait_until(lambda: worker.health().is_ready)
    worker.close()
    assert (worker.made[1].stopped.is_set(), threads()) == (True, [])
    assert worker.health().problems == ()


def test_what_its_start_refuses_is_raised_and_nothing_runs() -> None:
    worker = Worker(refusal=ValueError("no table"))
    with pytest.raises(ValueError, match="no table"):
        worker.open()
    assert threads() == []
    worker.close()


def test_a_close_while_the_next_one_is_made_stops_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "_AGAIN_S", 0.0)
    worker = Worker()
    worker.open()
    closing = threading.Thread(target=worker.close)
    worker.on_made = closing.start
    worker.made[0].fail(OSError("gone"))
    wait_until(lambda: len(worker.made) == 2)
    closing.join(20)
    assert (closing.is_alive(), worker.made[1].stopped.is_set(), threads()) == (False, True, [])


def test_it_ends_at_once_while_it_waits_to_begin_again() -> None:
    worker = Worker()
    worker.open()
    worker.made[0].fail(OSError("gone"))
    wait_until(lambda: len(worker.logged) == 1)
    worker.close()
    assert (len(worker.made), threads()) == (1, [])
    worker.open()
    assert len(worker.made) == 2, "it can be opened again"
    worker.close()
