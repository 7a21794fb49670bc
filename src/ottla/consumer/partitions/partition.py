"""One assigned partition: its records, its offsets, its failures, from assignment to revocation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.consumer.model.effects import Notice, Write
from ottla.consumer.model.events import NOTHING_BEHIND, Fetched
from ottla.consumer.model.run import AnyRecord, Run
from ottla.consumer.partitions.flow import Pace
from ottla.consumer.partitions.lanes import lanes_for
from ottla.consumer.partitions.linger import Linger
from ottla.consumer.partitions.offsets import OffsetTracker, each_offset
from ottla.consumer.partitions.plan import RoutePlan
from ottla.consumer.partitions.retry_chain import KeyedWrites, RetryLevel
from ottla.failures.exceptions import Failure
from ottla.records import TopicPartition


@dataclass(slots=True)
class Attempts:
    """The failed deliveries of one record."""

    since_ms: int = 0
    """Monotonic time of the first failure in this assignment."""
    failed: int = 0
    outages: int = 0
    first_failure_ms: int = 0
    """Wall time of the first failure before it came into this retry topic; 0 where there was none."""
    carried: int = 0
    """Failed deliveries before it came into this retry topic."""

    @property
    def total(self) -> int:
        return self.carried + self.failed

    def first_failed_ms(self, now_ms: int, wall_ms: int) -> int:
        """Wall time of the first failure, by the clock as it is now: it may have been set since."""
        return self.first_failure_ms or wall_ms - (now_ms - self.since_ms)


@dataclass(slots=True)
class PendingWrite:
    """A record on its way to the dead letter topic or a retry topic, not acknowledged yet."""

    effect: Write
    since_ms: int = 0
    """Monotonic time of the decision to write it."""
    notice: Notice | None = None
    """What is logged once it is acknowledged."""
    failure: Failure | None = None
    """Why it is written; None for a record that only follows an earlier one of its key."""
    error: str = ""
    """Why the last write failed."""
    failed_writes: int = 0
    is_writing: bool = True
    """False while a write that failed waits for its next try, or for someone to resume the partition."""
    is_queued: bool = False
    """It waits for an earlier record of its key to be acknowledged."""


@dataclass(slots=True)
class StoppedAt:
    """Why a partition stands still, and the records that wait for someone to resume it."""

    reason: str
    offset: int
    groups: list[list[AnyRecord]] = field(default_factory=list)


@dataclass(slots=True)
class ExpiredHere:
    """Records that expired since the last line in the log said so."""

    records: int = 0
    offset: int = 0
    """Of the first of them."""
    error: str = ""


@dataclass(slots=True)
class LogPlace:
    """Our place in the partition's log, as far as it was looked at: see `log_watch`."""

    still_since_ms: int
    expected: int | None = None
    """The offset that comes next, unless the log has a gap."""
    committed: int | None = None
    """Where the group is committed; None as soon as records came."""
    topic_id: bytes | None = None
    is_id_of_before: bool = False
    """The topic id is from before the assignment, of which nothing was committed: not looked at since."""
    first: int | None = None
    """Where it began, as far as that is known."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Offsets that were passed over since a look was asked for: from, and up to."""
    asked_gaps: list[tuple[int, int]] = field(default_factory=list)
    """Those that the next answer is about."""
    old_ids: frozenset[bytes] = frozenset()
    """Topics of the same name that are no more."""
    place: tuple[int | None, int | None] = (None, None)
    was_short: bool = False
    at: int = 0
    start: int = 0
    end: int = 0
    seen_ms: int = 0
    error: str | None = None
    """What the client said of it, since records came."""
    was_looked_at: bool = False
    behind_since_ms: int | None = None
    """Since which look the log goes on behind our place; None where it does not."""


@dataclass(slots=True)
class AwaitedStart:
    """A partition that is closed until its store has answered. If the store knows nothing, it begins here."""

    committed: int | None
    first_fetched: int | None = None

    def not_taken(self, records: Sequence[AnyRecord]) -> None:
        """The client gave these records, and they were dropped: it has to go back."""
        if self.first_fetched is None and records:
            self.first_fetched = records[0].offset


class PartitionState:
    """Everything that is known of a partition in one assignment. `epoch` names the assignment: results that carry an
    older one belong to somebody else by now."""

    __slots__ = (
        "attempts",
        "awaited",
        "behind",
        "claimed",
        "committed",
        "epoch",
        "expired",
        "head",
        "head_since_ms",
        "in_flight",
        "is_draining",
        "lanes",
        "late",
        "level",
        "linger",
        "log",
        "pace",
        "pending_writes",
        "plan",
        "restored",
        "retries",
        "stopped",
        "stored_start",
        "timestamps",
        "topic_partition",
        "tracker",
        "write_order",
    )

    def __init__(self, topic_partition: TopicPartition, epoch: int, plan: RoutePlan, now_ms: int) -> None:
        self.topic_partition = topic_partition
        self.epoch = epoch
        self.plan = plan
        self.tracker = OffsetTracker()
        self.behind = NOTHING_BEHIND
        """What the shell has yet to tell of: it takes room as what is registered does."""
        self.lanes = lanes_for(plan.ordering, is_columnar=plan.is_columnar)
        self.pace = Pace(now_ms)
        self.expired: ExpiredHere | None = None
        """Records that expired in the minute that runs; None where none did."""
        self.linger = Linger(linger_ms=plan.linger_ms, most=plan.quantum) if plan.linger_ms else None
        self.log = LogPlace(now_ms, seen_ms=now_ms)
        self.in_flight: set[Run] = set()
        self.attempts: dict[int, Attempts] = {}
        self.pending_writes: dict[int, PendingWrite] = {}
        """What is on its way to the dead letter topic or to a retry topic, by offset."""
        self.write_order: KeyedWrites[bytes] = KeyedWrites()
        """The dead letters of one key are written one after the other: sent back, they come in the order they had."""
        self.level: RetryLevel | None = None
        """Its place among the retry topics, where there are any."""
        self.retries: dict[int, tuple[int, int]] = {}
        """What waits for a retry in place: the first offset of each group, when it is due (monotonic) and its size."""
        self.stopped: StoppedAt | None = None
        self.head: int | None = None
        """The oldest unfinished offset when anybody looked last, and since when it is: see `lateness`."""
        self.head_since_ms = now_ms
        self.is_draining = False
        self.awaited: AwaitedStart | None = None
        self.stored_start: int | None = None
        """Where its store says that it goes on, until a record from there on has come."""
        self.committed: tuple[int, str] | None = None
        self.claimed: int | None = None
        """Behind the last record that was taken to be handled at most once."""
        self.late: list[Fetched] = []
        """What came in while the app was drained; it waits for the resume, unregistered."""
        self.timestamps: deque[tuple[int, int]] = deque()
        """The first offset and its timestamp of each fetched batch that is not done."""
        self.restored: frozenset[int] = frozenset()
        """Offsets beyond the committed one that an earlier owner finished, from the commit metadata."""

    @property
    def is_eligible(self) -> bool:
        """Whether a run may be taken now."""
        if self.is_draining or self.stopped is not None:
            return False
        if self.pending_writes and (self.plan.commits_in_transactions or self.has_failing_write):
            return False  # in transactions what follows would be committed over a record that is not written
        if self.level is not None and not self.level.is_open:
            return False
        return self.lanes.is_ready

    def fetched(self, first: AnyRecord) -> None:
        """Records came, this one first: remember how old they are."""
        self._forget_timestamps()
        self.timestamps.append((first.offset, first.timestamp_ms))

    def oldest_timestamp_ms(self) -> int | None:
        """The timestamp of the oldest unfinished record, or of the first that was fetched with it; None when all that
        was fetched is done."""
        if not self.tracker.unfinished_count:
            return None
        self._forget_timestamps()
        return self.timestamps[0][1] if self.timestamps else None

    def _forget_timestamps(self) -> None:
        position, timestamps = self.tracker.position, self.timestamps
        if position is not None:
            while len(timestamps) > 1 and timestamps[1][0] <= position:
                timestamps.popleft()

    @property
    def is_idle(self) -> bool:
        """Every fetched record is finished, but for those that are not due."""
        not_due = 0 if self.level is None else self.level.not_due
        return self.tracker.unfinished_count == not_due

    @property
    def has_failing_write(self) -> bool:
        """A write failed and waits for its retry: handing out more would only pile up more dead letters."""
        return bool(self.pending_writes) and any(letter.failed_writes for letter in self.pending_writes.values())

    @property
    def is_quiet(self) -> bool:
        """Nothing of it is in a worker or on the way to the dead letter topic."""
        is_writing = bool(self.pending_writes) and any(letter.is_writing for letter in self.pending_writes.values())
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

    def settle(self, records: Sequence[AnyRecord], *, ascend: bool = False) -> None:
        """These records are done, here and in the line of retry topics. `ascend` says that their offsets surely do:
        what comes from several keys, or is acknowledged in its own time, may be in any order."""
        if not records:
            return
        if not ascend or not self.tracker.finish_first(records[0].offset, records[-1].offset, len(records)):
            self.tracker.finish_many(each_offset(records))
        level = self.level
        if level is not None and level.index:
            for record in records:
                level.chain.settle(record.raw_key, level.index)

    def cancel(self) -> None:
        """Ask the workers to stop after the record they are at."""
        for run in self.in_flight:
            run.is_cancelled = True
