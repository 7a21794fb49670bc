"""What a handler sent on and returned: its record is done when that is acknowledged, and not before (C4).

    @app.handler("orders", value=Avro(Order))
    def forward(order: Order) -> Delivery:
        return producer.send("invoices", invoice_of(order))

A handler that returns the delivery (or several) of what it sent needs no wait of its own: the sends of a whole run are
under way together, and the run waits once. A delivery that fails is a failure of the record, with the delivery's error.
What was handled after it stays done: the order of what was sent is the producer's, a retry comes behind it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ottla.delivery.exceptions import ExceptionTable, Failure


def pending_of(outcome: Any) -> Sequence[Any] | None:
    """The promises in what a handler returned, or None when it is something else.

    A promise has `exception()`, which waits and tells, as `Delivery` and `concurrent.futures.Future` have; or it can be
    awaited.
    """
    if isinstance(outcome, list | tuple):
        return outcome if outcome and all(_is_pending(one) for one in outcome) else None
    return (outcome,) if _is_pending(outcome) else None


def confirm(promises: Sequence[Any], exceptions: ExceptionTable) -> Failure | None:
    """Wait for all of them. The first failure, if there is one."""
    failure = None
    for promise in promises:
        if not _has_exception(promise):
            error: BaseException | None = TypeError(
                f"the handler returned {promise!r}, which nobody awaits: declare the handler with async def"
            )
            if inspect.iscoroutine(promise):
                promise.close()
        else:
            error = promise.exception()
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
                if error is not None:
                    raise error
        except Exception as error:
            failure = failure or exceptions.failure_of(error)
    return failure


def _is_pending(value: Any) -> bool:
    return _has_exception(value) or inspect.isawaitable(value)


def _has_exception(value: Any) -> bool:
    # By name: isinstance with a Protocol takes a microsecond, and this runs for each record that was sent on.
    return callable(getattr(type(value), "exception", None))
