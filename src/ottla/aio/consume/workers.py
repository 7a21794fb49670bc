"""The tasks that run handlers, and the queue of runs in front of them.

A task of its own waits for the acknowledgements of a run, and reports the result to the session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, Final, Unpack

from ottla.app.member.handler_workers import CLEAN_UP_S, WorkerBase, WorkerParts
from ottla.consumer.model.run import Run, RunResult, UnconfirmedOnLoop

Execute = Callable[[Run], Awaitable[RunResult | UnconfirmedOnLoop]]

_BREATHE_S: Final = 0.004


class Workers(WorkerBase):
    """The worker tasks of one group member."""

    def __init__(self, *, is_stopping: asyncio.Event, **parts: Unpack[WorkerParts]) -> None:
        super().__init__(**parts)
        self._is_stopping = is_stopping
        self._runs: asyncio.Queue[Any] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._confirming: set[asyncio.Task[None]] = set()
        self._is_over = False

    def run_of(self, task: asyncio.Task[Any] | None) -> Run | None:
        """Return the run that a worker task handles, or has handled last. Safe in any thread."""
        return self._at.get(task)

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._work(), name=f"ottla-{self._group}-worker-{number}")
            for number in range(self._count)
        ]

    async def stop(self) -> None:
        """Cancel what is still at work, and wait for its end, at most `CLEAN_UP_S` seconds.

        A handler may suppress the cancellation and stay: `asyncio.run` would wait for its task for ever, so that the
        task is taken from those that the loop knows.
        """
        self._is_over = True
        tasks = [*self._tasks, *self._confirming]
        if not tasks:
            return
        for task in tasks:
            task.cancel()
        ended, left = await asyncio.wait(tasks, timeout=CLEAN_UP_S)
        await asyncio.gather(*ended, return_exceptions=True)
        self._log_left(left)
        for task in left:
            asyncio.tasks._unregister_task(task)

    async def take(self, timeout_s: float) -> Run | None:
        """Return the next run, for a caller that handles it."""
        run: Run | None
        if not self._runs.empty():
            run = self._runs.get_nowait()
            return run
        try:
            async with asyncio.timeout(timeout_s):
                run = await self._runs.get()
                return run
        except TimeoutError:
            return None

    async def _work(self) -> None:
        breathe_at_s = monotonic() + _BREATHE_S
        task, at = asyncio.current_task(), self._at
        try:
            while not self._is_over:  # a handler may have suppressed the cancellation, and returned
                taken = await self._runs.get()
                run: Run | None = taken if self._make_run is None else self._make_run(taken)
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
        self._at[task] = run
        task.add_done_callback(self._no_longer_confirming)

    def _no_longer_confirming(self, task: asyncio.Task[None]) -> None:
        self._confirming.discard(task)
        self._at.pop(task, None)

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
