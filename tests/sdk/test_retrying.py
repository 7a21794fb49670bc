"""Calls that are tried again: how long they wait, what ends them, and what is logged. Both forms by the same tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ottla import telemetry
from ottla.retrying import Awaited, NotYet, try_again, try_again_async


class Loop:
    """Calls `try_again` or `try_again_async` with a clock that only sleeping moves."""

    def __init__(self, form: str) -> None:
        self._form = form
        self.now_s = 100.0
        self.slept: list[float] = []

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    async def _sleep_async(self, seconds: float) -> None:
        self._sleep(seconds)

    def __call__(self, call: Callable[[], Any], **options: Any) -> Any:
        if self._form == "blocking":
            return try_again(call, what="it", now_s=lambda: self.now_s, sleep=self._sleep, **options)

        async def called() -> Any:
            return call()

        return asyncio.run(
            try_again_async(called, what="it", now_s=lambda: self.now_s, sleep=self._sleep_async, **options)
        )


@pytest.fixture(params=["blocking", "awaited"])
def loop(request: pytest.FixtureRequest) -> Loop:
    return Loop(request.param)


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, dict[str, Any]]]:
    events: list[tuple[str, str, dict[str, Any]]] = []

    def log_event(event: str, level: str, fields: Mapping[str, Any]) -> None:
        events.append((event, level, dict(fields)))

    monkeypatch.setattr(telemetry, "log_event", log_event)
    return events


def failing(times: int, error: Exception, then: object = "done") -> Callable[[], object]:
    left = [error] * times

    def call() -> object:
        if left:
            raise left.pop()
        return then

    return call


def test_each_wait_is_random_below_a_bound_that_doubles(loop: Loop) -> None:
    assert loop(failing(7, OSError("gone")), errors=OSError, first_s=0.1, longest_s=1.0) == "done"

    assert len(loop.slept) == 7
    for waited_s, bound_s in zip(loop.slept, (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0), strict=True):
        assert 0 <= waited_s <= bound_s
    assert len(set(loop.slept)) == 7


def test_no_wait_goes_beyond_the_end_and_the_last_error_is_raised(loop: Loop) -> None:
    with pytest.raises(OSError, match="gone"):
        loop(failing(10_000, OSError("gone")), errors=OSError, first_s=1.0, longest_s=4.0, until_s=130.0)

    assert loop.now_s == pytest.approx(130.0)


def test_it_ends_after_the_attempts_it_has(loop: Loop) -> None:
    with pytest.raises(OSError, match="gone"):
        loop(failing(3, OSError("gone")), errors=OSError, attempts=3)
    assert len(loop.slept) == 2
    assert loop(failing(2, OSError("gone")), errors=OSError, attempts=3) == "done"


def test_it_ends_when_the_caller_gives_up(loop: Loop) -> None:
    with pytest.raises(OSError, match="gone"):
        loop(failing(100, OSError("gone")), errors=OSError, gives_up=lambda: len(loop.slept) >= 2)
    assert len(loop.slept) == 2


def test_other_errors_are_raised_at_once_and_later(loop: Loop) -> None:
    with pytest.raises(KeyError):
        loop(failing(1, KeyError("k")), errors=OSError)
    errors: list[Exception] = [KeyError("k"), OSError("gone")]

    def call() -> None:
        raise errors.pop()

    with pytest.raises(KeyError):
        loop(call, errors=OSError)
    assert len(loop.slept) == 1


def test_a_call_that_says_not_yet_ends_by_itself_alone(loop: Loop) -> None:
    assert loop(failing(5, NotYet("soon")), until_s=100.0, attempts=1, gives_up=lambda: True) == "done"
    assert loop.slept == [0.0] * 5


def test_each_attempt_is_logged_once(loop: Loop, logged: list[Any]) -> None:
    loop(failing(2, OSError("gone")), errors=OSError)

    assert [(event, level) for event, level, _ in logged] == [("call_retried", "debug")] * 2
    assert [(fields["call"], fields["attempt"], fields["error"]) for _, _, fields in logged] == [
        ("it", 1, "OSError: gone"),
        ("it", 2, "OSError: gone"),
    ]
    assert [fields["in_ms"] for _, _, fields in logged] == [round(waited_s * 1_000) for waited_s in loop.slept]


def test_what_a_call_wants_logged_is_logged_instead(loop: Loop, logged: list[Any]) -> None:
    loop(failing(1, Awaited("broker_awaited", {"problem": "refused", "for_s": 3})))

    assert logged == [("broker_awaited", "warning", {"problem": "refused", "for_s": 3})]


def test_a_cancelled_task_is_not_tried_again() -> None:
    async def cancelled() -> None:
        started = asyncio.Event()

        async def call() -> None:
            started.set()
            raise OSError("gone")

        task = asyncio.create_task(try_again_async(call, what="it", errors=OSError, first_s=600.0, longest_s=600.0))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_a_call_that_succeeds_does_not_import_tenacity() -> None:
    program = (
        "import sys; from ottla.retrying import try_again; try_again(int, what=''); print('tenacity' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
