"""The member of a queue's share group, without what each shell does in its own way: its workers, and how it waits.

1.  A `LeaseClient` leases records, in threads of its own. Each lease becomes a `JobRun` for a worker.
2.  The worker's result is judged by `QueuePolicy`, and the lease is acknowledged, kept or released accordingly.
3.  What a handler sent belongs to its record: the lease is kept until it is acknowledged, and the worker goes on.
4.  A dead letter is written by the app's own producer of dead letters. The record is rejected when that is
    acknowledged. Until then the lease is renewed, and the app is not ready while writes fail.
5.  A result that comes after its lease ended, or after `max_job_s`, is dropped, and logged.
6.  A record that comes for the last time by the broker's limit is a dead letter, and is not handled: no earlier attempt
    had a result, as when each killed its process, and after one more the broker would drop it.
7.  A worker that dies, as by a `BaseException` of a handler, is not replaced: the member leases nothing more, and is
    not alive. The attempt counts as failed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, Unpack

from ottla.app.member.handler_workers import WorkerBase, WorkerParts
from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.job_settlement import QueueParts
from ottla.app.queue.lease_handling import LeaseHandling
from ottla.config.topic_presence import TOPICS_LONGEST_S
from ottla.consumer.model.run import Run, RunResult
from ottla.consumer.readiness.health import Health
from ottla.errors import ConfigError
from ottla.processes import forks
from ottla.queues.core.effects import Effect
from ottla.queues.core.prefetch import MOST_AHEAD
from ottla.queues.io.group_settings import prepare_group
from ottla.queues.io.lease_client import LeaseClient
from ottla.records import TopicPartition
from ottla.stepping import Steps
from ottla.wire_client.client_settings import connection_settings

LEAVE_S: Final = 5.0
"""How long the last acknowledgements may take, after the handlers had their time."""

_WAITING_PER_WORKER: Final = 4
_LEAST_WAITING: Final = 16


class QueueMember(LeaseHandling):
    """See the module."""

    def __init__(self, options: MemberOptions, **parts: Unpack[QueueParts]) -> None:
        super().__init__(options, **parts)
        self._has_started = False
        self._has_ended = False
        self._workers = self._make_workers({name: self._begun(code) for name, code in parts["execute"].items()})
        forks.refuses(self)

    @abstractmethod
    def _make_workers(self, execute: Mapping[str, Callable[[Run], Any]]) -> WorkerBase:
        """Return the workers that call this code."""

    @abstractmethod
    def _begun(self, code: Any) -> Callable[[Run], Any]:
        """Return what calls `code` with a run, unless its lease has ended (`_refusal`)."""

    @abstractmethod
    def join(self) -> Any:
        """Wait until everything is acknowledged and the group left; at most `drain_s` for what is being handled. On an
        event loop this is to be awaited."""

    @abstractmethod
    def drain(self, timeout_s: float) -> Any:
        """Lease nothing more, and wait until all is handled. False when `timeout_s` was too short for that. On an event
        loop this is to be awaited."""

    @abstractmethod
    def _wait_stopped(self, timeout_s: float) -> Any:
        """Wait until the group is left. False when `timeout_s` was too short for that."""

    @abstractmethod
    def _on_effects(self, effects: list[Effect]) -> None:
        """Have `_take` called with them, where this member's decisions are made. Called in any thread."""

    @abstractmethod
    def _on_ended(self, error: BaseException | None) -> None:
        """Have `_ended` called. Called in a thread of the client's."""

    # Verbs

    def stop(self) -> None:
        """Lease nothing more, and release what was not begun; returns at once."""
        if self._has_started and not self._has_ended:
            self._client.close()

    @property
    def is_running(self) -> bool:
        """Return whether it leases records."""
        return self._has_started and not self._has_ended

    def assignment(self) -> list[TopicPartition]:
        """Return no partition: the records of a queue's partitions belong to all members."""
        return []

    def pause(self, *partitions: TopicPartition) -> None:
        """Lease nothing more."""
        self._client.pause(True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Lease records again."""
        self._client.pause(False)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Raise `ConfigError`: the members of a queue have no positions."""
        raise ConfigError(f"seek: {topic_partition} belongs to a queue, whose records have no order")

    def health(self) -> Health:
        """Return how it is: ready while records can be leased, handled, and given up with a dead letter."""
        problems = [*self._client.problems(), *self._problems.values()]
        if self._overdue:
            seconds = self.queue.max_job_ms / 1_000
            problems.append(f"{self._plan.name}: {len(self._overdue)} handlers run on after max_job_s={seconds:g}")
        if self._dead_worker is not None:
            problems.append(self._dead_worker)
        health = Health(is_alive=self._dead_worker is None, is_ready=not problems, problems=tuple(problems))
        if self.is_running:
            return health
        return Health.of_loop(health, loop="lease", has_started=self._has_started, error=self.error)

    # For the shells

    def _begin(self) -> None:
        """Start to lease and to handle. The group's settings are checked by then."""
        self._workers.start()
        self._has_started = True
        self._client.start()

    def _joining(self) -> Steps[None]:
        if not self._has_started:
            return
        if not (yield partial(self._wait_stopped, self._drain_s)):
            self._client.abandon()
            yield partial(self._wait_stopped, LEAVE_S)
        yield self._stop_workers

    def _stop_workers(self) -> Any:
        return self._workers.stop()

    def _forked(self) -> None:
        self._has_ended = True

    def _refusal(self, run: JobRun) -> RunResult | None:
        """Begin a run. Returns its result if its lease has ended, so that it is not handled."""
        if run.has_begun or self._client.begin(run.lease):
            return None
        self._overdue.discard(run.lease)  # it was taken from this worker, which is not busy with it
        return RunResult(done=(), untouched=run.records)

    def _new_client(self) -> LeaseClient:
        concurrency = self._plan.concurrency
        return LeaseClient(
            connection_settings(self.settings),
            group=self.group,
            topics=self._topics,
            concurrency=concurrency,
            max_job_ms=self.queue.max_job_ms,
            max_waiting=max(_LEAST_WAITING, concurrency * _WAITING_PER_WORKER),
            most_ahead=MOST_AHEAD,
            on_effects=self._on_effects,
            on_ended=self._on_ended,
            on_time=lambda now_ms: self._metrics.measure(now_ms),
            clock=self._clock,
        )

    def _prepare(self, should_give_up: Callable[[], bool]) -> None:
        """Check the group's settings. Blocks."""
        found = prepare_group(
            self._client.settings,
            group=self.group,
            topics=self._topics,
            start=self.queue.start,
            max_attempts=self.queue.max_attempts,
            topics_timeout_s=TOPICS_LONGEST_S if self._topics_timeout_s is None else self._topics_timeout_s,
            should_give_up=should_give_up,
        )
        self._last_delivery = max(found.delivery_count_limit, self.queue.max_attempts + 1)

    def _worker_parts(self, execute: Mapping[str, Callable[[Run], Any]]) -> WorkerParts:
        return {**super()._worker_parts(execute), "make_run": self._run_of}

    def _ended(self, error: BaseException | None) -> None:
        """Take in that the client has left its group, or cannot go on."""
        self._has_ended = True
        if error is not None:
            self.error = self.error or error
            self._log_failure(error)
        self._attempts.end_all()
        self._watch.ended()
        self._on_stop()
