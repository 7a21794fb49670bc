"""One attempt at a job, as the run that its handler gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ottla.consumer.model.run import Run

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
    """A run of one record that is leased. `task` is the asyncio task that handles it, while it does."""

    __slots__ = ("_job", "has_begun", "is_over", "lease", "task")

    def __init__(self, lease: Lease, *, route: str, now_ms: int, job: Job | None = None) -> None:
        """`job`: the account of the previous attempt, if there was one."""
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
        self._job = job

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
