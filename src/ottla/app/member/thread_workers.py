"""The threads that run handlers, and the queue of runs in front of them.

The thread that brings the last acknowledgement of a run reports the run to the session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final

from ottla.app.member.poll_priority import PollThreadPriority
from ottla.app.member.worker_base import WorkerBase
from ottla.consumer.model.run import Run, RunResult, Unconfirmed
from ottla.errors import ConfigError

Execute = Callable[[Run], RunResult | Unconfirmed]

_END_S: Final = 1.0


class ThreadWorkers(WorkerBase):
    """The worker threads of one group member. Between two runs they yield to the poll thread, by `poll_priority`."""

    def __init__(self, count: int, *, poll_priority: PollThreadPriority | None = None, **parts: Any) -> None:
        super().__init__(count, **parts)
        self._poll_priority = poll_priority
        self._runs: SimpleQueue[Run | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._work, name=f"ottla-{self._group}-worker-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                self.stop()
                raise ConfigError(
                    f"group {self._group}: thread {number + 1} of {self._count} for handlers could not be started "
                    f"({error}); wanted a lower concurrency=, or a higher limit on threads or memory"
                ) from error
            self._threads.append(thread)

    def stop(self) -> None:
        """End the threads. One whose handler has not returned a second later is left behind."""
        for _ in self._threads:
            self._runs.put(None)
        deadline_s = monotonic() + _END_S
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - monotonic()))
        self._log_left(thread for thread in self._threads if thread.is_alive())

    def take(self, timeout_s: float) -> Run | None:
        """Return the next run, for a caller that handles it in its own thread."""
        try:
            return self._runs.get(timeout=timeout_s)
        except Empty:
            return None

    def _work(self) -> None:
        thread, at = threading.current_thread(), self._at
        try:
            while (run := self._runs.get()) is not None:
                while run is not None:
                    at[thread] = run
                    run = self._deliver(run)
        except BaseException as error:
            self._died(error)

    def _deliver(self, run: Run) -> Run | None:
        """Handle a run, report it to the session, and return the next one if there is one."""
        started_ms = self._clock.monotonic_ms()
        try:
            result = self._execute[run.route](run)
        except Exception as error:
            result = self._broken(run, error)
        except BaseException as error:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._end(error)  # first: nothing more is to be handed out
            self._abandon(run, error)
            raise
        duration_ms = self._clock.monotonic_ms() - started_ms
        if self._poll_priority is not None:
            self._poll_priority.yield_to_poller()
        return self._handled(run, result, duration_ms)

    def _confirm(self, run: Run, unconfirmed: Unconfirmed, duration_ms: int) -> None:
        unconfirmed.when_confirmed(lambda result: self._confirmed(run, result, duration_ms))
