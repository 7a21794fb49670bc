"""The one timer of a quorum member: set again after each step, on the loop's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls `on_due(late_ms)` once for each deadline that is not replaced before it passes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_due: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None

    def now_ms(self) -> int:
        """The loop's time: what deadlines are measured in."""
        return int(self._loop.time() * 1000)

    def set(self, due_ms: int | None) -> None:
        """Replace the deadline; None for no deadline."""
        if self._handle is not None:
            if due_ms == self._due_ms:
                return
            self._handle.cancel()
            self._handle = None
        self._due_ms = due_ms
        if due_ms is not None:
            # Half a millisecond more, so that the time is not found to be one short of it when the timer fires.
            delay_ms = max(0, due_ms - self.now_ms()) + 0.5
            self._handle = self._loop.call_later(delay_ms / 1000, self._fire, due_ms)

    def _fire(self, due_ms: int) -> None:
        self._handle = None
        self._on_due(max(0, self.now_ms() - due_ms))
