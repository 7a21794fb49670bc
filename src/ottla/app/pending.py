"""What a handler sent on and returned: its record is done when that is acknowledged, and not before.

    @app.handler("orders", value=Avro(Order))
    def forward(order: Order) -> Delivery:
        return producer.send("invoices", invoice_of(order))

A handler that returns the delivery (or several) of what it sent needs no wait of its own: the sends of a whole run are
under way together, and the run waits once, without a worker. A delivery that fails is a failure of the record, with the
delivery's error. What was handled after it in the run stays done: the order of what was sent is the producer's, a retry
comes behind it.
"""

from __future__ import annotations

import asyncio
import inspect
import types
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ottla.app.raised import is_being_cancelled
from ottla.consumer.model.run import RunResult
from ottla.failures.exceptions import ExceptionTable, Failure


class Confirming:
    """The result of a run as soon as these promises are settled. Made in a worker, finished in the thread of whoever
    settles the last promise; in one thread at a time."""

    __slots__ = ("_finish", "_then", "_waiting")

    def __init__(self, promises: list[Any], finish: Callable[[], RunResult]) -> None:
        self._waiting = promises
        self._finish = finish
        self._then: Callable[[RunResult], None]

    def when_confirmed(self, then: Callable[[RunResult], None]) -> None:
        """Call `then` with the result, at once if all is settled."""
        self._then = then
        self._look()

    def wait(self) -> RunResult:
        """The result, waiting for it in this thread."""
        return self._finish()

    def _look(self, _settled: Any = None) -> None:
        # One callback at a time, on the last promise that is open: what was sent before it is settled by then, as a
        # rule, and a callback for every record would cost as much as sending it.
        waiting = self._waiting
        while waiting:
            promise = waiting[-1]
            if not promise.done():
                promise.add_done_callback(self._look)
                return
            waiting.pop()
        self._then(self._finish())


class ConfirmingOnLoop:
    """The same for an event loop: `await confirming.wait()`."""

    __slots__ = ("_finish",)

    def __init__(self, finish: Callable[[], Awaitable[RunResult]]) -> None:
        self._finish = finish

    async def wait(self) -> RunResult:
        return await self._finish()


def tell_when_done(promises: Sequence[Any]) -> bool:
    """Whether each promise calls back when it is settled; one that does not has to be waited for."""
    return all(
        hasattr(kind, "add_done_callback") and hasattr(kind, "done") and not hasattr(kind, "__await__")
        for kind in set(map(type, promises))
    )


def confirm(promises: Sequence[Any], exceptions: ExceptionTable) -> Failure | None:
    """Wait for all of them. The first failure, if there is one."""
    failure = None
    for promise in promises:
        error: BaseException | None
        if not _has_exception(promise):
            error = TypeError(
                f"the handler returned {promise!r}, which nothing awaits: declare the handler with async def"
            )
            if inspect.iscoroutine(promise):
                promise.close()
        else:
            try:
                error = promise.exception()
            except BaseException as raised:  # cancelled, or not settled in the time it may take
                error = raised
            _mark_handled(promise)  # it is the record's failure now
        if error is not None and failure is None:
            failure = exceptions.failure_of(error)
    return failure


async def confirm_async(promises: Sequence[Any], exceptions: ExceptionTable) -> Failure | None:
    """`confirm` on an event loop: what is awaitable is awaited, what is not must be done already."""
    failure = None
    for promise in promises:
        try:
            if inspect.isawaitable(promise):
                await promise
            else:
                error = promise.exception()
                _mark_handled(promise)  # it is the record's failure now
                if error is not None:
                    raise error
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            failure = failure or exceptions.failure_of(error)  # the promise was cancelled, not this task
        except GeneratorExit:  # this coroutine is closed
            raise
        except BaseException as error:  # what ended the promise, whatever it is (PyO3's panics are no Exception)
            failure = failure or exceptions.failure_of(error)
    return failure


def _mark_handled(promise: Any) -> None:
    """A producer's delivery is told who deals with its failure: the producer's next flush need not raise it again."""
    mark = getattr(promise, "mark_handled", None)
    if mark is not None:
        mark()


def is_promise(value: Any) -> bool:
    """Whether a returned value is something to wait for: it has `exception()`, which waits and tells, as `Delivery` and
    `concurrent.futures.Future` have; or it can be awaited."""
    return _has_exception(value) or inspect.isawaitable(value)


def is_kind_of_promise(kind: type[Any]) -> bool:
    """Whether values of this type may be promises."""
    return callable(getattr(kind, "exception", None)) or hasattr(kind, "__await__") or kind is types.GeneratorType


def _has_exception(value: Any) -> bool:
    # By name: isinstance with a Protocol takes a microsecond, and this runs for each record that was sent on.
    return callable(getattr(type(value), "exception", None))
