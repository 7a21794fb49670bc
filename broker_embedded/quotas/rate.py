"""A rate over windows of time, and the wait until it is back within a limit. As Kafka measures both.

What is recorded goes into the current window. A window ends when something is recorded after its length, and counts
until nothing has been recorded in it for the whole span; so the oldest one may have begun earlier than that. The rate
is the sum of the windows over the time since the oldest began, and over all windows but one at the least: whoever has
just come has used little of a long time, and not much of a short one.
"""

from __future__ import annotations

from collections import deque

from broker_embedded.common.config_definition import INT_MAX


class _Window:
    __slots__ = ("last_ms", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.total = 0.0


class WindowedRate:
    """How much per second was recorded lately."""

    __slots__ = ("_count", "_length_ms", "_windows")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._count = windows
        self._length_ms = window_ms
        self._windows: deque[_Window] = deque()

    def record(self, amount: float, *, now_ms: int) -> None:
        """Record an amount. Negative amounts take back what was recorded at the same moment."""
        windows = self._windows
        if not windows or now_ms - windows[-1].start_ms >= self._length_ms:
            windows.append(_Window(now_ms))
        current = windows[-1]
        current.total += amount
        current.last_ms = now_ms

    def per_second(self, *, now_ms: int) -> float:
        span_ms = self._span_ms(now_ms)
        return sum(window.total for window in self._windows) * 1000 / span_ms

    def wait_ms(self, limit: float, *, now_ms: int) -> int:
        """Return the time until the rate is `limit` without further use; 0 if it is not above."""
        excess = self.per_second(now_ms=now_ms) - limit
        if excess <= 0:
            return 0
        return min(int(excess / limit * self._span_ms(now_ms) + 0.5), INT_MAX)

    def is_idle(self, now_ms: int) -> bool:
        """Return whether no recorded amount counts any more."""
        self._forget(now_ms)
        return not self._windows

    def _span_ms(self, now_ms: int) -> int:
        self._forget(now_ms)
        elapsed_ms = now_ms - self._windows[0].start_ms if self._windows else 0
        missing = self._count - 1 - elapsed_ms // self._length_ms
        if missing > 0:
            elapsed_ms += missing * self._length_ms
        return max(elapsed_ms, 1)

    def _forget(self, now_ms: int) -> None:
        oldest_allowed_ms = now_ms - self._count * self._length_ms
        while self._windows and self._windows[0].last_ms <= oldest_allowed_ms:
            self._windows.popleft()
