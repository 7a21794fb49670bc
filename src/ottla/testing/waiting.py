"""Wait for a condition with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ottla.quantities import Span, timeout
from ottla.retrying import NotYet, try_again, try_again_async
from ottla.testing.watched import raise_failed_assertion

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: Span = 10.0, *, what: str = "", interval_s: float = 0.005) -> T:
    """Call `condition` until it returns a true value, and return that. TimeoutError names `what`. An assertion that
    fails meanwhile in a handler of an app beside the test (`RunningApp`, `ServedApp`) is raised here."""
    look = _look(condition, timeout("wait_until", timeout_s), what)
    return try_again(look, what=what, first_s=interval_s, longest_s=interval_s, is_logged=False)


async def wait_until_async(
    condition: Callable[[], T], timeout_s: Span = 10.0, *, what: str = "", interval_s: float = 0.005
) -> T:
    """Wait as `wait_until` does, for asyncio tests: the event loop runs between two checks.

    Raises `TimeoutError` when the condition does not come true in time.
    """
    look = _look(condition, timeout("wait_until", timeout_s), what)

    async def look_async() -> T:
        return look()

    return await try_again_async(look_async, what=what, first_s=interval_s, longest_s=interval_s, is_logged=False)


def _look(condition: Callable[[], T], timeout_s: float, what: str) -> Callable[[], T]:
    """Return a function that returns the condition's value once it is true, and raises `NotYet` until the time is
    up."""
    until_s = time.monotonic() + timeout_s

    def look() -> T:
        found = condition()
        if found:
            return found
        raise_failed_assertion()
        if time.monotonic() >= until_s:
            name = what or getattr(condition, "__qualname__", repr(condition))
            raise TimeoutError(f"still waiting for {name} after {timeout_s:g} s; last seen: {found!r}")
        raise NotYet(what)

    return look
