"""The tasks that run handlers, and the queue of runs in front of them.

A worker that finished a run tells the session, and usually gets its next run in the same step, without the queue. One
whose run waits for acknowledgements takes the next as well: a task of its own waits for them and tells the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from time import monotonic
from typing import Any, Final

from ottla.clock import Clock
from ottla.consumer.model import events
from ottla.consumer.model.run import Run, RunResult, UnconfirmedOnLoop, abandoned_run, broken_run, count_run
from ottla.failures.exceptions import ExceptionTable, described
from ottla.telemetry import Listeners, log_event

Execute = Callable[[Run], Awaitable[RunResult | UnconfirmedOnLoop]]

_BREATHE_S: Final = 0.004


class Workers:
    """The workers of one group member. `execute` has the code of each handler, `batches` names those
    that take batches; `end` stops the member.

    `step` is one step of the session, `step_and_take` the same for a worker, which gets the first run of it.
    """

    def __init__(
        self,
        count: int,
        *,
        group: str,
        execute: Mapping[str, Execute],
        step: Callable[[events.Event], Any],
        step_and_take: Callable[[events.Event], Run | None],
        end: Callable[[BaseException], None],
        is_stopping: asyncio.Event,
        batches: Collection[str],
        hooks: Listeners,
        clock: Clock,
    ) -> None:
        self._count = count
        self._group = group
        self._execute = dict(execute)
        self._step = step
        self._step_and_take = step_and_take
        self._end = end
        self._is_stopping = is_stopping
        self._hooks = hooks
        self._batches = frozenset(batches)
        self._clock = clock
        self._runs: asyncio.Queue[Run] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._confirming: set[asyncio.Task[None]] = set()

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

    def put(self, run: Run) -> None:
        self._runs.put_nowait(run)

    async def take(self, timeout_s: float) -> Run | None:
        """The next run, for a caller who handles it himself."""
        if not self._runs.empty():
            return self._runs.get_nowait()
        try:
            async with asyncio.timeout(timeout_s):
                return await self._runs.get()
        except TimeoutError:
            return None

    def give_back_cancelled(self) -> None:
        """Take cancelled runs out of the queue: the workers may be busy for long with what they are at."""
        kept: list[Run] = []
        while not self._runs.empty():
            run = self._runs.get_nowait()
            if run.is_cancelled:
                self._step(events.RunFinished(run, RunResult(done=(), untouched=run.records)))
            else:
                kept.append(run)
        for run in kept:
            self._runs.put_nowait(run)

    async def _work(self) -> None:
        breathe_at_s = monotonic() + _BREATHE_S
        try:
            while True:
                run: Run | None = await self._runs.get()
                breathe_at_s = monotonic() + _BREATHE_S
                while run is not None:
                    run = await self._deliver(run)
                    if monotonic() > breathe_at_s:
                        await asyncio.sleep(0)
                        breathe_at_s = monotonic() + _BREATHE_S
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # A handler's failures never come here. A worker that dies is not replaced: what it held is unknown.
            is_exit = isinstance(error, SystemExit | KeyboardInterrupt)
            event = "handler_exited" if is_exit else "worker_died"
            log_event(event, "error", {"group": self._group, "error": described(error), "exc_info": error})
            if is_exit or isinstance(error, Exception):
                self._end(error)

    async def _deliver(self, run: Run) -> Run | None:
        """Have a run handled, tell the session, and return the next one if there is one."""
        started_ms = self._clock.monotonic_ms()
        try:
            result = await self._execute[run.route](run)
        except Exception as error:  # a decoder that raises although it must not
            result = broken_run(run, ExceptionTable().failure_of(error))
        except BaseException as error:
            if not self._is_stopping.is_set():
                result = abandoned_run(run, ExceptionTable().failure_of(error))
                self._step(events.RunFinished(run, result))
            raise
        duration_ms = self._clock.monotonic_ms() - started_ms
        if isinstance(result, RunResult):
            self._tell(run, result, duration_ms)
            return self._step_and_take(events.RunFinished(run, result))
        own = self._step_and_take(events.RunHandled(run))
        task = asyncio.create_task(self._confirm(run, result, duration_ms))
        self._confirming.add(task)
        task.add_done_callback(self._confirming.discard)
        return own

    async def _confirm(self, run: Run, unconfirmed: UnconfirmedOnLoop, duration_ms: int) -> None:
        """Wait for what a run sent on, beside the worker that handled it."""
        try:
            result = await unconfirmed.wait()
        except Exception as error:
            result = broken_run(run, ExceptionTable().failure_of(error))
        try:
            self._tell(run, result, duration_ms)
            self._step(events.RunFinished(run, result))
        except Exception as error:
            self._end(error)

    def _tell(self, run: Run, result: RunResult, duration_ms: int) -> None:
        is_batch = run.route in self._batches
        wall_ms = self._clock.now_ms()
        count_run(self._hooks, self._group, run, result, duration_ms, is_batch=is_batch, wall_ms=wall_ms)
