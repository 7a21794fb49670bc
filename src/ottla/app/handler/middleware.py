"""Middleware: functions around a handler, outermost first.

    def timed(record, context, call_next):
        started = time.perf_counter()
        outcome = call_next(record)
        histogram.observe(time.perf_counter() - started)
        return outcome

It sees the record decoded (`record.value`) and raw (`record.raw_value`), may pass another record on, may return an
outcome of its own without calling on, and sees the handler's exceptions. Around an async handler `call_next(record)`
gives an awaitable; an `async def` middleware makes its handler async.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from ottla.app.handler.binding import Binding, Call
from ottla.app.handler.handler_context import Context

Middleware: TypeAlias = Callable[[Any, Context, Callable[[Any], Any]], Any]


def wrap(binding: Binding, middlewares: Sequence[Middleware]) -> Binding:
    """Return the binding with the middlewares around it. Costs nothing per record when there are none."""
    call = binding.call
    is_async = binding.is_async or any(inspect.iscoroutinefunction(middleware) for middleware in middlewares)
    if is_async and not binding.is_async and middlewares:
        call = _as_async(call)
    for middleware in reversed(middlewares):
        call = _around(middleware, call)
    return Binding(
        call=call,
        is_async=is_async,
        wants_malformed=binding.wants_malformed,
        frame_hint=binding.frame_hint,
        of_value=None if middlewares else binding.of_value,  # a middleware may look at the record
    )


def _around(middleware: Middleware, inner: Call) -> Call:
    def call(subject: Any, context: Context) -> Any:
        return middleware(subject, context, lambda passed: inner(passed, context))

    return call


def _as_async(inner: Call) -> Call:
    async def call(subject: Any, context: Context) -> Any:
        return inner(subject, context)

    return call
