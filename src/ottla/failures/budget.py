"""The dead letter budget: a circuit that pauses a partition instead of draining its topic into the dead letter topic.

When a database is down or a release is broken, nearly every record fails, and a dead letter queue without a limit turns
an outage of minutes into a topic that someone must redrive by hand. Dead letters are therefore paid for with tokens:
each success earns a share of one, each interval gives one for free, up to a ceiling. Without a token the circuit opens:
the record waits, and is delivered again when a token is there. (The idea is uForwarder's.)
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.config.arguments import names_arguments
from ottla.quantities import Span, count, milliseconds_of, number, seconds


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterBudget:
    """How many dead letters a handler may write.

    `burst` is how many are allowed at once, before any success; `per_success` the share of a token that each handled
    record earns (0.1: one dead letter for ten successes); `every_s` the span, in seconds or as a timedelta, after which
    one token is given anyway.
    """

    burst: int = 100
    per_success: float = 0.1
    every_s: Span = 10.0

    def __post_init__(self) -> None:
        count("DeadLetterBudget", "burst", self.burst)
        number("DeadLetterBudget", "per_success", self.per_success)
        seconds("DeadLetterBudget", "every_s", self.every_s, least=0.001)


class BudgetMeter:
    """The running count of one budget. Pure: time comes in with each call."""

    __slots__ = ("_budget", "_last_free_ms", "_tokens")

    def __init__(self, budget: DeadLetterBudget, now_ms: int) -> None:
        self._budget = budget
        self._tokens = float(budget.burst)
        self._last_free_ms = now_ms

    @property
    def tokens(self) -> float:
        return self._tokens

    def succeeded(self, records: int) -> None:
        """Count `records` that were handled."""
        self._tokens = min(float(self._budget.burst), self._tokens + records * self._budget.per_success)

    def take(self, now_ms: int) -> int | None:
        """Pay for one dead letter: None when it is allowed, else the time at which the next free token comes."""
        every_ms = milliseconds_of(self._budget.every_s)
        free = (now_ms - self._last_free_ms) // every_ms
        if free > 0:
            self._last_free_ms += free * every_ms
            self._tokens = min(float(self._budget.burst), self._tokens + free)
        if self._tokens >= 1:
            self._tokens -= 1
            return None
        return self._last_free_ms + every_ms


class BudgetMeters:
    """The meters of one consumer's handlers, by name."""

    __slots__ = ("_meters",)

    def __init__(self) -> None:
        self._meters: dict[str, BudgetMeter] = {}

    @property
    def tokens(self) -> dict[str, float]:
        """Return the number of dead letters that each handler may write at once."""
        return {name: meter.tokens for name, meter in self._meters.items()}

    def of(self, handler: str, budget: DeadLetterBudget | None, now_ms: int) -> BudgetMeter | None:
        """Return the meter of a handler, which begins with its first use; None if it has no budget."""
        if budget is None:
            return None
        meter = self._meters.get(handler)
        if meter is None:
            meter = self._meters[handler] = BudgetMeter(budget, now_ms)
        return meter
