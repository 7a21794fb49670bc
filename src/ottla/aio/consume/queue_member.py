"""The member of a queue whose handlers run on an event loop. What leases its records has threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Unpack

from ottla.aio.client.reachable import wait_for_broker
from ottla.aio.consume.workers import Execute, Workers
from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.job_settlement import QueueParts
from ottla.app.queue.queue_member import QueueMember
from ottla.consumer.model.run import Run, RunResult, UnconfirmedOnLoop
from ottla.queues.core.effects import Effect
from ottla.stepping import run_async


class AsyncQueueMember(QueueMember):
    """See the module. Its decisions are made on the loop."""

    _wait_for_broker = staticmethod(wait_for_broker)
    _workers: Workers

    def __init__(self, options: MemberOptions, **parts: Unpack[QueueParts]) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = asyncio.Event()
        self._is_stopped = asyncio.Event()
        super().__init__(options, **parts)

    def _make_workers(self, execute: Mapping[str, Execute]) -> Workers:
        return Workers(is_stopping=self._is_stopping, **self._worker_parts(execute))

    def run_of(self, task: asyncio.Task[Any] | None) -> Run | None:
        """Return the run that a worker task handles, or has handled last. Safe in any thread."""
        return self._workers.run_of(task)

    async def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._prepare, should_give_up)
        self._begin()

    async def join(self) -> None:
        await run_async(self._joining())

    async def drain(self, timeout_s: float) -> bool:
        self._client.pause(True)
        return await asyncio.to_thread(self._client.wait_until_idle, timeout_s)

    async def _wait_stopped(self, timeout_s: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._is_stopped.wait(), timeout_s)
        return self._is_stopped.is_set()

    def _stop_workers(self) -> Any:
        self._is_stopping.set()
        return super()._stop_workers()

    def _on_effects(self, effects: list[Effect]) -> None:
        self._on_loop(self._take, effects)

    def _on_ended(self, error: BaseException | None) -> None:
        self._on_loop(self._finish, error)

    def _finish(self, error: BaseException | None) -> None:
        self._ended(error)
        self._is_stopped.set()

    def _on_loop(self, call: Callable[..., object], *arguments: Any) -> None:
        assert self._loop is not None, "an effect before the start"
        with suppress(RuntimeError):  # the loop is closed: nothing is handled any more
            self._loop.call_soon_threadsafe(call, *arguments)

    def _follow(self, run: JobRun) -> bool:
        # The queue of jobs belongs to the loop. A handler that is no coroutine runs in another thread.
        return asyncio._get_running_loop() is self._loop and super()._follow(run)

    def _cancel(self, run: JobRun) -> None:
        if run.task is not None:
            run.task.cancel()

    def _begun(self, code: Execute) -> Execute:
        async def execute(run: Run) -> RunResult | UnconfirmedOnLoop:
            assert isinstance(run, JobRun)
            refusal = self._refusal(run)
            if refusal is not None:
                return refusal
            task = run.task = asyncio.current_task()
            try:
                return await code(run)
            except asyncio.CancelledError:
                if not run.is_over or task is None:
                    raise
                task.uncancel()
                return RunResult(done=run.records[: run.done], untouched=run.records[run.done :])
            finally:
                run.task = None

        return execute
