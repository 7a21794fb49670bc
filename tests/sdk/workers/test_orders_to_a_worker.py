"""What a worker process does with its supervisor's orders, over a real link in one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ottla import App
from ottla.cli.services import orders
from ottla.cli.services.worker import Worker
from ottla.errors import ConfigError
from ottla.processes.worker_link import LINK_VARIABLE, WorkerLink
from ottla.testing import wait_until


@pytest.fixture
def link() -> Iterator[WorkerLink]:
    own, other = WorkerLink.pair()
    environ = {LINK_VARIABLE: str(other.detach())}
    worker = Worker.of_environment(environ)
    assert worker is not None
    assert environ == {}, "what the service starts is no worker"
    own.worker = worker  # type: ignore[attr-defined]
    yield own
    worker._app = worker._app or App("ended")  # without an app the end of the link ends the process
    own.close()
    worker._link.close()


def worker_of(link: WorkerLink) -> Worker:
    worker: Worker = link.worker  # type: ignore[attr-defined]
    return worker


def app() -> App:
    made = App("billing", drain_s=3, unready_after_s=20)

    @made.handler("orders")
    def on_order(value: bytes) -> None: ...

    return made


def test_it_says_that_it_has_loaded_and_then_how_it_is(link: WorkerLink) -> None:
    worker_of(link).loaded(app(), hung_after_s=None)
    said = {"said": "loaded", "group": "billing", "grace_ms": 46_000, "hung_after_ms": 100_000}
    assert link.receive() == said
    report = link.receive()
    assert report is not None
    assert report["said"] == "report"
    assert report["stuck_ms"] == 0
    assert report["body"]["problems"] == ["the app is not running"]


def test_a_stop_before_the_app_is_loaded_holds_for_the_app_too(
    link: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    signalled = threading.Event()
    monkeypatch.setattr(orders.os, "kill", lambda pid, number: signalled.set())
    link.send({"do": "stop"})
    assert signalled.wait(30)
    loaded = app()
    worker_of(link).loaded(loaded, hung_after_s=10)
    assert loaded._is_stop_asked


def test_it_stops_when_its_supervisor_has_died(link: WorkerLink) -> None:
    loaded = app()
    worker_of(link).loaded(loaded, hung_after_s=10)
    link.close()
    wait_until(lambda: loaded._is_stop_asked, 30, what="the stop")


def test_a_refusal_is_reported_and_raised(link: WorkerLink) -> None:
    with pytest.raises(ConfigError), worker_of(link).reporting_refusals():
        raise ConfigError("wrong")
    assert link.receive() == {"said": "refused"}


def test_a_process_that_no_supervisor_started_is_no_worker() -> None:
    assert Worker.of_environment({}) is None
