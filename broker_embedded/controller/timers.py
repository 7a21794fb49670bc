"""Periodic work of the active controller: its timers run while it is active and at no other time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

log = logging.getLogger(__name__)


class PeriodicTimer:
    """Calls `work` every `interval_s` seconds between `start` and `stop`."""

    def __init__(self, *, loop: asyncio.AbstractEventLoop, interval_s: float, work: Callable[[], None]) -> None:
        self._loop = loop
        self._interval_s = interval_s
        self._work = work
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.stop()
        self._handle = self._loop.call_later(self._interval_s, self._run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self.start()  # first, so that work which stops the timer has the last word
        try:
            self._work()
        except Exception:  # the next round finds the same state, and may do better
            log.exception("periodic work of the controller failed; it is tried again")
