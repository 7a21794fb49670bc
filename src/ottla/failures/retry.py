"""When a record is delivered again: exponential backoff with jitter, or tenacity's strategies. Pure: it never sleeps.

Jitter shortens a delay and never lengthens it: a delay is between `(1 - jitter) × backoff` and `backoff`, so `max_s` is
a true bound. The random source is an argument; a test passes a seeded one. Strategies of tenacity draw from the module
`random` (`failures/strategies.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from ottla.config.arguments import names_arguments
from ottla.errors import ConfigError
from ottla.failures import strategies
from ottla.failures.strategies import Ended, RetryStrategy, StopStrategy, WaitStrategy
from ottla.quantities import Span, count, number, seconds, seconds_of

if TYPE_CHECKING:
    from ottla.failures.exceptions import Failure
    from ottla.failures.outcomes import Retry

_BACKOFF: Final = {"initial_s": 0.1, "max_s": 30.0, "multiplier": 2.0, "jitter": 0.5}
_MAX_ATTEMPTS: Final = 5


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a record is delivered before it is given up, and how long between two deliveries.

    `max_attempts` counts the first delivery too: 1 means no retry, None means for ever (the partition, or the key, then
    waits for ever as well). Spans are seconds or timedeltas.

    Instead, `wait`, `stop` and `retry` take strategies of tenacity, also combined with ``+``, ``|`` and ``&``:
    ``RetryPolicy(wait=wait_random_exponential(multiplier=0.1, max=30), stop=stop_after_attempt(5))``. What is left out
    is as without strategies: five attempts, the backoff above, every exception. `stop` is not mixed with
    `max_attempts`, nor `wait` with the arguments of the backoff. Raises `ConfigError` for what makes no sense.
    """

    max_attempts: int | None = _MAX_ATTEMPTS
    initial_s: Span = _BACKOFF["initial_s"]
    """How long before the second delivery."""
    max_s: Span = _BACKOFF["max_s"]
    """The longest wait between two deliveries."""
    multiplier: float = _BACKOFF["multiplier"]
    """Each wait is so many times the last one."""
    jitter: float = _BACKOFF["jitter"]
    """The share of each wait that is random, 0 to 1: 0.5 waits between half and all of it."""
    wait: WaitStrategy | None = None
    """How long before the next delivery. Random strategies draw from the module `random`."""
    stop: StopStrategy | None = None
    """When to give a record up. Time counts from its first failure in this assignment (in a retry topic: there)."""
    retry: RetryStrategy | None = None
    """Which exceptions are tried again; the others go to the dead letter topic at once. It is not asked of those that
    `on_error` names, of `tenacity.TryAgain`, nor of outages (a schema registry that does not answer)."""

    def __post_init__(self) -> None:
        self._check_strategies()
        if self.max_attempts is not None:
            count("RetryPolicy", "max_attempts", self.max_attempts, more=", or None for no end")
        initial_s = seconds("RetryPolicy", "initial_s", self.initial_s, least=-math.inf)
        max_s = seconds("RetryPolicy", "max_s", self.max_s, least=-math.inf)
        if initial_s < 0 or max_s < initial_s:
            raise ConfigError(
                f"RetryPolicy: needs 0 <= initial_s <= max_s, got initial_s={self.initial_s} and max_s={self.max_s}"
            )
        number("RetryPolicy", "multiplier", self.multiplier, least=1)
        if not 0 <= number("RetryPolicy", "jitter", self.jitter, least=-math.inf) <= 1:
            raise ConfigError(f"RetryPolicy: jitter is a share between 0 and 1, got {self.jitter}")

    def _check_strategies(self) -> None:
        given = {"wait": self.wait, "stop": self.stop, "retry": self.retry}
        chosen = {name: strategy for name, strategy in given.items() if strategy is not None}
        for name, strategy in chosen.items():
            strategies.check_strategy(name, strategy)
        if not chosen:
            return
        mixed = [name for name, default in _BACKOFF.items() if getattr(self, name) != default]
        if self.max_attempts != _MAX_ATTEMPTS:
            mixed.insert(0, "max_attempts")
        if mixed:
            instead = f"stop=stop_after_attempt({self.max_attempts})" if mixed[0] == "max_attempts" else "wait="
            raise ConfigError(
                f"RetryPolicy: {mixed[0]} and {next(iter(chosen))}= are two ways to say one thing; with strategies of "
                f"tenacity write {instead} and leave {', '.join(mixed)} out"
            )

    @property
    def has_strategies(self) -> bool:
        """True if strategies of tenacity decide. They need the exception itself."""
        return not (self.wait is self.stop is self.retry is None)

    @property
    def last_attempt(self) -> int | None:
        """The number of the last delivery, where that is known before."""
        return self.max_attempts if self.stop is None else strategies.last_attempt(self.stop)

    def next_delay_ms(
        self, failure: Failure, asked: Retry, *, attempts: int, elapsed_ms: int, random: Random
    ) -> int | Ended:
        """Return the milliseconds until the next delivery in place of a record that failed `attempts` times in
        `elapsed_ms`, or why there is none. `asked` is the outcome, perhaps with a delay of its own. Raises
        `ConfigError` if a strategy raises."""
        if not self.has_strategies:
            if self.is_exhausted(attempts):
                return Ended.EXHAUSTED
            return self.delay_ms(attempts, random) if asked.after_ms is None else asked.after_ms
        error = failure.error
        state = strategies.failed_call(attempts=attempts, elapsed_ms=elapsed_ms, error=error, reason=asked.reason)
        is_asked = error is not None and not failure.is_declared and not strategies.is_try_again(error)
        if is_asked and self.retry is not None and not strategies.says("retry", self.retry, state):
            return Ended.NOT_RETRIED
        if asked.after_ms is not None:
            state.upcoming_sleep = asked.after_ms / 1_000
        elif self.wait is None:
            state.upcoming_sleep = self.delay_ms(attempts, random) / 1_000
        else:
            state.upcoming_sleep = strategies.wait_s(self.wait, state)
        is_over = self.is_exhausted(attempts) if self.stop is None else strategies.says("stop", self.stop, state)
        return Ended.EXHAUSTED if is_over else round(state.upcoming_sleep * 1_000)

    def is_exhausted(self, attempts: int) -> bool:
        """Return whether a record that failed `attempts` times is given up."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def delay_ms(self, attempts: int, random: Random) -> int:
        """Return the milliseconds to wait after the failure number `attempts` (1 is the first)."""
        initial_s, backoff_s = seconds_of(self.initial_s), seconds_of(self.max_s)
        try:
            # The exponent is bounded so that a record retried for ever does not overflow a float.
            backoff_s = min(backoff_s, initial_s * float(self.multiplier) ** min(attempts - 1, 64))
        except OverflowError:  # with a large multiplier it does: beyond max_s, unless it is a multiple of nothing
            backoff_s = backoff_s if initial_s else 0.0
        return round(backoff_s * (1 - self.jitter * random.random()) * 1_000)


NO_RETRY = RetryPolicy(max_attempts=1)
"""One delivery; a failure goes straight to the dead letter topic."""
