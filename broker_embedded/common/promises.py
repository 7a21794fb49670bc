"""Answers that come later, without a detour through the event loop.

asyncio runs a future's callbacks in the loop's next turn; a long poll that is woken by a produce would pass three turns
(each with a system call) before its response leaves. A `Promise` calls back at once, on the same thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Promise(Generic[T]):
    """A result that is there now or later. The subset of asyncio.Future that handlers and the dispatcher use."""

    __slots__ = ("_callbacks", "_cancelled", "_done", "_error", "_result")

    def __init__(self) -> None:
        self._done = False
        self._cancelled = False
        self._error: BaseException | None = None
        self._result: T | None = None
        self._callbacks: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self._done

    def cancelled(self) -> bool:
        return self._cancelled

    def exception(self) -> BaseException | None:
        return self._error

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # only asked for when done

    def set_result(self, result: T) -> None:
        self._result = result
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._finish()

    def cancel(self) -> bool:
        """Nobody waits any more. Callbacks run, and see `cancelled()`."""
        if self._done:
            return False
        self._cancelled = True
        self._finish()
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call `callback(self)` when done: at once if it is."""
        if self._done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def _finish(self) -> None:
        if self._done:
            raise asyncio.InvalidStateError("a promise is kept once")
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


Later = asyncio.Future[T] | Promise[T]


def then(source: Later[A], convert: Callable[[A], B]) -> B | Promise[B]:
    """`convert(result)`: now if the result is there (a single-voter quorum commits at once), else a promise of it."""
    if source.done():
        return convert(source.result())
    converted: Promise[B] = Promise()

    def done(finished: Later[A]) -> None:
        if converted.done():
            return
        if finished.cancelled():
            converted.cancel()
            return
        error = finished.exception()
        if error is not None:
            converted.set_exception(error)
            return
        try:
            result = convert(finished.result())
        except Exception as failure:
            converted.set_exception(failure)
        else:
            converted.set_result(result)

    source.add_done_callback(done)
    return converted


def resolve(promise: Promise[Any], work: Callable[[], Any]) -> None:
    """Keep `promise` with what `work` returns, also if that is a promise itself; a cancelled promise cancels it."""
    try:
        answer = work()
    except Exception as error:
        promise.set_exception(error)
        return
    if not isinstance(answer, (Promise, asyncio.Future)):
        promise.set_result(answer)
        return

    def keep(done: Later[Any]) -> None:
        if promise.done():
            return
        if done.cancelled():
            promise.cancel()
            return
        error = done.exception()
        if error is None:
            promise.set_result(done.result())
        else:
            promise.set_exception(error)

    def drop(done: Promise[Any]) -> None:
        if done.cancelled():
            answer.cancel()

    answer.add_done_callback(keep)
    promise.add_done_callback(drop)
