"""Log lines that clients can cause, at a bounded rate: a port scanner or a broken client must not fill a disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

BURST = 20
INTERVAL_MS = 10_000


class RateLimitedLog:
    """The first `BURST` lines of each interval, then one that says how many were left out.

    Lines are of one sort here: what connections were closed for.
    """

    def __init__(self, log: logging.Logger, *, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._now_ms = now_ms
        self._interval_ends_ms = 0
        self._said = 0
        self._left_out = 0

    def __call__(self, level: int, message: str, *arguments: object, exc_info: BaseException | None = None) -> None:
        """Log, or count."""
        self.close_interval()
        if self._said < BURST:
            if not self._said:
                self._interval_ends_ms = self._now_ms() + INTERVAL_MS
            self._said += 1
            self._log.log(level, message, *arguments, exc_info=exc_info)
        else:
            self._left_out += 1

    def close_interval(self) -> None:
        """Log how many lines the last interval suppressed. Called periodically, also without new lines."""
        if not self._said or self._now_ms() < self._interval_ends_ms:
            return
        if self._left_out:
            self._log.warning("%d more messages like these in %d s are left out", self._left_out, INTERVAL_MS // 1000)
        self._said = self._left_out = 0
