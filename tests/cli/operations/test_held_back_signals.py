"""SIGTERM that is held back: by sigtimedwait(2), and without it, as on macOS."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from ottla.cli.operations.plan.termination import held_back


@pytest.fixture(params=["with sigtimedwait", "without"])
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without":
        monkeypatch.delattr(signal, "sigtimedwait")
    elif not hasattr(signal, "sigtimedwait"):
        pytest.skip("this system has no sigtimedwait(2)")


@pytest.mark.usefixtures("_system")
def test_a_signal_that_came_is_found_once_and_ends_nothing() -> None:
    with held_back() as comes_within:
        assert not comes_within(0)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # to none of the other threads of a test run
        assert comes_within(60)
        assert not comes_within(0)


@pytest.mark.usefixtures("_system")
def test_without_a_signal_the_whole_time_passes() -> None:
    with held_back() as comes_within:
        started_s = time.monotonic()
        assert not comes_within(0.08)
        assert time.monotonic() - started_s >= 0.08


@pytest.mark.usefixtures("_system")
def test_the_mask_is_as_before_afterwards() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with held_back():
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
