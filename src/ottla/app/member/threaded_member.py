"""What the members of groups share that have threads: their lock, their workers, and the wait for an end.

A shell's member adds the thread that owns the client: what it does between two steps, and how it commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Unpack

from ottla.app.member.broker_wait import wait_for_broker
from ottla.app.member.handler_workers import Execute, ThreadWorkers
from ottla.app.member.member_base import MemberOptions, MemberParts
from ottla.app.member.member_core import MemberCore
from ottla.app.member.poll_priority import PollThreadPriority
from ottla.consumer.model import events
from ottla.consumer.model.run import Run
from ottla.consumer.readiness.health import Health


class ThreadedMember(MemberCore):
    """A member whose handlers run in threads. The lock guards the session: it is taken once per fetched batch and once
    per run."""

    _wait_for_broker = staticmethod(wait_for_broker)

    def __init__(self, options: MemberOptions, *, execute: Mapping[str, Execute], **parts: Unpack[MemberParts]) -> None:
        super().__init__(options, **parts)
        self._is_stopping = threading.Event()
        self._is_stopped = threading.Event()
        self._poll_thread: threading.Thread | None = None
        self._make_locks()
        self._poll_priority = None if self._priority_of is None else PollThreadPriority()
        """Limits of the fetching thread, if topics have priorities."""
        self._workers: ThreadWorkers = ThreadWorkers(poll_priority=self._poll_priority, **self._worker_parts(execute))

    # Life

    def stop(self) -> None:
        """Ask for a graceful stop; returns at once. Safe in a signal handler."""
        self._is_stopping.set()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is committed, the group left and all threads ended."""
        return self._is_stopped.wait(timeout_s)

    @property
    def is_running(self) -> bool:
        return self._poll_thread is not None and not self._is_stopped.is_set()

    def health(self) -> Health:
        thread = self._poll_thread
        # Whoever waited in `join` may ask before the thread, which has nothing left to do, has ended.
        is_polling = thread is not None and thread.is_alive() and not self._is_stopped.is_set()
        return self._health(loop="poll", is_running=is_polling, has_started=thread is not None)

    def drain(self, timeout_s: float) -> bool:
        self._step(events.DrainRequested())
        return self._wait(lambda: self._session.is_idle, timeout_s)

    # For callers that pull

    def take_run(self, timeout_s: float) -> Run | None:
        return self._workers.take(timeout_s)

    # Small parts

    def _is_quiet(self) -> bool:
        with self._lock:
            return self._session.is_quiet()

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)

    def _make_locks(self) -> None:
        self._guard = self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._has_changed = self._changed.notify_all

    def _forked(self) -> None:
        """Reset the member in a child process after fork. The threads are not there and may have held a lock, so
        nothing may wait."""
        self._make_locks()
        self._is_stopping, self._is_stopped = threading.Event(), threading.Event()
        self._is_stopping.set()
        self._is_stopped.set()
        self._poll_thread = None
