"""Attempts at jobs, as the run that a worker gets.

A run begins with one job. When its handler returned, the worker accepts the job and goes on with the next that is
queued, in the same run: what a run costs is spread over several jobs. A job that fails is the last one of its run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.consumer.model.run import AnyRecord, Run

if TYPE_CHECKING:
    from ottla.consumer.model.failed_writes import WriteDeadLetter
    from ottla.queues.core.lease import Lease


class Job:
    """What a member keeps with a lease: how often the record failed here, and a dead letter that is not written yet."""

    __slots__ = ("dead_letter", "failed", "first_failed_ms", "first_failed_wall_ms", "outages", "writes")

    def __init__(self) -> None:
        self.failed = 0
        self.outages = 0
        self.first_failed_ms = 0
        self.first_failed_wall_ms = 0
        self.dead_letter: WriteDeadLetter | None = None
        self.writes = 0
        """How often the dead letter was not acknowledged."""


class JobRun(Run):
    """Leased records, one after the other. `lease` and `record` are those that are handled now. `task` is the asyncio
    task that handles them, while it does."""

    __slots__ = ("_follow", "_job", "following", "has_begun", "is_over", "lease", "task")

    can_grow = True

    def __init__(
        self,
        lease: Lease,
        *,
        route: str,
        now_ms: int,
        job: Job | None = None,
        follow: Callable[[JobRun], bool] | None = None,
    ) -> None:
        """`job`: the account of the previous attempt, if there was one. `follow` has the run accept its job and take
        the next one, or returns False."""
        super().__init__(
            topic_partition=lease.topic_partition,
            epoch=0,
            route=route,
            records=[lease.record],
            attempt=max(1, lease.delivery_count) + lease.attempts,
            started_ms=now_ms,
        )
        self.lease = lease
        self.fetched_ms = lease.acquired_ms
        self.has_begun = False
        """Whether the member knows already that a worker begins with it."""
        self.is_over = False
        """Whether the lease was taken from the worker that handles it."""
        self.task: Any = None
        self.following: Lease | None = None
        """What the worker handles next: it was taken out of the queue, and could not be added."""
        self._job = job
        self._follow = follow

    def grow(self) -> bool:
        return self._follow is not None and self._follow(self)

    def is_like(self, lease: Lease) -> bool:
        """Return whether the lease is a first attempt, as this one, of the same partition."""
        is_first = lease.data is None and lease.delivery_count <= 1 and self.attempt == 1
        return is_first and self.topic_partition == lease.topic_partition

    def take_over(self, lease: Lease) -> None:
        """Go on with a lease whose attempt has begun."""
        self.lease = lease
        lease.data = self
        self._job = None
        self.records.append(lease.record)  # type: ignore[attr-defined]

    @property
    def record(self) -> AnyRecord:
        """Return the record that is handled now."""
        return self.records[-1]

    @property
    def is_owner(self) -> bool:
        """False once the lease ended: another member may handle the record by then."""
        return self.lease.is_held and not self.is_over

    @property
    def job(self) -> Job:
        """Return the job whose lease this run holds."""
        job = self._job
        if job is None:  # most jobs succeed, and need none
            job = self._job = Job()
        return job
