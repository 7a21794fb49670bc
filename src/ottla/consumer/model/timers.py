"""What is to happen later in a session, in the order it falls due."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

from ottla.consumer.model.effects import Effect

Timer: TypeAlias = Callable[[int, list[Effect]], None]
"""Called with the time and the effects of the step it fires in."""


class Timers:
    """The timers of one session. Those that are due at the same time fire in the order they were set."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0

    @property
    def first_ms(self) -> int | None:
        """When the next one is due."""
        return self._heap[0][0] if self._heap else None

    def at(self, due_ms: int, timer: Timer) -> None:
        self._count += 1
        heapq.heappush(self._heap, (due_ms, self._count, timer))

    def fire(self, now_ms: int, effects: list[Effect]) -> None:
        """Call what is due."""
        while self._heap and self._heap[0][0] <= now_ms:
            heapq.heappop(self._heap)[2](now_ms, effects)
