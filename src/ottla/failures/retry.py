"""When to try a record again: exponential backoff with jitter, as a pure function of attempt and chance.

The jitter takes away, never adds: a delay is between `(1 - jitter) × backoff` and `backoff`, so `max_s` is a bound that
holds. The random source is an argument; a test passes a seeded one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from ottla.config.arguments import names_arguments
from ottla.errors import ConfigError
from ottla.quantities import Span, count, number, seconds, seconds_of


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a record is delivered before it is given up, and how long between two deliveries.

    `max_attempts` counts the first delivery too: 1 means no retry, None means for ever (the partition, or the key, then
    waits for ever as well). Spans are seconds or timedeltas.
    """

    max_attempts: int | None = 5
    initial_s: Span = 0.1
    """How long before the second delivery."""
    max_s: Span = 30.0
    """The longest wait between two deliveries."""
    multiplier: float = 2.0
    """Each wait is so many times the last one."""
    jitter: float = 0.5
    """The share of each wait that is random, 0 to 1: 0.5 waits between half and all of it."""

    def __post_init__(self) -> None:
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

    def is_exhausted(self, attempts: int) -> bool:
        """Whether a record that failed `attempts` times is given up."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def delay_ms(self, attempts: int, random: Random) -> int:
        """Milliseconds to wait after the failure number `attempts` (1 is the first)."""
        initial_s, backoff_s = seconds_of(self.initial_s), seconds_of(self.max_s)
        try:
            # The exponent is bounded so that a record retried for ever does not overflow a float.
            backoff_s = min(backoff_s, initial_s * float(self.multiplier) ** min(attempts - 1, 64))
        except OverflowError:  # with a large multiplier it does: beyond max_s, unless it is a multiple of nothing
            backoff_s = backoff_s if initial_s else 0.0
        return round(backoff_s * (1 - self.jitter * random.random()) * 1_000)


NO_RETRY = RetryPolicy(max_attempts=1)
"""One delivery; a failure goes straight to the dead letter topic."""
