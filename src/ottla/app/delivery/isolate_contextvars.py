"""Each record is handled in a copy of its worker's context: context variables that a handler sets end with the record.

Without it a handler that binds an order's id to its log lines, and fails before it takes it off again, writes the id on
the lines of every later record. For plain handlers it is `copy_context().run`; here is the same for what is awaited.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any

RunIn = Callable[..., Any]
"""`Context.run` of one context."""


Values = Sequence[tuple[Callable[..., Any], Any]]
"""How each variable of a context is read, and its value."""


def values_in(context: Context, *, without: ContextVar[Any]) -> Values:
    """Return the variables of a context that is current, but for one, to be compared by identity. Contexts compare
    their values by `==`: a list that a handler put into the place of an equal one would be the next record's."""
    return [(variable.get, value) for variable, value in context.items() if variable is not without]


async def call_isolated(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call, and await what comes back if it can be awaited, all in one new context."""
    run = copy_context().run
    returned = run(call, *arguments)
    if type(returned) is types.CoroutineType:
        try:
            waits_for = run(returned.send, None)
        except StopIteration as ended:
            return ended.value
        return await _rest_of(returned, waits_for, run)
    return await returned if inspect.isawaitable(returned) else returned


@types.coroutine
def _rest_of(coroutine: Coroutine[Any, Any, Any], waits_for: Any, run: RunIn) -> Generator[Any, Any, Any]:
    """Await the rest of a coroutine that was begun in the context of `run`, and waits for `waits_for` now."""
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                run(coroutine.close)
                raise
            except BaseException as error:
                waits_for = run(coroutine.throw, error)
            else:
                waits_for = run(coroutine.send, sent)
    except StopIteration as ended:
        return ended.value
