"""What other threads want of the client, done by the poll thread between two polls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeVar

T = TypeVar("T")

_LOOK_EVERY_S: Final = 0.05
"""How late a caller hears that nobody polls any more."""


class PollCalls:
    """A queue of calls. Only the poll thread may call the client, and `run` is called by that thread alone."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()

    def ask(self, call: Callable[[], T], *, is_over: Callable[[], bool], closed: Callable[[], Exception]) -> T:
        """Have `call` made, and answer with its result, or raise its error; that of `closed` once nobody polls."""
        result: Future[T] = Future()
        self._calls.put((call, result))
        while True:
            was_over = is_over()
            try:
                return result.result(_LOOK_EVERY_S)
            except TimeoutError:
                if result.done():  # it was the call's own, or it came at this moment
                    return result.result()
                if was_over:
                    raise closed() from None

    @property
    def are_waiting(self) -> bool:
        return not self._calls.empty()

    def run(self) -> None:
        """Make all calls that wait."""
        while self.are_waiting:
            call, result = self._calls.get_nowait()
            try:
                result.set_result(call())
            except BaseException as error:
                result.set_exception(error)
