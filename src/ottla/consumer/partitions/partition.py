"""The state of one assigned partition, from assignment to revocation."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla.consumer.model.effects import Notice
from ottla.consumer.model.events import NOTHING_BEHIND, Fetched
from ottla.consumer.model.failed_writes import Write
from ottla.consumer.model.run import AnyRecord, Run
from ottla.consumer.partitions.flow import HandlingRate
from ottla.consumer.partitions.lanes import lanes_for
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
        """Return the wall time of the first failure by the present clock, which may have been set since."""
        return self.first_failure_ms or wall_ms - (now_ms - self.since_ms)


@dataclass(slots=True)
class PendingWrite:
    """A write to the dead letter topic or a retry topic that is not acknowledged yet."""

    effect: Write
    since_ms: int = 0
    """Monotonic time of the decision to write it."""
    notice: Notice | None = None
    """Logged when it is acknowledged."""
    failure: Failure | None = None
    """Why the record failed; None if it only follows an earlier record of its key."""
    error: str = ""
    """The error of the last write that failed."""
    failed_writes: int = 0
    is_writing: bool = True
    """False while a failed write waits to be repeated, or for the partition to be resumed."""
    is_queued: bool = False
    """True while it waits for an earlier write of its key."""


@dataclass(slots=True)
class StoppedAt:
    """Why a partition is stopped, and the records that wait until it is resumed."""

    reason: str
    offset: int
    groups: list[list[AnyRecord]] = field(default_factory=list)


@dataclass(slots=True)
class ExpiredHere:
    """Expired records that are not logged yet."""

    records: int = 0
    offset: int = 0
    """Offset of the first of them."""
    error: str = ""


@dataclass(slots=True)
class LogPlace:
    """Our position in the partition's log, and the log's bounds at the last poll: see `log_watch`."""

    still_since_ms: int
    expected: int | None = None
    """The offset that comes next, unless the log has a gap."""
    committed: int | None = None
    """Where the group is committed; None as soon as records came."""
    topic_id: bytes | None = None
    is_id_of_before: bool = False
    """The topic id was seen before this assignment, which has no committed offset, and not since."""
    first: int | None = None
    """The first offset that was read, if known."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """Missing offsets since the last look was requested: from, and up to."""
    asked_gaps: list[tuple[int, int]] = field(default_factory=list)
    """The gaps that the next answer decides about."""
    old_ids: frozenset[bytes] = frozenset()
    """The ids of deleted topics of the same name."""
    place: tuple[int | None, int | None] = (None, None)
    was_short: bool = False
    at: int = 0
    start: int = 0
    end: int = 0
    seen_ms: int = 0
    error: str | None = None
    """The client's last error about the partition since records were fetched."""
    was_looked_at: bool = False
    behind_since_ms: int | None = None
    """Monotonic time of the look since which the log continues beyond our position; None if it does not."""


@dataclass(slots=True)
class AwaitedStart:
    """The start of a partition whose store has no offset. Its records are refused until the store has responded."""

    committed: int | None
    first_fetched: int | None = None

    def not_taken(self, records: Sequence[AnyRecord]) -> None:
        """Remember that these records were dropped: the client has to seek back to them."""
        if self.first_fetched is None and records:
            self.first_fetched = records[0].offset


class PartitionState:
    """Everything that is known of a partition in one assignment. `epoch` names the assignment: results with an older
    epoch are ignored."""

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
        """Records that the shell has fetched and not passed on yet. They count in the buffer."""
        self.lanes = lanes_for(plan.ordering)
        self.pace = HandlingRate(now_ms)
        self.expired: ExpiredHere | None = None
        """Records that expired in this minute; None if none did."""
        self.linger = Linger(linger_ms=plan.linger_ms, most=plan.max_records_per_turn) if plan.linger_ms else None
        self.log = LogPlace(now_ms, seen_ms=now_ms)
        self.in_flight: set[Run] = set()
        self.attempts: dict[int, Attempts] = {}
        self.pending_writes: dict[int, PendingWrite] = {}
        """Writes to the dead letter topic or a retry topic that are not acknowledged, by offset."""
        self.write_order: KeyedWrites[bytes] = KeyedWrites()
        """Order of dead letters: writes of one key are sequential, so that a redrive keeps their order."""
        self.level: RetryLevel | None = None
        """Its level in its retry chain; None without retry topics."""
        self.retries: dict[int, tuple[int, int]] = {}
        """Groups that wait for a retry in place, by their first offset: when each is due (monotonic), and its size."""
        self.stopped: StoppedAt | None = None
        self.head: int | None = None
        """The oldest unfinished offset at the last check, and since when it is the oldest: see `lateness`."""
        self.head_since_ms = now_ms
        self.is_draining = False
        self.awaited: AwaitedStart | None = None
        self.stored_start: int | None = None
        """The offset in its store, until a record at or after it was fetched."""
        self.committed: tuple[int, str] | None = None
        self.claimed: int | None = None
        """At most once: the offset after the last record that was taken for a run."""
        self.late: list[Fetched] = []
        """Records that were fetched while the app was drained. They are registered when it is resumed."""
        self.timestamps: deque[tuple[int, int]] = deque()
        """The first offset and timestamp of each fetched batch that is not done."""
        self.restored: frozenset[int] = frozenset()
        """Offsets beyond the committed one that an earlier owner finished, from the commit metadata."""

    @property
    def is_eligible(self) -> bool:
        """True if a run may be taken now."""
        if self.is_draining or self.stopped is not None:
            return False
        if self.pending_writes and (self.plan.commits_in_transactions or self.has_failing_write):
            return False  # in transactions later records would be committed before this one is written
        if self.level is not None and not self.level.is_open:
            return False
        return self.lanes.is_ready

    def fetched(self, first: AnyRecord) -> None:
        """Remember the age of fetched records, of which this is the first."""
        self._forget_timestamps()
        self.timestamps.append((first.offset, first.timestamp_ms))

    def oldest_timestamp_ms(self) -> int | None:
        """Return the timestamp of the oldest unfinished record, or of the first one in its fetched batch; None if all
        fetched records are done."""
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
        """True if every fetched record is finished, except those that are not due."""
        not_due = 0 if self.level is None else self.level.not_due
        return self.tracker.unfinished_count == not_due

    @property
    def has_failing_write(self) -> bool:
        """True if a write failed and is to be repeated: handing out records would only add more dead letters."""
        return bool(self.pending_writes) and any(write.failed_writes for write in self.pending_writes.values())

    @property
    def is_quiet(self) -> bool:
        """True if no record is in a worker or being written to a dead letter or retry topic."""
        is_writing = bool(self.pending_writes) and any(write.is_writing for write in self.pending_writes.values())
        return not self.in_flight and not is_writing

    def account_progress(self) -> int:
        """Count the records that ordered runs have finished so far. Returns how many are new."""
        total = 0
        for run in self.in_flight:
            done = run.done
            if done > run.accounted:
                self.tracker.finish_many([record.offset for record in run.records[run.accounted : done]])
                total += done - run.accounted
                run.accounted = done
        return total

    def settle(self, records: Sequence[AnyRecord], *, ascend: bool = False) -> None:
        """Mark these records as done, here and in the retry chain. `ascend`: their offsets are known to ascend. Records
        of several keys, or acknowledged one by one, may be in any order."""
        if not records:
            return
        if not ascend or not self.tracker.finish_first(records[0].offset, records[-1].offset, len(records)):
            self.tracker.finish_many(each_offset(records))
        level = self.level
        if level is not None and level.index:
            for record in records:
                level.chain.settle(record.raw_key, level.index)

    def cancel(self) -> None:
        """Ask the workers to stop after their current record."""
        for run in self.in_flight:
            run.is_cancelled = True


class Linger:
    """The wait of one partition for a full batch. `wake_ms` is when it ends; None while no record waits.

    A batch is handed out when it is full or has waited for `linger_ms` since its first record, whether a worker is free
    or not. A record waits for others at most once, and never behind a retry, while the buffer is full, or while the app
    drains.
    """

    __slots__ = ("_linger_ms", "_most", "wake_ms")

    def __init__(self, *, linger_ms: int, most: int) -> None:
        self._linger_ms = linger_ms
        self._most = most
        self.wake_ms: int | None = None

    def came(self, *, waiting: int, now_ms: int) -> int | None:
        """Note that records were fetched. Returns when to check again if a wait begins with them."""
        if self.wake_ms is not None or waiting == 0:
            return None
        self.wake_ms = now_ms + self._linger_ms
        return self.wake_ms

    def waits(self, *, waiting: int, now_ms: int) -> bool:
        """Return whether the batch is still to wait."""
        is_over = self.wake_ms is None or now_ms >= self.wake_ms
        return not is_over and waiting < self._most

    def taken(self, *, waiting: int, now_ms: int) -> int | None:
        """Note that a batch was dispatched. Returns when to check again for the rest; None if nothing is left."""
        self.wake_ms = None
        return self.came(waiting=waiting, now_ms=now_ms)
