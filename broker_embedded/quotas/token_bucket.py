"""A token bucket that may go into debt (KIP-599)."""

from __future__ import annotations

from broker_embedded.common.config_definition import INT_MAX


class TokenBucket:
    """Full when it is made. The rate is given each time: it may have been changed."""

    __slots__ = ("_as_of_ms", "_span_s", "_tokens")

    def __init__(self, *, span_s: float) -> None:
        """`span_s`: at most the tokens of this many seconds are saved."""
        self._span_s = span_s
        self._tokens: float | None = None
        self._as_of_ms = 0

    def take(self, amount: float, *, rate: float, now_ms: int) -> None:
        self._tokens = self._refilled(rate, now_ms) - amount

    def wait_ms(self, *, rate: float, now_ms: int) -> int:
        """Return the time until the debt is paid; 0 without one."""
        tokens = self._refilled(rate, now_ms)
        return min(int(-tokens / rate * 1000 + 0.5), INT_MAX) if tokens < 0 else 0

    def is_idle(self, now_ms: int) -> bool:
        """Return whether it equals a new bucket, unless its debt exceeded its size."""
        return self._tokens is None or (self._tokens >= 0 and now_ms - self._as_of_ms >= self._span_s * 1000)

    def _refilled(self, rate: float, now_ms: int) -> float:
        most = self._span_s * rate
        if self._tokens is None:
            self._tokens = most
        self._tokens = min(most, self._tokens + rate * (now_ms - self._as_of_ms) / 1000)
        self._as_of_ms = now_ms
        return self._tokens
