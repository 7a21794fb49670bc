"""The threads that run handlers, and the queue of runs in front of them.

A worker that finished a run tells the session, and usually gets its next run in the same step, without the queue. One
whose run waits for acknowledgements takes the next as well: the result is told by the thread that brings the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from queue import Empty, SimpleQueue
from typing import Protocol

from ottla.clock import Clock
from ottla.consumer.model import events
from ottla.consumer.model.run import Run, RunResult, Unconfirmed, abandoned_run, broken_run, count_run
from ottla.failures.exceptions import ExceptionTable, described
from ottla.telemetry import Listeners, log_event

Execute = Callable[[Run], RunResult | Unconfirmed]


class Step(Protocol):
    """One step of the session, and its effects. With `takes_run` the first run is returned instead of queued."""

    def __call__(self, event: events.Event, *, takes_run: bool = False) -> Run | None: ...


class Workers:
    """The workers of one group member. `execute` has the code of each handler, `batches` names those
    that take batches; `end` stops the member."""

    def __init__(
        self,
        count: int,
        *,
        group: str,
        execute: Mapping[str, Execute],
        step: Step,
        end: Callable[[BaseException], None],
        batches: Collection[str],
        hooks: Listeners,
        clock: Clock,
    ) -> None:
        self._count = count
        self._group = group
        self._execute = dict(execute)
        self._step = step
        self._end = end
        self._hooks = hooks
        self._batches = frozenset(batches)
        self._clock = clock
        self._runs: SimpleQueue[Run | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for number in range(self._count):
            thread = threading.Thread(target=self._work, name=f"ottla-{self._group}-worker-{number}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        """End the threads; one that a handler keeps is left behind."""
        for _ in self._threads:
            self._runs.put(None)
        for thread in self._threads:
            thread.join(1.0)

    def put(self, run: Run) -> None:
        self._runs.put(run)

    def take(self, timeout_s: float) -> Run | None:
        """The next run, for a caller who handles it in a thread of his own."""
        try:
            return self._runs.get(timeout=timeout_s)
        except Empty:
            return None

    def give_back_cancelled(self) -> None:
        """Take cancelled runs out of the queue: the workers may be busy for long with what they are at."""
        kept: list[Run | None] = []
        while True:
            try:
                run = self._runs.get_nowait()
            except Empty:
                break
            if run is not None and run.is_cancelled:
                self._step(events.RunFinished(run, RunResult(done=(), untouched=run.records)))
            else:
                kept.append(run)
        for run in kept:
            self._runs.put(run)

    def _work(self) -> None:
        try:
            while (run := self._runs.get()) is not None:
                while run is not None:
                    run = self._deliver(run)
        except BaseException as error:
            # A handler's failures never come here. A worker that dies is not replaced: what it held is unknown.
            is_exit = isinstance(error, SystemExit | KeyboardInterrupt)
            event = "handler_exited" if is_exit else "worker_died"
            log_event(event, "error", {"group": self._group, "error": described(error), "exc_info": error})
            if is_exit or isinstance(error, Exception):
                self._end(error)

    def _deliver(self, run: Run) -> Run | None:
        """Have a run handled, tell the session, and return the next one if there is one."""
        started_ms = self._clock.monotonic_ms()
        try:
            result = self._execute[run.route](run)
        except Exception as error:  # a decoder that raises although it must not
            result = broken_run(run, ExceptionTable().failure_of(error))
        except BaseException as error:
            if isinstance(error, SystemExit | KeyboardInterrupt):
                self._end(error)  # first: nothing more is to be handed out
            # The next run is not for this worker, which dies.
            self._step(events.RunFinished(run, abandoned_run(run, ExceptionTable().failure_of(error))))
            raise
        duration_ms = self._clock.monotonic_ms() - started_ms
        if isinstance(result, RunResult):
            self._tell(run, result, duration_ms)
            return self._step(events.RunFinished(run, result), takes_run=True)
        own = self._step(events.RunHandled(run), takes_run=True)
        result.when_confirmed(lambda result: self._confirmed(run, result, duration_ms))
        return own

    def _confirmed(self, run: Run, result: RunResult, duration_ms: int) -> None:
        """In the thread that brought the last acknowledgement: a producer's, as a rule."""
        try:
            self._tell(run, result, duration_ms)
            self._step(events.RunFinished(run, result))
        except Exception as error:
            self._end(error)

    def _tell(self, run: Run, result: RunResult, duration_ms: int) -> None:
        is_batch = run.route in self._batches
        wall_ms = self._clock.now_ms()
        count_run(self._hooks, self._group, run, result, duration_ms, is_batch=is_batch, wall_ms=wall_ms)
