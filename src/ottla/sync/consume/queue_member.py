"""The member of a queue whose handlers run in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Unpack

from ottla.app.member.broker_wait import wait_for_broker
from ottla.app.member.handler_workers import Execute, ThreadWorkers
from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.job_settlement import QueueParts
from ottla.app.queue.queue_member import QueueMember
from ottla.consumer.model.run import Run, RunResult, Unconfirmed
from ottla.current_task import is_on_event_loop
from ottla.queues.core.effects import Effect
from ottla.stepping import run


class ThreadedQueueMember(QueueMember):
    """See the module."""

    _wait_for_broker = staticmethod(wait_for_broker)

    def __init__(self, options: MemberOptions, **parts: Unpack[QueueParts]) -> None:
        self._is_stopped = threading.Event()
        super().__init__(options, **parts)

    def _make_workers(self, execute: Mapping[str, Execute]) -> ThreadWorkers:
        return ThreadWorkers(**self._worker_parts(execute))

    def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        self._prepare(should_give_up)
        self._begin()

    def join(self) -> None:
        run(self._joining())

    def drain(self, timeout_s: float) -> bool:
        self._client.pause(True)
        return self._client.wait_until_idle(timeout_s)

    def _wait_stopped(self, timeout_s: float) -> bool:
        return self._is_stopped.wait(timeout_s)

    def _on_effects(self, effects: list[Effect]) -> None:
        self._take(effects)

    def _on_ended(self, error: BaseException | None) -> None:
        self._ended(error)
        self._is_stopped.set()

    def _follow(self, job: JobRun) -> bool:
        if not is_on_event_loop():
            return super()._follow(job)
        # On the loop of async handlers. What waits may be a dead letter, whose next write may wait for its producer.
        with self._client.lock:
            return not self._client.member.work.waiting and super()._follow(job)

    def _cancel(self, job: JobRun) -> None:
        pass  # a thread cannot be stopped: its result is dropped when it comes

    def _begun(self, code: Execute) -> Execute:
        def execute(job: Run) -> RunResult | Unconfirmed:
            assert isinstance(job, JobRun)
            refusal = self._refusal(job)
            return code(job) if refusal is None else refusal

        return execute

    def _forked(self) -> None:
        super()._forked()
        self._is_stopped = threading.Event()
        self._is_stopped.set()
