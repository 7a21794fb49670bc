"""Notices an event loop that something blocks, and says what: the handler, its record, and where in its code.

A handler that is `async def` and calls something that waits (`time.sleep`, a blocking client) stops everything on the
loop: heartbeats, commits, probes. From inside nothing can say so; a thread asks the loop a few times a second.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from ottla.consumer.model.run import Run
from ottla.telemetry import log_event

BLOCKED_S: Final = 1.0
"""A loop that has not answered for so long is blocked: the kubelet's default timeout of a probe."""
_ASK_EVERY_S: Final = 0.25
_MOST_FRAMES: Final = 12


class LoopWatch:
    """Watches the running loop until `stop`. `run_of` says what a task is handling."""

    def __init__(self, *, app: str, run_of: Callable[[Any], Run | None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._app = app
        self._run_of = run_of
        self._is_over = threading.Event()
        self._has_answered = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ottla-loop-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, without waiting for the thread."""
        self._is_over.set()
        self._has_answered.set()

    def _watch(self) -> None:
        while not self._is_over.wait(_ASK_EVERY_S):
            self._has_answered.clear()
            asked_s = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._has_answered.set)
            except RuntimeError:
                return  # the loop is closed
            if not self._has_answered.wait(BLOCKED_S):
                self._log_blocked(time.monotonic() - asked_s)
                self._has_answered.wait()

    def _log_blocked(self, blocked_s: float) -> None:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None or self._is_over.is_set():
            return
        stack = "".join(traceback.format_stack(frame)[-_MOST_FRAMES:]).rstrip()  # the innermost call at the end
        fields: dict[str, object] = {"app": self._app, "blocked_s": round(blocked_s, 1), "stack": stack}
        run = self._run_of(asyncio.current_task(self._loop))
        if run is not None and (record := run.last_handed_out) is not None:
            fields |= {"handler": run.route, "partition": str(run.topic_partition), "offset": record.offset}
        log_event("event_loop_blocked", "error", fields)
