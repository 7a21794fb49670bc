"""The workers of a group member: they run handlers, report finished runs to the session, and handle the death of one.

`WorkerBase` is shared by both shells. `ThreadWorkers` adds threads, and the queue of runs in front of them; asyncio has
tasks (`ottla.aio.consume.workers`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from asyncio import QueueEmpty
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Final, NotRequired, Protocol, TypedDict, Unpack

from ottla.app.member.poll_priority import PollThreadPriority
from ottla.clock import Clock
from ottla.consumer.model import events
from ottla.consumer.model.run import Run, RunResult, Unconfirmed, abandoned_run, broken_run, count_run
from ottla.errors import ConfigError
from ottla.failures.exceptions import ExceptionTable, described
from ottla.telemetry import Listeners, log_event

CLEAN_UP_S: Final = 5.0
"""How long async handlers that a stop cancels may take to clean up."""

Execute = Callable[[Run], RunResult | Unconfirmed]

_END_S: Final = 1.0


class Step(Protocol):
    """One step of the session, and its effects. With `takes_run` the first run is returned instead of queued."""

    def __call__(self, event: events.Event, *, takes_run: bool = False) -> Run | None: ...


class WorkerParts(TypedDict):
    """What workers are given by their member."""

    count: int
    group: str
    execute: Mapping[str, Callable[[Run], Any]]
    """The code of each handler."""
    step: Step
    end: Callable[[BaseException], None]
    """Stops the member."""
    make_run: NotRequired[Callable[[Any], Run]]
    """Makes a run of what was put; not given where that is one already."""
    batches: Collection[str]
    """The handlers that take batches."""
    hooks: Listeners
    clock: Clock


class WorkerBase(ABC):
    """The workers of one group member.

    A worker that finished a run reports it to the session, and usually gets its next run in the same step, without the
    queue. One whose run waits for acknowledgements takes the next as well.
    """

    _runs: Any
    """The queue of the shell. A None in it ends a worker."""

    def __init__(self, **parts: Unpack[WorkerParts]) -> None:
        self._count = parts["count"]
        self._group = parts["group"]
        self._execute = dict(parts["execute"])
        self._step = parts["step"]
        self._end = parts["end"]
        self._hooks = parts["hooks"]
        self._make_run = parts.get("make_run")
        self._batches = frozenset(parts["batches"])
        self._clock = parts["clock"]
        self._at: dict[Any, Run] = {}
        """The run that each thread or task handles, or handled last."""

    @abstractmethod
    def start(self) -> None:
        """Begin to handle runs."""

    @abstractmethod
    def stop(self) -> Any:
        """End the workers. On an event loop this is to be awaited."""

    @abstractmethod
    def take(self, timeout_s: float) -> Any:
        """Return the next run, for a caller that handles it; None after `timeout_s` seconds. On an event loop this is
        to be awaited."""

    @abstractmethod
    def _confirm(self, run: Run, unconfirmed: Any, duration_ms: int) -> None:
        """Have `_confirmed` called with the result of a run that waits for acknowledgements. Returns at once."""

    def put(self, run: Any) -> None:
        """Put a run into the queue, or what one is made of when a worker takes it."""
        self._runs.put_nowait(run)

    def poll(self) -> Any:
        """Take out of the queue what was put next; None if nothing is there, or the workers are to end."""
        try:
            run = self._runs.get_nowait()
        except (Empty, QueueEmpty):
            return None
        if run is None:  # it ends a worker that waits
            self._runs.put_nowait(None)
        return run

    def give_back_cancelled(self) -> None:
        """Take cancelled runs out of the queue: the workers may be busy for long with what they are at."""
        cancelled: list[Run] = []
        kept: list[Run | None] = []
        with suppress(Empty, QueueEmpty):
            while True:
                run: Run | None = self._runs.get_nowait()
                if run is not None and run.is_cancelled:
                    cancelled.append(run)
                else:
                    kept.append(run)
        for run in kept:
            self._runs.put_nowait(run)
        for run in cancelled:
            self._step(events.RunFinished(run, RunResult(done=(), untouched=run.records)))

    # For the shells

    def _log_left(self, workers: Iterable[Any]) -> None:
        """Log which handlers run on after the stop, in these threads or tasks. Their records are not committed."""
        for run in filter(None, map(self._at.get, workers)):
            fields: dict[str, object] = {
                "group": self._group,
                "handler": run.route,
                "partition": str(run.topic_partition),
            }
            if (record := run.last_handed_out) is not None:
                fields["offset"] = record.offset
            log_event("handler_left_running", "warning", fields)

    def _broken(self, run: Run, error: BaseException) -> RunResult:
        """Return the result of a run whose code raised. That is not a handler's failure: a decoder raised, although it
        must not."""
        return broken_run(run, ExceptionTable().failure_of(error))

    def _abandon(self, run: Run, error: BaseException) -> None:
        """Give up this run: the worker dies in it, and the next run goes to another one."""
        self._step(events.RunFinished(run, abandoned_run(run, ExceptionTable().failure_of(error))))

    def _handled(self, run: Run, result: Any, duration_ms: int) -> Run | None:
        """Report a finished run to the session. Returns the worker's next run, if there is one."""
        if isinstance(result, RunResult):
            self._count_run(run, result, duration_ms)
            return self._step(events.RunFinished(run, result), takes_run=True)
        own = self._step(events.RunHandled(run), takes_run=True)
        self._confirm(run, result, duration_ms)
        return own

    def _confirmed(self, run: Run, result: RunResult, duration_ms: int) -> None:
        """Report a finished run whose worker has a newer one."""
        try:
            self._count_run(run, result, duration_ms)
            self._step(events.RunFinished(run, result))
        except Exception as error:
            self._end(error)

    def _died(self, error: BaseException) -> None:
        """End the member, because a worker died. It is not replaced, as its state is unknown; failures of handlers
        never end one."""
        is_exit = isinstance(error, SystemExit | KeyboardInterrupt)
        event = "handler_exited" if is_exit else "worker_died"
        log_event(event, "error", {"group": self._group, "error": described(error), "exc_info": error})
        if is_exit or isinstance(error, Exception):
            self._end(error)

    def _count_run(self, run: Run, result: RunResult, duration_ms: int) -> None:
        is_batch = run.route in self._batches
        wall_ms = self._clock.now_ms()
        count_run(self._hooks, self._group, run, result, duration_ms, is_batch=is_batch, wall_ms=wall_ms)


class ThreadWorkers(WorkerBase):
    """The worker threads of one group member. Between two runs they yield to the poll thread, by `poll_priority`. The
    thread that brings the last acknowledgement of a run reports the run to the session."""

    def __init__(self, *, poll_priority: PollThreadPriority | None = None, **parts: Unpack[WorkerParts]) -> None:
        super().__init__(**parts)
        self._poll_priority = poll_priority
        self._runs: SimpleQueue[Any] = SimpleQueue()
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
            run: Run | None = self._runs.get(timeout=timeout_s)
            return run
        except Empty:
            return None

    def _work(self) -> None:
        thread, at = threading.current_thread(), self._at
        try:
            while (taken := self._runs.get()) is not None:
                run: Run | None = taken if self._make_run is None else self._make_run(taken)
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
