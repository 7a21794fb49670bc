"""What other threads have the poll thread do."""

from __future__ import annotations

import threading

import pytest

from ottla.sync.consume.client_work import PollCalls


class Polling:
    """A thread that makes calls until it is told to end."""

    def __init__(self) -> None:
        self.calls = PollCalls()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self._poll)

    def __enter__(self) -> Polling:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join()

    def ask(self, call):
        return self.calls.ask(call, is_over=self.is_over.is_set, closed=lambda: RuntimeError("closed"))

    def _poll(self) -> None:
        while not self.is_over.wait(0.001):
            self.calls.run()


def refuse(error):
    raise error


def test_a_call_is_made_by_the_polling_thread_and_its_result_comes_back() -> None:
    with Polling() as polling:
        assert polling.ask(threading.current_thread) is polling.thread


@pytest.mark.parametrize("error", [ValueError("no such offset"), TimeoutError("no answer in time")])
def test_what_a_call_raises_comes_back(error: Exception) -> None:
    with Polling() as polling, pytest.raises(type(error), match=str(error)):
        polling.ask(lambda: refuse(error))


def test_a_call_that_nobody_will_make_ends_with_what_closed_says() -> None:
    polling = Polling()
    polling.is_over.set()
    with pytest.raises(RuntimeError, match="closed"):
        polling.ask(lambda: 1)


def test_a_call_that_takes_longer_than_a_look_is_waited_for() -> None:
    goes_on = threading.Event()
    with Polling() as polling:
        threading.Timer(0.2, goes_on.set).start()
        assert polling.ask(lambda: goes_on.wait(30)) is True
