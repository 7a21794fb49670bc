"""Calls that are tried again, by tenacity: random exponential waits, an end, and one log event per attempt.

The waits are tenacity's `wait_random_exponential`: from nothing up to `first_s`, twice as much after each attempt, at
most `longest_s`. Clients that lost a broker together do not come back together. Clock and sleep are arguments, so that
a thread waits by an event that ends the wait, and a test by a clock of its own. tenacity is imported with the first
attempt that fails: a program whose calls succeed does not pay for it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")
Errors: TypeAlias = "type[Exception] | tuple[type[Exception], ...]"


class NotYet(Exception):
    """Try the call again, which itself says when its time is up. Never leaves `try_again`."""


class Awaited(NotYet):
    """As `NotYet`, and logs the warning `event` with `fields` in place of `call_retried`."""

    def __init__(self, event: str, fields: Mapping[str, object]) -> None:
        super().__init__(event)
        self.event = event
        self.fields = fields


def try_again(
    call: Callable[[], T],
    *,
    what: str,
    errors: Errors = NotYet,
    first_s: float = 0.1,
    longest_s: float = 1.0,
    until_s: float | None = None,
    attempts: int | None = None,
    gives_up: Callable[[], bool] = lambda: False,
    is_logged: bool = True,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> T:
    """Return what `call` returns, tried again while it raises one of `errors`; in a thread.

    It ends, and raises the last error, `until_s` by the clock `now_s`, after `attempts`, or when `gives_up()`. No wait
    goes beyond `until_s`. With `NotYet` only the call itself ends it. `what` names the call in the log.
    """
    try:
        return call()
    except Exception as error:
        if not isinstance(error, errors):
            raise
        first = [error]
    from tenacity import Retrying

    options = _options(what, errors, first_s, longest_s, until_s, attempts, gives_up, is_logged, now_s, sleep)
    return Retrying(**options)(lambda: _once_more(call, first))


async def try_again_async(
    call: Callable[[], Awaitable[T]],
    *,
    what: str,
    errors: Errors = NotYet,
    first_s: float = 0.1,
    longest_s: float = 1.0,
    until_s: float | None = None,
    attempts: int | None = None,
    gives_up: Callable[[], bool] = lambda: False,
    is_logged: bool = True,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] | None = None,
) -> T:
    """As `try_again`, for a coroutine on an event loop."""
    try:
        return await call()
    except Exception as error:
        if not isinstance(error, errors):
            raise
        first = [error]
    import asyncio

    from tenacity import AsyncRetrying

    async def next_attempt() -> T:
        return await _once_more(call, first)

    pause = sleep or asyncio.sleep
    options = _options(what, errors, first_s, longest_s, until_s, attempts, gives_up, is_logged, now_s, pause)
    return await AsyncRetrying(**options)(next_attempt)


def _once_more(call: Callable[[], T], first: list[Exception]) -> T:
    """Raise the error of the attempt before tenacity's loop, which counts it, or make another attempt."""
    if first:
        raise first.pop()
    return call()


def pause_s(
    error: BaseException, *, what: str, attempt: int, first_s: float, longest_s: float = 1.0, left_s: float
) -> float:
    """Return the wait after attempt number `attempt`, at most `left_s`, and log it: for procedures, whose drivers wait
    for them (`ottla.stepping`)."""
    from tenacity import RetryCallState, Retrying, wait_random_exponential

    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempt
    waits_s = min(wait_random_exponential(multiplier=first_s, max=longest_s)(state), left_s)
    _log(what, attempt, error, waits_s)
    return waits_s


def _log(what: str, attempt: int, error: BaseException | None, in_s: float) -> None:
    from ottla.telemetry import log_event

    said = f"{type(error).__name__}: {error}"
    log_event("call_retried", "debug", {"call": what, "attempt": attempt, "error": said, "in_ms": round(in_s * 1_000)})


def _options(
    what: str,
    errors: Errors,
    first_s: float,
    longest_s: float,
    until_s: float | None,
    attempts: int | None,
    gives_up: Callable[[], bool],
    is_logged: bool,
    now_s: Callable[[], float],
    sleep: Callable[[float], object],
) -> dict[str, Any]:
    from tenacity import retry_if_exception_type, wait_random_exponential

    backoff = wait_random_exponential(multiplier=first_s, max=longest_s)

    def wait(state: RetryCallState) -> float:
        waits_s = backoff(state)
        return waits_s if until_s is None else max(0.0, min(waits_s, until_s - now_s()))

    def stop(state: RetryCallState) -> bool:
        if isinstance(_error_of(state), NotYet):
            return False
        is_late = until_s is not None and now_s() >= until_s
        return is_late or gives_up() or (attempts is not None and state.attempt_number >= attempts)

    def log(state: RetryCallState) -> None:
        error = _error_of(state)
        if isinstance(error, Awaited):
            from ottla.telemetry import log_event

            log_event(error.event, "warning", error.fields)
        elif is_logged:
            _log(what, state.attempt_number, error, state.upcoming_sleep)

    return {
        "sleep": sleep,
        "wait": wait,
        "stop": stop,
        "retry": retry_if_exception_type(errors),
        "before_sleep": log,
        "reraise": True,
    }


def _error_of(state: RetryCallState) -> BaseException | None:
    assert state.outcome is not None
    return state.outcome.exception()
