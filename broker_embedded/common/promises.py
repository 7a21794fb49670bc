"""Answers that come later, without a detour through the event loop.

asyncio runs a future's callbacks in the loop's next turn; a long poll that is woken by a produce would pass three turns
(each with a system call) before its response leaves. A `Promise` calls back at once, on the same thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeGuard, TypeVar

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")


class Promise(Generic[T]):
    """A result that is available now or later. The subset of asyncio.Future that handlers and the dispatcher use."""

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
        """Cancel the wait. Callbacks run, and see `cancelled()`."""
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


Deferred = asyncio.Future[T] | Promise[T]


def look_at(future: asyncio.Future[Any]) -> None:
    """Take note of a future's error, so that asyncio does not complain if the caller has lost interest."""
    if not future.cancelled():
        future.exception()


def is_deferred(answer: object) -> TypeGuard[Deferred[Any]]:
    """Return whether a value is a pending result."""
    return isinstance(answer, (Promise, asyncio.Future))


def pipe(
    promise: Deferred[B],
    source: Deferred[A],
    convert: Callable[[A], B],
    *,
    recover: Callable[[BaseException], B] | None = None,
    cancels_source: bool = True,
) -> None:
    """Settle `promise` with `convert(result)` of `source`, or with `recover(error)` if given; otherwise errors are
    passed on. Cancelling the source cancels the promise, and cancelling the promise cancels the source if
    `cancels_source`. A source that finishes after the promise was settled is ignored.
    """

    def on_source(finished: Deferred[A]) -> None:
        if promise.done():
            return
        if finished.cancelled():
            promise.cancel()
            return
        error = finished.exception()
        if error is not None and recover is None:
            promise.set_exception(error)
            return
        try:
            result = convert(finished.result()) if error is None or recover is None else recover(error)
        except Exception as failure:
            promise.set_exception(failure)
        else:
            promise.set_result(result)

    source.add_done_callback(on_source)
    if cancels_source:
        promise.add_done_callback(lambda done: _drop(done, source))


def _drop(promise: Deferred[Any], source: Deferred[Any]) -> None:
    if promise.cancelled() and not source.done():
        source.cancel()


def map_result(source: Deferred[A], convert: Callable[[A], B], *, cancels_source: bool = False) -> B | Promise[B]:
    """Return `convert(result)`: now if the result is there (a single-voter quorum commits at once), else a promise of
    it."""
    if source.done():
        return convert(source.result())
    converted: Promise[B] = Promise()
    pipe(converted, source, convert, cancels_source=cancels_source)
    return converted


def settle(promise: Deferred[Any], answer: Any) -> None:
    """Keep `promise` with `answer`, also if that is a promise itself. Nothing happens if it was cancelled."""
    if is_deferred(answer):
        pipe(promise, answer, _as_it_is)
    elif not promise.done():
        promise.set_result(answer)


def run_into(promise: Promise[Any], work: Callable[[], Any]) -> None:
    """Settle `promise` with the result or error of `work`."""
    try:
        answer = work()
    except Exception as error:
        promise.set_exception(error)
        return
    settle(promise, answer)


def _as_it_is(result: A) -> A:
    return result
