"""The tasks that run handlers, and the queue of runs in front of them.

A task of its own waits for the acknowledgements of a run, and reports the result to the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final

from ottla.app.member.worker_base import WorkerBase
from ottla.consumer.model.run import Run, RunResult, UnconfirmedOnLoop

Execute = Callable[[Run], Awaitable[RunResult | UnconfirmedOnLoop]]

_BREATHE_S: Final = 0.004


class Workers(WorkerBase):
    """The worker tasks of one group member."""

    def __init__(self, count: int, *, is_stopping: asyncio.Event, **parts: Any) -> None:
        super().__init__(count, **parts)
        self._is_stopping = is_stopping
        self._runs: asyncio.Queue[Run] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._confirming: set[asyncio.Task[None]] = set()
        self._at: dict[asyncio.Task[Any] | None, Run] = {}

    def run_of(self, task: asyncio.Task[Any] | None) -> Run | None:
        """Return what a worker task handles, or has handled last. Safe in any thread."""
        return self._at.get(task)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._work(), name=f"ottla-{self._group}-worker-{number}")
            for number in range(self._count)
        ]

    async def stop(self) -> None:
        """Cancel what is still at work."""
        tasks = [*self._tasks, *self._confirming]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def take(self, timeout_s: float) -> Run | None:
        """Return the next run, for a caller that handles it."""
        if not self._runs.empty():
            return self._runs.get_nowait()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._runs.get()
        except TimeoutError:
            return None

    async def _work(self) -> None:
        breathe_at_s = monotonic() + _BREATHE_S
        task, at = asyncio.current_task(), self._at
        try:
            while True:
                run: Run | None = await self._runs.get()
                breathe_at_s = monotonic() + _BREATHE_S
                while run is not None:
                    at[task] = run
                    run = await self._deliver(run)
                    if monotonic() > breathe_at_s:
                        await asyncio.sleep(0)
                        breathe_at_s = monotonic() + _BREATHE_S
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._died(error)

    async def _deliver(self, run: Run) -> Run | None:
        """Handle a run, report it to the session, and return the next one if there is one."""
        started_ms = self._clock.monotonic_ms()
        try:
            result = await self._execute[run.route](run)
        except Exception as error:
            result = self._broken(run, error)
        except BaseException as error:
            if not self._is_stopping.is_set():
                self._abandon(run, error)
            raise
        return self._handled(run, result, self._clock.monotonic_ms() - started_ms)

    def _confirm(self, run: Run, unconfirmed: UnconfirmedOnLoop, duration_ms: int) -> None:
        task = asyncio.create_task(self._await_confirmed(run, unconfirmed, duration_ms))
        self._confirming.add(task)
        task.add_done_callback(self._confirming.discard)

    async def _await_confirmed(self, run: Run, unconfirmed: UnconfirmedOnLoop, duration_ms: int) -> None:
        try:
            result = await unconfirmed.wait()
        except asyncio.CancelledError as error:
            if not self._is_stopping.is_set():
                self._abandon(run, error)
            raise
        except BaseException as error:
            result = self._broken(run, error)
        self._confirmed(run, result, duration_ms)
