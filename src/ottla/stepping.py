"""Procedures that are decided once and waited for in more than one way: by a thread, on an event loop.

Such a procedure is a generator. It yields the calls that wait, one after the other, as functions without arguments.
The driver makes each call, awaits it on an event loop, and gives the result back:

    driven = Driven(steps)
    for call in driven:
        with driven:
            driven.answer = await call()
    return driven.result

`run` does that in a thread. What a call raises is raised inside the procedure, where it
waited for the call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

__all__ = ["Driven", "Steps", "run"]

T = TypeVar("T")
Steps = Generator[Callable[[], Any], Any, T]


class Driven(Generic[T]):
    """One procedure on its way. Iterating gives its calls; each is made inside `with`."""

    __slots__ = ("_error", "_steps", "answer", "result")

    result: T
    """What the procedure returned. Set when the iteration has ended."""

    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._error: BaseException | None = None
        self.answer: Any = None
        """What the call returned."""

    def __iter__(self) -> Iterator[Callable[[], Any]]:
        return self

    def __next__(self) -> Callable[[], Any]:
        answer, self.answer = self.answer, None
        error, self._error = self._error, None
        try:
            return self._steps.send(answer) if error is None else self._steps.throw(error)
        except StopIteration as done:
            self.result = done.value
            raise StopIteration from None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._error = error
        return error is not None


def run(steps: Steps[T]) -> T:
    """Make one call after the other, and wait here for each. Returns the procedure's result."""
    driven = Driven(steps)
    for call in driven:
        with driven:
            driven.answer = call()
    return driven.result
