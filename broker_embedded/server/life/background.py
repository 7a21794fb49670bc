"""Periodic work of one broker, on the loop that also answers requests.

So nothing here may take long: the log manager does what is due, and compaction advances one step (about a megabyte) at
a time with a turn of the loop between two steps. Which work is due is decided by the injected clock; the loop's timer
only asks often enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker_embedded.common.clock import Clock
from broker_embedded.storage.log_manager import LogManager

log = logging.getLogger(__name__)

INTERVAL_S = 0.25


class BackgroundWork:
    """Retention, checkpoints, compaction, and whatever else is added as a task."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        logs: LogManager,
        cleaner_backoff_ms: Callable[[], int],
        cleaner_enabled: bool,
        tasks: tuple[Callable[[], None], ...] = (),
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._logs = logs
        self._cleaner_backoff_ms = cleaner_backoff_ms
        self._cleaner_enabled = cleaner_enabled
        self._tasks = tasks
        self._next_cleaning_ms = clock.now_ms() + cleaner_backoff_ms()
        self._timer: asyncio.TimerHandle | None = None
        self._cleaning: asyncio.Handle | None = None

    def start(self) -> None:
        self._timer = self._loop.call_later(INTERVAL_S, self._run)

    def stop(self) -> None:
        for handle in (self._timer, self._cleaning):
            if handle is not None:
                handle.cancel()

    def _run(self) -> None:
        self._guarded(self._tick)
        for task in self._tasks:
            self._guarded(task)
        self.start()

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        self._logs.tick(now_ms=now_ms)
        if self._cleaner_enabled and self._cleaning is None and now_ms >= self._next_cleaning_ms:
            self._clean()

    def _clean(self) -> None:
        """Make one step of compaction; the next one follows when the requests that have arrived meanwhile are
        answered."""
        self._cleaning = None
        now_ms = self._clock.now_ms()
        self._guarded(lambda: self._logs.clean(now_ms=now_ms, max_steps=1))
        if self._logs.cleaner.is_active:
            self._cleaning = self._loop.call_later(0.001, self._clean)
        else:
            self._next_cleaning_ms = now_ms + self._cleaner_backoff_ms()

    @staticmethod
    def _guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:  # a full disk must not end the work that would free it
            log.exception("periodic work failed; it is tried again")
