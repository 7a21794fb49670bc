"""What a queue's member does about its leases, and about the results of its workers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, Unpack

from ottla.app.member.handler_workers import WorkerBase
from ottla.app.member.member_base import MemberOptions
from ottla.app.queue.job_run import JobRun
from ottla.app.queue.job_settlement import JobSettlement, QueueParts
from ottla.app.queue.queue_metrics import QueueMetrics
from ottla.app.queue.queue_policy import Verdict, is_success
from ottla.consumer.model import events
from ottla.consumer.model.effects import Notice
from ottla.consumer.model.run import AnyRecord, Run
from ottla.queues.core.acknowledgements import Acknowledgement
from ottla.queues.core.effects import (
    AcknowledgementUnknown,
    Effect,
    HandOut,
    JobTimedOut,
    LeaseLost,
    PartitionRefused,
    RecordsUnreadable,
)
from ottla.queues.core.lease import Lease, LeaseState
from ottla.records import packed_headers_of

_MOST_JOBS: Final = 64
"""In one run. It keeps their records, and is counted when it ends."""

_QUICK_MS: Final = 5
"""A job that took longer ends its run."""


class LeaseHandling(JobSettlement):
    """The part of `QueueMember` that hands leases out to workers, and takes back their results."""

    _workers: WorkerBase

    def __init__(self, options: MemberOptions, **parts: Unpack[QueueParts]) -> None:
        super().__init__(options, **parts)
        self._metrics = QueueMetrics(self._watch, self._client, handler=self._plan.name)
        self._dead_worker: str | None = None
        self._last_delivery = self.queue.max_attempts + 1
        """The delivery after which the broker gives a record up: the group's limit, always above `max_attempts`."""
        self._overdue: set[Lease] = set()
        """Leases that were taken from workers which are still busy with them."""

    @abstractmethod
    def _cancel(self, run: JobRun) -> None:
        """Stop what handles the run, as far as that can be done."""

    def _take(self, effects: Sequence[Effect]) -> None:
        """Carry out what came of the leases."""
        self._metrics.count(effects)
        for effect in effects:
            match effect:
                case HandOut(leases):
                    for lease in leases:
                        self._hand_out(lease)
                case LeaseLost():
                    self._lost(effect)
                case JobTimedOut(lease):
                    self._timed_out(lease)
                case AcknowledgementUnknown(_, records, why):
                    self._event("acknowledgements_unknown", "warning", {"records": records, "error": why})
                case RecordsUnreadable(name, why):
                    self._event("leased_records_unreadable", "error", {"partition": str(name), "error": why})
                case PartitionRefused(name, error):
                    self._problems[str(name)] = f"{name}: its broker does not lease records: {error.name}"
                    self._event("queue_partition_refused", "error", {"partition": str(name), "error": error.name})

    def _step(self, event: events.Event, *, takes_run: bool = False) -> Run | None:
        """Apply the result of a worker. A worker whose job succeeded begins the next queued job in the same step."""
        match event:
            case events.RunFinished(run, result):
                assert isinstance(run, JobRun)
                if takes_run and is_success(result):
                    with self._client.lock:
                        is_held = run.lease.is_held and not run.is_over
                        following, effects = self._accept(run) if is_held else (None, [])
                    if is_held:
                        if effects:
                            self._client.perform(effects)
                        return following
                if run.following is not None:  # the worker may not take it
                    self._workers.put(run.following)
                if result.fatal is not None:
                    fatal = result.fatal
                    self._dead_worker = f"{self._plan.name}: a worker died: {fatal.error_type}: {fatal.message}"
                    self._client.pause(True)  # it is not replaced: what else is leased would have no worker
                with self._client.lock:
                    now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
                    if run.is_over or not run.lease.is_held:
                        verdict: Verdict | None = None
                        notices: list[Notice] = []
                    else:
                        verdict, notices = self._policy.judge(run, result, now_ms, wall_ms)
                if verdict is None:
                    self._drop(run)
                else:
                    self._log(notices)
                    self._carry_out(run, verdict)
            case events.RunHandled(run):
                assert isinstance(run, JobRun)
                self._client.finished(run.lease, None)
        return None

    def _accept(self, run: JobRun) -> tuple[JobRun | None, list[Effect]]:
        """Accept the job and begin the next queued one under one lock."""
        self._policy.succeeded()
        then: Lease | None = run.following or self._workers.poll()
        following = None if then is None else self._run_of(then)
        has_begun, effects = self._client.finish(run.lease, Acknowledgement.ACCEPT, then)
        if following is not None:
            following.has_begun = has_begun
        return following, effects

    def _follow(self, run: JobRun) -> bool:
        """Have a run whose job is done go on with the next queued job, if it may: see `JobRun`."""
        if len(run.records) >= _MOST_JOBS or self._clock.monotonic_ms() - run.lease.began_ms > _QUICK_MS:
            return False
        then: Lease | None = self._workers.poll()
        run.following = then
        if then is None or not run.is_like(then) or self._may_expire(then.record):
            return False
        with self._client.lock:
            if run.is_over or not run.lease.is_held or then.state is not LeaseState.RUNNING:
                return False
            self._policy.succeeded()
            _, effects = self._client.finish(run.lease, Acknowledgement.ACCEPT, then)
            run.take_over(then)
        run.following = None
        if effects:
            self._client.perform(effects)
        return True

    def _may_expire(self, record: AnyRecord) -> bool:
        return packed_headers_of(record) is not None and self._plan.failures.expiry.expires_ms(record) is not None

    def _run_of(self, lease: Lease) -> JobRun:
        """Return the run in which a worker begins with a lease."""
        before: JobRun | None = lease.data
        if before is not None and before.is_over:
            return before
        return self._new_run(lease)

    def _new_run(self, lease: Lease) -> JobRun:
        before: JobRun | None = lease.data
        job = None if before is None else before.job
        now_ms = self._clock.monotonic_ms()
        run = lease.data = JobRun(lease, route=self._plan.name, now_ms=now_ms, job=job, follow=self._follow)
        return run

    def _hand_out(self, lease: Lease) -> None:
        before: JobRun | None = lease.data
        dead_letter = None if before is None else before.job.dead_letter
        if dead_letter is not None:  # it was handled, and its dead letter is to be written again
            self._client.begin(lease)
            self._client.finished(lease, None)
            self._write(self._new_run(lease), dead_letter)
        elif lease.delivery_count >= self._last_delivery:
            run = self._new_run(lease)
            self._client.begin(lease)
            with self._client.lock:
                now_ms, wall_ms = self._clock.monotonic_ms(), self._clock.now_ms()
                verdict, notices = self._policy.deliveries_spent(run, now_ms, wall_ms)
            self._log(notices)
            self._carry_out(run, verdict)
        else:
            self._workers.put(lease)

    def _lost(self, lost: LeaseLost) -> None:
        lease = lost.lease
        run: JobRun | None = lease.data
        if run is not None and run.lease is lease:
            run.is_cancelled = True
        self._event(
            "lease_lost",
            "warning" if lease.has_worker or lost.was_handled else "info",
            {
                "partition": str(lease.topic_partition),
                "offset": lease.offset,
                "reason": lost.why,
                "is_handled": lost.was_handled,
            },
        )

    def _timed_out(self, lease: Lease) -> None:
        with self._client.lock:
            if lease.state is not LeaseState.RUNNING:
                return
            run: JobRun = lease.data if lease.has_begun else self._new_run(lease)
            verdict, notices = self._policy.timed_out(run, self._clock.monotonic_ms(), self._clock.now_ms())
            run.is_over = run.is_cancelled = True
            self._client.hold(lease)
        self._overdue.add(lease)
        self._log(notices)
        self._event(
            "job_timed_out",
            "warning",
            {"partition": str(lease.topic_partition), "offset": lease.offset, "after_s": self.queue.max_job_ms / 1_000},
        )
        self._carry_out(run, verdict)
        self._cancel(run)

    def _drop(self, run: JobRun) -> None:
        """The lease of a run ended before its handler did."""
        self._overdue.discard(run.lease)
        if run.lease.has_worker:
            self._client.finished(run.lease, None)
        if run.lease.has_begun:
            self._event(
                "late_result_dropped",
                "warning",
                {"partition": str(run.topic_partition), "offset": run.record.offset},
            )
