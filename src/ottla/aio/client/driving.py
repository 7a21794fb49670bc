"""Makes the calls of a procedure on an event loop, one after the other."""

from __future__ import annotations

from typing import TypeVar

from ottla.stepping import Driven, Steps

T = TypeVar("T")


async def run(steps: Steps[T]) -> T:
    """The result of the procedure."""
    driven = Driven(steps)
    for call in driven:
        with driven:
            driven.answer = await call()
    return driven.result
