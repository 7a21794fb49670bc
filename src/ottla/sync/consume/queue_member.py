"""The member of a queue whose handlers run in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ottla.app.member.broker_wait import wait_for_broker
from ottla.app.member.handler_workers import Execute, ThreadWorkers
from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.queue_member import LEAVE_S, QueueMember
from ottla.consumer.model.run import Run, RunResult, Unconfirmed
from ottla.processes import green_threads, lookups
from ottla.queues.core.effects import Effect


class ThreadedQueueMember(QueueMember):
    """See the module."""

    def __init__(self, options: MemberOptions, **parts: Any) -> None:
        self._is_stopped = threading.Event()
        super().__init__(options, **parts)

    def _make_workers(self, execute: Mapping[str, Execute]) -> ThreadWorkers:
        return self._workers_of(ThreadWorkers, execute)

    def reach(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until something listens at the address. Raises `BrokerUnavailable` when nothing does."""
        green_threads.check()
        lookups.check()
        wait_for_broker(self.settings, self._start_timeout_s, should_give_up)

    def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        """Join the group, and begin to handle. Raises `ConfigError` and `UnknownTopic` with the facts."""
        self._prepare(should_give_up)
        self._begin()

    def join(self) -> None:
        """Wait until everything is acknowledged and the group left; at most `drain_s` for what is being handled."""
        if not self._has_started:
            return
        if not self._is_stopped.wait(self._drain_s):
            self._client.abandon()
            self._is_stopped.wait(LEAVE_S)
        self._workers.stop()

    def drain(self, timeout_s: float) -> bool:
        """Lease nothing more, and wait until all is handled. False when `timeout_s` was too short for that."""
        self._client.pause(True)
        return self._client.wait_until_idle(timeout_s)

    def _on_effects(self, effects: list[Effect]) -> None:
        self._take(effects)

    def _on_ended(self, error: BaseException | None) -> None:
        self._ended(error)
        self._is_stopped.set()

    def _cancel(self, run: JobRun) -> None:
        pass  # a thread cannot be stopped: its result is dropped when it comes

    def _begun(self, code: Execute) -> Execute:
        def execute(run: Run) -> RunResult | Unconfirmed:
            assert isinstance(run, JobRun)
            return self._refusal(run) or code(run)

        return execute

    def _forked(self) -> None:
        """Runs in a child process after fork: the threads are not there."""
        self._has_ended = True
        self._is_stopped = threading.Event()
        self._is_stopped.set()
