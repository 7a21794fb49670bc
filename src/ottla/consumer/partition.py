"""One assigned partition: its records, its offsets, its failures, from assignment to revocation."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.consumer.effects import WriteDeadLetter
from ottla.consumer.events import Fetched
from ottla.consumer.flow import Pace
from ottla.consumer.lanes import lanes_for
from ottla.consumer.offsets import OffsetTracker
from ottla.consumer.plan import RoutePlan
from ottla.consumer.run import AnyRecord, Run
from ottla.records import TopicPartition


@dataclass(slots=True)
class Attempts:
    """The failed deliveries of one record."""

    failed: int = 0
    outages: int = 0
    first_failure_ms: int = 0


@dataclass(slots=True)
class PendingDeadLetter:
    """A dead letter that is not acknowledged yet."""

    effect: WriteDeadLetter
    failed_writes: int = 0
    is_writing: bool = True
    """False while a write that failed waits for its next try, or for someone to resume the partition."""


@dataclass(slots=True)
class StoppedAt:
    """Why a partition stands still, and the records that wait for someone to resume it."""

    reason: str
    offset: int
    groups: list[list[AnyRecord]] = field(default_factory=list)


class PartitionState:
    """Everything that is known of a partition in one assignment. `epoch` names the assignment: results that carry an
    older one belong to somebody else by now."""

    __slots__ = (
        "attempts",
        "committed",
        "dead_letters",
        "epoch",
        "in_flight",
        "is_draining",
        "lanes",
        "late",
        "pace",
        "plan",
        "restored",
        "stopped",
        "topic_partition",
        "tracker",
        "waiting_retries",
    )

    def __init__(self, topic_partition: TopicPartition, epoch: int, plan: RoutePlan, now_ms: int) -> None:
        self.topic_partition = topic_partition
        self.epoch = epoch
        self.plan = plan
        self.tracker = OffsetTracker()
        self.lanes = lanes_for(plan.ordering)
        self.pace = Pace(now_ms)
        self.in_flight: set[Run] = set()
        self.attempts: dict[int, Attempts] = {}
        self.dead_letters: dict[int, PendingDeadLetter] = {}
        self.waiting_retries = 0
        self.stopped: StoppedAt | None = None
        self.is_draining = False
        self.committed: tuple[int, str] | None = None
        self.late: list[Fetched] = []
        """What came in while the app was drained; it waits for the resume, unregistered."""
        self.restored: frozenset[int] = frozenset()
        """Offsets beyond the committed one that an earlier owner finished, from the commit metadata."""

    @property
    def is_eligible(self) -> bool:
        """Whether a run may be taken now."""
        is_held_back = self.is_draining or self.stopped is not None or self.has_failing_dead_letter
        return not is_held_back and self.lanes.is_ready

    @property
    def has_failing_dead_letter(self) -> bool:
        """A write failed and waits for its retry: handing out more would only pile up more dead letters."""
        return bool(self.dead_letters) and any(letter.failed_writes for letter in self.dead_letters.values())

    @property
    def is_quiet(self) -> bool:
        """Nothing of it is in a worker or on the way to the dead letter topic."""
        is_writing = bool(self.dead_letters) and any(letter.is_writing for letter in self.dead_letters.values())
        return not self.in_flight and not is_writing

    def account_progress(self) -> int:
        """Count what ordered runs have finished so far, without waiting for their end. Returns how many are new."""
        total = 0
        for run in self.in_flight:
            done = run.done
            if done > run.accounted:
                self.tracker.finish_many([record.offset for record in run.records[run.accounted : done]])
                total += done - run.accounted
                run.accounted = done
        return total

    def cancel(self) -> None:
        """Ask the workers to stop after the record they are at."""
        for run in self.in_flight:
            run.is_cancelled = True
