"""What a handler sent: its record is done when that is acknowledged, and not before.

    @app.handler("orders", value=Avro(Order))
    def forward(order: Order) -> None:
        producer.send("invoices", invoice_of(order))

What it sends with a producer of Ottla's belongs to the record (`ottla.producer.record_sends`), and so does any promise
that it returns. It needs no wait of its own: the sends of a whole run are under way together, and the run waits once,
without a worker. A delivery that fails is a failure of the record, with the delivery's error. What was handled after it
in the run stays done: the order of what was sent is the producer's, a retry comes behind it.

A failure that was raised to the handler, or marked as handled, is the handler's business, unless it returns the
delivery all the same.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import types
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeAlias

from ottla.consumer.model.run import AnyRecord, RunResult
from ottla.current_task import is_being_cancelled
from ottla.failures.exceptions import ExceptionTable, Failure
from ottla.failures.outcomes import Dead
from ottla.producer.bulk import BulkState
from ottla.producer.deliveries import SettledDelivery
from ottla.producer.record_sends import Sent
from ottla.showing import shown

_DELIVERIES: Final[tuple[type[Any], ...]] = (SettledDelivery, BulkState)

Pending: TypeAlias = "tuple[AnyRecord, Sequence[Any], Sequence[Sent]]"
"""A record whose handler returned, with the promises that it returned, and what it sent besides."""


class AwaitingAcks:
    """The result of a run as soon as these promises are settled. Made in a worker, finished in the thread of whoever
    settles the last promise; in one thread at a time.

    `finish` makes the result. Its argument says whether all is acknowledged: then none has to be checked.
    """

    __slots__ = ("_are_acknowledged", "_failed", "_finish", "_open", "_promises", "_then")

    def __init__(self, promises: Sequence[Any], finish: Callable[[bool], RunResult]) -> None:
        self._promises = promises
        self._open = len(promises)
        kinds = set(map(type, promises))
        kind = kinds.pop() if len(kinds) == 1 else None
        self._are_acknowledged: Callable[[Sequence[Any]], bool] = getattr(kind, "are_acknowledged", are_acknowledged)
        self._failed: list[Any] | None = None
        self._finish = finish
        self._then: Callable[[RunResult], None]

    def when_confirmed(self, then: Callable[[RunResult], None]) -> None:
        """Call `then` with the result, at once if all is settled."""
        self._then = then
        self._go_on()

    def wait(self) -> RunResult:
        """Return the result, waiting for it in this thread."""
        results: list[RunResult] = []
        is_confirmed = threading.Event()

        def then(result: RunResult) -> None:
            results.append(result)
            is_confirmed.set()

        self.when_confirmed(then)
        is_confirmed.wait()
        return results[0]

    def _go_on(self, _settled: Any = None) -> None:
        promises, count = self._promises, self._open
        if self._failed is None and self._are_acknowledged(promises):
            self._then(self._finish(True))
            return
        # One callback at a time, on the last promise that is open: what was sent before it is settled by then, as a
        # rule, and a callback for every record would cost as much as sending it.
        while count:
            promise = promises[count - 1]
            if not promise.done():
                self._open = count
                promise.add_done_callback(self._go_on)
                return
            count -= 1
        self._open = 0
        if self._failed is None:
            self._failed = _failed_deliveries(promises)
        if self._failed:  # the callbacks that it has are called before this one, and may deal with the failure
            self._failed.pop().add_done_callback(self._go_on)
            return
        self._then(self._finish(False))


class AwaitingAcksOnLoop:
    """`AwaitingAcks` for an event loop."""

    __slots__ = ("_finish",)

    def __init__(self, finish: Callable[[], Awaitable[RunResult]]) -> None:
        self._finish = finish

    async def wait(self) -> RunResult:
        return await self._finish()


def confirming(promises: Sequence[Any], finish: Callable[[bool], RunResult]) -> RunResult | AwaitingAcks:
    """Return the result once these promises are settled. Promises that call back keep no worker; others keep this
    one."""
    return AwaitingAcks(promises, finish) if _call_back(promises) else finish(False)


def promises_of(pending: Iterable[Pending]) -> list[Any]:
    """Return all promises of these records, returned and sent."""
    promises: list[Any] = []
    for _, returned, sent in pending:
        promises += returned
        promises += sent
    return promises


def unsettled(sends: Sequence[Sent], returned: Sequence[Any] = ()) -> Sequence[Sent]:
    """Return the sends that are pending, or whose failure was not handled. A failure that was `returned` counts as
    unhandled."""
    if len(sends) == 1:  # nearly always where there is something
        sent = sends[0]
        if not returned and not sent.done():
            return [sent]
        if len(returned) == 1 and sent is returned[0]:
            return ()
    known = set(map(id, returned))
    return [
        sent
        for sent in sends
        if id(sent) not in known and (not sent.done() or (sent.exception() is not None and not sent.is_handled))
    ]


def pending_of(
    records: Sequence[AnyRecord], promises: Sequence[Any], ends: Sequence[int], answers: Sequence[Any]
) -> list[Pending]:
    """Return the last records whose sends are pending or failed, with their part of `promises`. `ends` and `answers`
    have an element for each of the last records: where its part ends, and the handler's result (a promise, several, or
    None)."""
    pending: list[Pending] = []
    begin = 0
    for record, end, answer in zip(records[len(records) - len(ends) :], ends, answers, strict=True):
        returned = answer if isinstance(answer, list | tuple) else () if answer is None else (answer,)
        sent = unsettled(promises[begin:end], returned)
        begin = end
        if returned or sent:
            pending.append((record, returned, sent))
    return pending


def are_acknowledged(promises: Iterable[Any]) -> bool:
    """Return whether these promises are settled, and none failed."""
    try:
        for promise in promises:
            if not promise.done() or promise.exception() is not None:
                return False
    except BaseException:  # a promise of another kind, or one that was cancelled
        return False
    return True


def confirm(returned: Sequence[Any], sent: Sequence[Sent], exceptions: ExceptionTable) -> Failure | None:
    """Wait for all of them. The first failure, if there is one."""
    failure = None
    for promise in returned:
        error: BaseException | None
        if not _has_exception(promise):
            message = (
                f"the handler returned {shown(promise)}, which nothing awaits: declare the handler with async def, and "
                "await it there"
            )
            if inspect.iscoroutine(promise):
                promise.close()
            return Failure(outcome=Dead(reason=message), error_type="TypeError", message=message)
        else:
            try:
                error = promise.exception()
            except BaseException as raised:  # cancelled, or not settled in the time it may take
                error = raised
            _mark_handled(promise)  # it is the record's failure now
        if error is not None and failure is None:
            failure = exceptions.failure_of(error)
    return failure or _failure_in(sent, exceptions)


async def confirm_async(returned: Sequence[Any], sent: Sequence[Sent], exceptions: ExceptionTable) -> Failure | None:
    """Confirm as `confirm` does, on an event loop: what is awaitable is awaited, all else must be done already."""
    failure = None
    for promise in returned:
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
    return failure or _failure_in(sent, exceptions)


async def settled(promises: Sequence[Any]) -> None:
    """Wait until they are settled, as far as they call back. Never raises what they failed with."""
    loop = asyncio.get_running_loop()
    for promise in reversed(promises):  # see `AwaitingAcks`
        if not _calls_back(type(promise)) or promise.done():
            continue
        waiter: asyncio.Future[None] = loop.create_future()
        promise.add_done_callback(_waker(loop, waiter))
        await waiter


def _waker(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> Callable[[Any], None]:
    """Return a callback for any thread: the delivery may be a threaded producer's."""

    def wake() -> None:
        if not waiter.done():
            waiter.set_result(None)

    def is_settled(_: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed, and with it all waiters
            loop.call_soon_threadsafe(wake)

    return is_settled


def _failure_in(sent: Iterable[Sent], exceptions: ExceptionTable) -> Failure | None:
    failure = None
    for each in sent:
        error = each.exception()
        if error is not None and not each.is_handled:
            each.mark_handled()  # it is the record's failure now
            failure = failure or exceptions.failure_of(error)
    return failure


def _failed_deliveries(promises: Iterable[Any]) -> list[Any]:
    """Return those that have callbacks of the caller in front of ours."""
    return [each for each in promises if isinstance(each, _DELIVERIES) and each.exception() is not None]


def _call_back(promises: Iterable[Any]) -> bool:
    """Return whether each promise calls back when it is settled; one that does not has to be waited for."""
    return all(_calls_back(kind) and not hasattr(kind, "__await__") for kind in set(map(type, promises)))


def _calls_back(kind: type[Any]) -> bool:
    return hasattr(kind, "add_done_callback") and hasattr(kind, "done")


def _mark_handled(promise: Any) -> None:
    """Mark the delivery as handled, so that the producer's next flush does not raise its failure again."""
    mark = getattr(promise, "mark_handled", None)
    if mark is not None:
        mark()


def is_promise(value: Any) -> bool:
    """Return whether a returned value is something to wait for: it has `exception()`, which waits and returns, as
    `Delivery` and `concurrent.futures.Future` have; or it can be awaited."""
    return _has_exception(value) or inspect.isawaitable(value)


def is_kind_of_promise(kind: type[Any]) -> bool:
    """Return whether values of this type may be promises."""
    return callable(getattr(kind, "exception", None)) or hasattr(kind, "__await__") or kind is types.GeneratorType


def _has_exception(value: Any) -> bool:
    # By name: isinstance with a Protocol takes a microsecond, and this runs for each record that was sent on.
    return callable(getattr(type(value), "exception", None))
