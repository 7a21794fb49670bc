"""The one timer of a quorum member: set again after each step, on the loop's own time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Calls `on_due(late_ms)` once for each deadline that is not replaced before it passes.

    While paused it calls nothing; a deadline that passed meanwhile is due, and late, when it is resumed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, on_due: Callable[[int], None]) -> None:
        self._loop = loop
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None
        self._is_paused = False

    def now_ms(self) -> int:
        """Return the loop's time, the unit of deadlines."""
        return int(self._loop.time() * 1000)

    def set(self, due_ms: int | None) -> None:
        """Replace the deadline; None removes it."""
        if self._handle is not None:
            if due_ms == self._due_ms:
                return
            self._handle.cancel()
            self._handle = None
        self._due_ms = due_ms
        if due_ms is not None and not self._is_paused:
            # Half a millisecond more, so that the time is not found to be one short of it when the timer fires.
            delay_ms = max(0, due_ms - self.now_ms()) + 0.5
            self._handle = self._loop.call_later(delay_ms / 1000, self._fire, due_ms)

    def pause(self) -> None:
        self._is_paused = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def resume(self) -> None:
        self._is_paused = False
        self.set(self._due_ms)

    def _fire(self, due_ms: int) -> None:
        self._handle = None
        self._on_due(max(0, self.now_ms() - due_ms))
