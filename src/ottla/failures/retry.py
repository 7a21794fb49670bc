"""When to try a record again: exponential backoff with jitter, as a pure function of attempt and chance.

The jitter takes away, never adds: a delay is between `(1 - jitter) × backoff` and `backoff`, so `max_s` is a bound that
holds. The random source is an argument; a test passes a seeded one.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from ottla.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a record is delivered before it is given up, and how long between two deliveries.

    `max_attempts` counts the first delivery too: 1 means no retry, None means for ever (the partition, or the key, then
    waits for ever as well). Seconds everywhere.
    """

    max_attempts: int | None = 5
    initial_s: float = 0.1
    """Seconds before the second delivery."""
    max_s: float = 30.0
    """The longest wait between two deliveries, in seconds."""
    multiplier: float = 2.0
    """Each wait is so many times the last one."""
    jitter: float = 0.5
    """The share of each wait that is random, 0 to 1: 0.5 waits between half and all of it."""

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ConfigError(
                f"RetryPolicy: max_attempts must be 1 or more, or None for no end, got {self.max_attempts}"
            )
        if self.initial_s < 0 or self.max_s < self.initial_s:
            raise ConfigError(
                f"RetryPolicy: needs 0 <= initial_s <= max_s, got initial_s={self.initial_s} and max_s={self.max_s}"
            )
        if self.multiplier < 1:
            raise ConfigError(f"RetryPolicy: multiplier must be 1 or more, got {self.multiplier}")
        if not 0 <= self.jitter <= 1:
            raise ConfigError(f"RetryPolicy: jitter is a share between 0 and 1, got {self.jitter}")

    def is_exhausted(self, attempts: int) -> bool:
        """Whether a record that failed `attempts` times is given up."""
        return self.max_attempts is not None and attempts >= self.max_attempts

    def delay_ms(self, attempts: int, random: Random) -> int:
        """Milliseconds to wait after the failure number `attempts` (1 is the first)."""
        # The exponent is bounded so that a record retried for ever does not overflow a float.
        backoff_s = min(self.max_s, self.initial_s * self.multiplier ** min(attempts - 1, 64))
        return round(backoff_s * (1 - self.jitter * random.random()) * 1_000)


NO_RETRY = RetryPolicy(max_attempts=1)
"""One delivery; a failure goes straight to the dead letter topic."""
