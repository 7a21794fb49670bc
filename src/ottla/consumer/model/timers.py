"""The timers of a session, in the order in which they are due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from ottla.consumer.model.effects import Effect

Timer: TypeAlias = Callable[[int, list[Effect]], None]
"""Called with the time and the effects of the step in which it fires."""

At: TypeAlias = Callable[[int, Timer], None]
"""`Timers.at`: sets a timer for a monotonic time in milliseconds."""


class Timers:
    """The timers of one session. Those that are due at the same time fire in the order in which they were set."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0

    @property
    def first_ms(self) -> int | None:
        """When the next timer is due; None if none is set."""
        return self._heap[0][0] if self._heap else None

    def at(self, due_ms: int, timer: Timer) -> None:
        self._count += 1
        heapq.heappush(self._heap, (due_ms, self._count, timer))

    def fire(self, now_ms: int, effects: list[Effect]) -> None:
        """Call the timers that are due."""
        while self._heap and self._heap[0][0] <= now_ms:
            heapq.heappop(self._heap)[2](now_ms, effects)
