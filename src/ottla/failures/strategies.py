"""Retry strategies of tenacity, asked as pure functions: a failure and its count in, a wait or an end out.

tenacity's own loop sleeps; here nothing does. A strategy is called with a `tenacity.RetryCallState` that has what
strategies read: `attempt_number`, `outcome`, `seconds_since_start` and, for `stop`, `upcoming_sleep`. They are asked in
tenacity's order: `retry`, then `wait`, then `stop`. Randomness is tenacity's: its strategies draw from the module
`random`, so `random.seed` seeds them. tenacity is imported with the first failure that is asked about (11 ms).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ottla.errors import ConfigError
from ottla.failures.exceptions import described
from ottla.quantities import MOST_S
from ottla.showing import shown, shown_text

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

WaitStrategy: TypeAlias = "Callable[[RetryCallState], float]"
"""A `wait=` of tenacity: returns the seconds until the next attempt."""
StopStrategy: TypeAlias = "Callable[[RetryCallState], bool]"
"""A `stop=` of tenacity: returns whether the attempt was the last."""
RetryStrategy: TypeAlias = "Callable[[RetryCallState], bool]"
"""A `retry=` of tenacity: returns whether to try again after the outcome."""

_EXAMPLES = {
    "wait": "wait_random_exponential(multiplier=0.1, max=30)",
    "stop": "stop_after_attempt(5)",
    "retry": "retry_if_exception_type(TimeoutError)",
}


class Ended(Enum):
    """Why a record is not delivered again in place."""

    EXHAUSTED = "no attempt is left"
    NOT_RETRIED = "retry= does not name the failure"


def check_strategy(name: str, strategy: object) -> None:
    """Raise `ConfigError` for what cannot be asked as the argument `name` of a `RetryPolicy`."""
    if isinstance(strategy, type) or not callable(strategy):
        raise ConfigError(
            f"RetryPolicy: {name} must be a strategy of tenacity, such as {_EXAMPLES[name]}, got {shown(strategy)}"
        )
    if any(map(inspect.iscoroutinefunction, (strategy, type(strategy).__call__))):
        raise ConfigError(
            f"RetryPolicy: {name} is asked without an event loop, got {shown(strategy)}, which is asynchronous; "
            f"wanted a strategy of tenacity itself, not of tenacity.asyncio, such as {_EXAMPLES[name]}"
        )


def last_attempt(stop: object) -> int | None:
    """Return n for `stop_after_attempt(n)`; None for other strategies, whose last attempt is not known before."""
    found = getattr(stop, "max_attempt_number", None)
    return found if type(stop).__name__ == "stop_after_attempt" and isinstance(found, int) else None


def failed_call(*, attempts: int, elapsed_ms: int, error: BaseException | None, reason: str) -> RetryCallState:
    """Return the state of a call that has failed `attempts` times, as tenacity's loop has it after a failure.

    A handler that returned `Retry` has failed with `tenacity.TryAgain(reason)`, which means the same there.
    """
    from tenacity import Future, RetryCallState, Retrying, TryAgain

    state = RetryCallState(Retrying(), None, (), {})
    state.attempt_number = attempts
    state.outcome = Future(attempts)
    state.outcome.set_exception(TryAgain(reason) if error is None else error)
    state.start_time, state.outcome_timestamp = 0.0, elapsed_ms / 1_000
    return state


def is_try_again(error: BaseException) -> bool:
    """Return whether the error is `tenacity.TryAgain`, for which `retry` is not asked."""
    from tenacity import TryAgain

    return isinstance(error, TryAgain)


def says(name: str, strategy: Callable[[RetryCallState], bool], state: RetryCallState) -> bool:
    """Return whether the strategy `name` says yes. Raises `ConfigError` if it raises, or is asynchronous."""
    return _ask(name, strategy, state, _as_bool)


def wait_s(strategy: WaitStrategy, state: RetryCallState) -> float:
    """Return the seconds to wait, capped at a timer's maximum. Raises `ConfigError` if the value is no duration."""
    return min(_ask("wait", strategy, state, _as_seconds), MOST_S)


def _ask(name: str, strategy: Callable[[RetryCallState], Any], state: RetryCallState, read: Callable[[Any], T]) -> T:
    try:
        return read(strategy(state))
    except Exception as error:
        who = getattr(strategy, "__qualname__", type(strategy).__qualname__)
        raise ConfigError(f"RetryPolicy: {name}={who} raised {shown_text(described(error))}") from error


def _as_bool(found: object) -> bool:
    if inspect.isawaitable(found):
        raise TypeError(f"found {shown(found)} returned, wanted True or False")
    return bool(found)


def _as_seconds(found: Any) -> float:
    if found is None or math.isnan(span := float(found)) or span < 0:
        raise ValueError(f"found {shown(found)} returned, wanted seconds, 0 or more")
    return span
