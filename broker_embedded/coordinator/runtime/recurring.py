"""Work that a shard does again and again while it is served."""

from __future__ import annotations

from collections.abc import Callable

from .shard import ShardContext, Timer


class Recurring:
    """Runs `work` every `interval_ms()`, evaluated each time, from `start` to `stop`."""

    def __init__(self, context: ShardContext, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        self._context = context
        self._interval_ms = interval_ms
        self._work = work
        self._timer: Timer | None = None

    def start(self) -> None:
        self._timer = self._context.call_at(self._context.monotonic_ms() + self._interval_ms(), self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _run(self) -> None:
        self.start()
        self._work()
