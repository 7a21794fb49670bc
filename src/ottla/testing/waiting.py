"""Wait for a condition with a deadline, instead of sleeping and hoping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

from ottla.quantities import Span, timeout
from ottla.testing.watched import raise_failed_assertion

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout_s: Span = 10.0, *, what: str = "", interval_s: float = 0.005) -> T:
    """Call `condition` until it gives something true, and return that. TimeoutError names `what` was waited for.

    An assertion that fails meanwhile in a handler of an app beside the test (`RunningApp`, `ServedApp`) is raised here.
    """
    limit_s = timeout("wait_until", timeout_s)
    deadline = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        raise_failed_assertion()
        if time.monotonic() >= deadline:
            raise TimeoutError(_not_met(condition, found, limit_s, what))
        time.sleep(interval_s)


async def wait_until_async(
    condition: Callable[[], T], timeout_s: Span = 10.0, *, what: str = "", interval_s: float = 0.005
) -> T:
    """`wait_until` for asyncio tests: the event loop runs on between two looks.

    Raises `TimeoutError` when the condition does not come true in time.
    """
    limit_s = timeout("wait_until", timeout_s)
    deadline = time.monotonic() + limit_s
    while True:
        found = condition()
        if found:
            return found
        raise_failed_assertion()
        if time.monotonic() >= deadline:
            raise TimeoutError(_not_met(condition, found, limit_s, what))
        await asyncio.sleep(interval_s)


def _not_met(condition: Callable[[], object], found: object, timeout_s: float, what: str) -> str:
    name = what or getattr(condition, "__qualname__", repr(condition))
    return f"still waiting for {name} after {timeout_s:g} s; last seen: {found!r}"
