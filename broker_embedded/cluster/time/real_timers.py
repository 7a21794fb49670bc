"""Timers in real time, beside a loop whose own timers are virtual."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import Context
from heapq import heapify, heappop, heappush
from typing import Any


class RealTimers:
    """A heap of timers. Long polls are usually answered early, so most of them are cancelled: swept when they are many.

    `sweep_from`: so many cancelled ones may lie about.
    """

    def __init__(self, *, seconds: Callable[[], float] = time.monotonic, sweep_from: int = 64) -> None:
        self._seconds = seconds
        self._sweep_from = sweep_from
        self._heap: list[_RealTimer] = []
        self.cancelled = 0

    def __len__(self) -> int:
        return len(self._heap)

    def call_later(
        self,
        loop: asyncio.AbstractEventLoop,
        delay: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> asyncio.TimerHandle:
        if self.cancelled > self._sweep_from and 2 * self.cancelled > len(self._heap):
            self._heap = [timer for timer in self._heap if not timer.cancelled()]
            heapify(self._heap)
            self.cancelled = 0
        timer = _RealTimer(self._seconds() + delay, callback, args, loop, context)
        timer.owner = self
        heappush(self._heap, timer)
        return timer

    def seconds_to_next(self) -> float | None:
        """Return how long the loop may sleep; None if nothing waits."""
        self._drop_cancelled()
        return max(0.0, self._heap[0].when() - self._seconds()) if self._heap else None

    def has_due(self) -> bool:
        return self.seconds_to_next() == 0.0

    def take_due(self) -> list[asyncio.Handle]:
        """Return those whose time has come, the earliest first."""
        due: list[asyncio.Handle] = []
        if not self._heap:
            return due
        now = self._seconds()
        while self._heap and self._heap[0].when() <= now:
            timer = heappop(self._heap)
            timer.owner = None
            if timer.cancelled():
                self.cancelled -= 1
            else:
                due.append(timer)
        return due

    def _drop_cancelled(self) -> None:
        while self._heap and self._heap[0].cancelled():
            heappop(self._heap)
            self.cancelled -= 1


class _RealTimer(asyncio.TimerHandle):
    owner: RealTimers | None = None

    def cancel(self) -> None:
        if not self.cancelled() and self.owner is not None:
            self.owner.cancelled += 1
        super().cancel()
