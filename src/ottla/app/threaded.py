"""What the members of groups share that have threads: their lock, their workers, their steps, and the wait for an end.

A shell's engine adds the thread that owns the client: what it does between two steps, and how it commits.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping

from ottla.app.member import Letters, Member, MemberOptions
from ottla.app.reaching import await_broker
from ottla.app.workers import Execute, Workers
from ottla.consumer.model import events
from ottla.consumer.model.effects import (
    Commit,
    Dispatch,
    Effect,
    FindRetryPositions,
    LookAtLogs,
    PausePartitions,
    ResumePartitions,
    SeekPartition,
)
from ottla.consumer.model.run import Run
from ottla.consumer.readiness.health import Health
from ottla.processes import lookups
from ottla.records import TopicPartition


class ThreadedMember(Member):
    """A member whose handlers run in threads. The lock guards the session: it is taken once per fetched batch and once
    per run."""

    def __init__(
        self,
        options: MemberOptions,
        *,
        execute: Mapping[str, Execute],
        letters: Letters,
        on_stop: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(options, letters=letters)
        self._on_stop = on_stop
        self._is_stopping = threading.Event()
        self._is_stopped = threading.Event()
        self._poll_thread: threading.Thread | None = None
        self._make_locks()
        self._workers = Workers(
            # A plan without code to execute is pulled: somebody takes its runs with `take_run`.
            sum(plan.concurrency for plan in options.plans if plan.name in execute),
            group=self.group,
            execute=execute,
            step=self._step,
            end=self._end,
            batches={plan.name for plan in options.plans if plan.is_batch},
            hooks=self._hooks,
            clock=self._clock,
        )

    # What the shell adds

    @abstractmethod
    def _for_client(self, effect: Effect) -> None:
        """Under the lock: keep what is for the client, in the order in which it was decided."""

    @abstractmethod
    def _commit_last(self, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """The last commit before the partitions go away. When it fails the records are delivered again, elsewhere."""

    @abstractmethod
    def start(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        """Connect, and begin to handle. Raises `BrokerUnavailable` or `UnknownTopic` with the facts."""

    # Life

    def reach(self, should_give_up: Callable[[], bool] = lambda: False) -> None:
        """Wait until something listens at the address. Raises `BrokerUnavailable` when nothing does."""
        lookups.check()
        await_broker(self.settings, self._start_timeout_s, should_give_up)

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
        is_polling = thread is not None and thread.is_alive()
        return self._health(loop="poll", is_running=is_polling, has_started=thread is not None)

    def drain(self, timeout_s: float) -> bool:
        """Take nothing new until `resume`, and wait until everything fetched is done. False when `timeout_s` was too
        short for that."""
        self._step(events.DrainRequested())
        return self._wait(lambda: self._session.is_idle, timeout_s)

    # For who pulls

    def take_run(self, timeout_s: float) -> Run | None:
        """The next run, for the caller to handle and to `finish`; None after `timeout_s` seconds, or at the end."""
        return self._workers.take(timeout_s)

    # Steps and effects

    def _step(self, event: events.Event, *, takes_run: bool = False) -> Run | None:
        """One step of the session, and its effects. With `takes_run` the first run is returned instead of queued."""
        with self._changed:
            later = self._perform_now(self._session.step(event, self._clock.monotonic_ms()))
            self._changed.notify_all()
        own: Run | None = None
        if takes_run and later and type(later[0]) is Dispatch:
            own = later.pop(0).run  # type: ignore[union-attr]
        if later:
            self._perform_later(later)
        return own

    def _perform_now(self, effects: list[Effect]) -> list[Effect]:
        """Under the lock: queue what is for the client, in the order it was decided. Returns the rest, runs first."""
        runs: list[Effect] = []
        later: list[Effect] = []
        for effect in effects:
            match effect:
                case Dispatch():
                    runs.append(effect)
                case PausePartitions() | ResumePartitions() | SeekPartition() | FindRetryPositions() | LookAtLogs():
                    self._for_client(effect)
                case Commit(_, is_final) if not is_final:
                    self._for_client(effect)
                case _:
                    later.append(effect)
        return runs + later

    def _perform_later(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Dispatch(run):
                    self._workers.put(run)
                case Commit(offsets):
                    self._commit_last(offsets)
                case _:
                    self._write_or_tell(effect)

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

    def _forked(self) -> None:
        """Runs in a child process after fork. The threads are not there, and may have held a lock: nothing may wait."""
        self._make_locks()
        self._is_stopping, self._is_stopped = threading.Event(), threading.Event()
        self._is_stopping.set()
        self._is_stopped.set()
        self._poll_thread = None
