"""A signal that ends the demo leaves no process behind, also one that comes while a process starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ottla.cli.demo.job import Endings, Interrupted

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def endings() -> Iterator[Endings]:
    handler = Endings()
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    yield handler
    for number, each in before.items():
        signal.signal(number, each)


def start_a_process(endings: Endings, stopped: list[str]) -> None:
    with ExitStack() as stack:
        with endings.held():
            os.kill(os.getpid(), signal.SIGINT)
            stack.callback(stopped.append, "cluster")
        stopped.append("not at once")


def test_a_signal_while_a_process_starts_is_raised_once_the_process_can_be_ended(endings: Endings) -> None:
    stopped: list[str] = []
    with pytest.raises(Interrupted):
        start_a_process(endings, stopped)
    assert stopped == ["cluster"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_raised_where_the_demo_is_and_a_second_one_does_nothing(
    endings: Endings, number: signal.Signals
) -> None:
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), number)
    for each in SIGNALS:
        os.kill(os.getpid(), each)
