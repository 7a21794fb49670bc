"""Procedures: code that decides, and leaves to its driver what waits, whether a thread or an event loop waits for it.

A procedure is a generator. It yields requests, one after the other, and gets an answer to each:

    def opened(client: Client) -> Procedure[Request, Any, str]:
        found = yield Describe("orders")
        ...
        return found.name

`drive` answers the requests in a thread, `drive_async` on an event loop. An exception of an answer is raised inside the
procedure, where it waits. It may catch it, and yield further requests, as in a `finally`.

In the simplest kind of procedure, `Steps`, a request is the call to make, a function without arguments: `run` and
`run_async` make it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from operator import call
from typing import Any, TypeAlias, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")

Procedure: TypeAlias = Generator[Q, A, T]
"""Yields requests of type Q, gets answers of type A, and returns a T."""

Steps: TypeAlias = Procedure[Callable[[], Any], Any, T]
"""Yields the calls to make, and gets what each of them returned."""


def drive(procedure: Procedure[Q, A, T], answer: Callable[[Q], A]) -> T:
    """Answer one request after the other in this thread. Returns the procedure's result, raises what it raises."""
    try:
        request = next(procedure)
        while True:
            error: BaseException | None = None
            try:
                found = answer(request)
            except BaseException as raised:
                error = raised
            # Outside of `except`: an error that the procedure raises later has nothing to do with this one.
            request = procedure.send(found) if error is None else procedure.throw(error)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        error = None  # A frame that refers to an error which refers to the frame is garbage that only a cycle collects.


async def drive_async(procedure: Procedure[Q, A, T], answer: Callable[[Q], Awaitable[A]]) -> T:
    """As `drive`, on an event loop. A cancel of the task is raised inside the procedure too."""
    try:
        request = next(procedure)
        while True:
            error: BaseException | None = None
            try:
                found = await answer(request)
            except BaseException as raised:
                error = raised
            request = procedure.send(found) if error is None else procedure.throw(error)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        error = None


def run(steps: Steps[T]) -> T:
    """Make one call after the other in this thread. Returns the procedure's result."""
    return drive(steps, call)


async def run_async(steps: Steps[T]) -> T:
    """Make one call after the other and await each. Returns the procedure's result."""
    return await drive_async(steps, call)
