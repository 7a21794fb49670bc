"""When to pause a partition in the client, and when to resume it: bounded buffers with a wide hysteresis.

A pause is not free: both clients throw away what they prefetched for that partition and fetch it again. So a partition
over its high watermark is first *held*: for `hold_ms` the shell does not poll, which costs nothing if the handler is
fast and the buffer drains in that time. If it is still over the mark it is paused, until it is below the low watermark.
Fast handlers fetch nothing twice, and slow ones pause once per thousands of records.

How much "full" is depends on the handler. A resumed partition waits until its broker answers the fetch that is under
way without it, up to `fetch.max.wait.ms` (500). Where all partitions of a broker were paused, it is fetched at once; by
librdkafka itself up to a second later (`ottla.sync.consume.client_work`). What is buffered must last that long. So the
watermarks are the given ones or, when that is more, `lead_s` seconds of work at the pace the partition is handled at,
and half of it. (Measured with one hot partition of 16 and a handler of 30 µs: as fast as without any limit, where 4,000
and 1,000 for all gave a third.)

A partition of unknown pace is held somewhat longer, until its first run has ended.

All partitions of a group member share one room (`total_records`, `total_bytes`), by the rule by which switches share
their memory: a buffer may be as large as what is free (Choudhury and Hahne, 1998). So one hot partition may have half
of the room, n of them get 1/(n + 1) each, and some is always left for a partition that had nothing. The room is
exceeded only by batches that were under way. When it is used up, all partitions that hold something are looked at. A
partition that is paused because the room is short resumes at half of what it had.

A partition may be paused for several reasons (a full buffer, the user, a stop). `FlowControl` keeps all of them, and
the client is called for the first and after the last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ottla.config.arguments import names_arguments
from ottla.errors import ConfigError
from ottla.quantities import MOST_COUNT, Span, count, seconds, seconds_of
from ottla.records import TopicPartition

_FIRST_HOLDS: Final = 10
"""So many times `hold_ms` a partition is held whose pace is not known yet, while no other is paused: where the handler
is slow, a hundred partitions must not be held one after the other."""


_MOST_BYTES: Final = 1 << 62
"""More than any machine has."""


@names_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """What may be buffered, in records and in bytes, from fetched to done: by one partition, and by all partitions of
    a group member together (`total_records`, `total_bytes`).

    A record counts as the memory that it takes: its key and its value, 280 bytes for the objects around them, and for
    each header its name, its value and 190 bytes. (Rows of columns count as their columns, and 32 bytes a row.) What a
    serde makes of a value comes in addition, for the records that are being handled.

    The totals bound when more is asked for; what the client has fetched by then comes in addition. In threads its own
    settings bound that: `queued.max.messages.kbytes` (64 MiB of keys and values; librdkafka does not count headers) and
    `queued.min.messages` (1,000 per partition, and one more response). In asyncio it is `fetch.max.bytes` (50 MiB per
    broker). Handlers of columns ask for no more than there is room for.
    """

    high_records: int = 4_000
    """A partition with more buffered records is paused, once `hold_ms` did not help."""
    low_records: int = 2_000
    """A paused partition resumes with fewer buffered records."""
    high_bytes: int = 16 * 1024 * 1024
    """Like `high_records`, in bytes."""
    low_bytes: int = 8 * 1024 * 1024
    """Like `low_records`, in bytes."""
    hold_ms: int = 5
    """How many milliseconds fetching waits for a full partition to drain before it is paused."""
    lead_s: Span = 2.0
    """Buffer at least this many seconds of work, at the pace at which the partition is handled."""
    most_records: int = 100_000
    """However fast the handler is."""
    total_records: int = 300_000
    total_bytes: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("most_records", "total_records"):
            count("FlowLimits", name, getattr(self, name))
        count("FlowLimits", "total_bytes", self.total_bytes, most=_MOST_BYTES)
        for name in ("low_records", "high_records", "low_bytes", "high_bytes"):
            count("FlowLimits", name, getattr(self, name), least=-MOST_COUNT, most=_MOST_BYTES)
        if not 0 <= self.low_records < self.high_records:
            raise ConfigError(
                f"FlowLimits: needs 0 <= low_records < high_records, got {self.low_records} and {self.high_records}"
            )
        if not 0 <= self.low_bytes < self.high_bytes:
            raise ConfigError(
                f"FlowLimits: needs 0 <= low_bytes < high_bytes, got {self.low_bytes} and {self.high_bytes}"
            )
        count("FlowLimits", "hold_ms", self.hold_ms, least=0)
        seconds("FlowLimits", "lead_s", self.lead_s)

    def watermarks(self, records_per_s: float) -> tuple[int, int]:
        """Return high and low watermarks, in records, for a partition that is handled at this pace."""
        wanted = min(self.most_records, int(records_per_s * seconds_of(self.lead_s)))
        if wanted <= self.high_records:
            return self.high_records, self.low_records
        return wanted, max(self.low_records, wanted // 2)

    def for_batches(self, most: int) -> FlowLimits:
        """Return limits with room for one batch of at most `most` rows beside the one in work. Limits that the user
        chose are kept."""
        if most == 0 or self != FlowLimits():
            return self
        high = max(self.high_records, 2 * most)
        return replace(
            self,
            high_records=high,
            low_records=max(self.low_records, most),
            most_records=max(self.most_records, high),
            total_records=max(self.total_records, 10 * high),
        )


class HandlingRate:
    """The rate at which a partition is handled while it has records: the best of about the last second.

    Time without records does not count. Otherwise a pause that was too long would lower the rate from which pauses are
    computed, and the next pause would come sooner.
    """

    __slots__ = ("_counted", "_idle_since_ms", "_sample", "_since_ms", "_window_ms")

    _FIRST_MS = 5
    """The first sample is taken early, because the watermarks depend on it, and the next one soon: the first runs of a
    process are slow."""
    _WINDOW_MS = 100

    def __init__(self, now_ms: int) -> None:
        self._sample: float | None = None
        self._counted = 0
        self._window_ms = self._FIRST_MS
        self._since_ms = now_ms
        self._idle_since_ms: int | None = now_ms

    @property
    def records_per_s(self) -> float | None:
        """Records per second; None until enough were handled."""
        return self._sample

    def came(self, now_ms: int) -> None:
        """Note that the partition has records."""
        if self._idle_since_ms is not None:
            self._since_ms += now_ms - self._idle_since_ms
            self._idle_since_ms = None

    def finished(self, records: int, now_ms: int, *, is_idle: bool) -> None:
        """Count finished records. `is_idle`: the partition has no more."""
        self._counted += records
        passed_ms = now_ms - self._since_ms
        if passed_ms >= self._window_ms:
            self._window_ms = min(2 * self._window_ms, self._WINDOW_MS)
            self._sample = max(self._counted * 1_000 / passed_ms, (self._sample or 0) * 0.9)
            self._counted = 0
            self._since_ms = now_ms
        if is_idle and self._idle_since_ms is None:
            self._idle_since_ms = now_ms


class PauseReason(Enum):
    """Why a partition is paused."""

    FULL = "full"
    USER = "user"
    STOPPED = "stopped"
    DRAIN = "drain"
    NOT_DUE = "not due"
    METADATA = "metadata"
    START = "start"


class FlowControl:
    """The pause state of the assigned partitions. Call `observe` when a buffer has changed, then `changes`."""

    __slots__ = (
        "_full",
        "_over_since",
        "_reasons",
        "_sizes",
        "_to_pause",
        "_to_resume",
        "_total_bytes",
        "_total_records",
        "_watched",
        "limits",
    )

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self._sizes: dict[TopicPartition, tuple[int, int]] = {}
        self._total_records = 0
        self._total_bytes = 0
        self._full: dict[TopicPartition, tuple[int, int] | None] = {}
        """Where a full partition resumes, in records and bytes; None: at its own low watermark."""
        self._reasons: dict[TopicPartition, set[PauseReason]] = {}
        self._over_since: dict[TopicPartition, int] = {}
        self._watched: dict[TopicPartition, None] = {}
        """Those that are bounded here."""
        self._to_pause: set[TopicPartition] = set()
        self._to_resume: set[TopicPartition] = set()

    def observe(
        self, partition: TopicPartition, *, records: int, size_bytes: int, now_ms: int, records_per_s: float | None = 0
    ) -> None:
        """Update with the size of a partition's buffer and the rate of its handler (None if unknown). Holds, pauses or
        resumes the partition."""
        limits = self.limits
        had_room = self.has_room
        self._watched[partition] = None
        self._count(partition, records, size_bytes)
        free_records = limits.total_records - self._total_records
        free_bytes = limits.total_bytes - self._total_bytes
        if had_room and (free_records <= 0 or free_bytes <= 0):
            self._hold_others(partition, now_ms)
        high_records, low_records = limits.watermarks(records_per_s or 0)
        is_over = records >= high_records or size_bytes >= limits.high_bytes
        is_crowded = records > 0 and (records >= free_records or size_bytes >= free_bytes)
        if records_per_s is None and not (self._full or is_crowded or size_bytes >= limits.high_bytes):
            hold_ms = _FIRST_HOLDS * limits.hold_ms  # it may be fast
        else:
            hold_ms = limits.hold_ms
        if partition in self._full:
            resumes_at = self._full[partition]
            low_records, low_bytes = (low_records, limits.low_bytes) if resumes_at is None else resumes_at
            if records <= low_records and size_bytes <= low_bytes and not is_crowded:
                self.resume(partition, PauseReason.FULL)
        elif not is_over and not is_crowded:
            self._over_since.pop(partition, None)
        elif self._hold(partition, now_ms, hold_ms) and not is_over:
            self._full[partition] = (records // 2, size_bytes // 2)

    def _hold(self, partition: TopicPartition, now_ms: int, hold_ms: int) -> bool:
        """Hold the partition; pause it when it was held for `hold_ms`. Returns whether it was paused."""
        is_enough = now_ms - self._over_since.setdefault(partition, now_ms) >= hold_ms
        if is_enough:
            del self._over_since[partition]
            self.pause(partition, PauseReason.FULL)
        return is_enough

    def _hold_others(self, partition: TopicPartition, now_ms: int) -> None:
        """Hold the other partitions with records, because the room of all is used up."""
        for other in self._watched:
            records, size_bytes = self._sizes[other]
            is_asked_for = records > 0 and other != partition and other not in self._full
            if is_asked_for and self._hold(other, now_ms, self.limits.hold_ms):
                self._full[other] = (records // 2, size_bytes // 2)

    def count(self, partition: TopicPartition, *, records: int, size_bytes: int) -> None:
        """Update with the size of a buffer that counts towards the total, and has no bound of its own."""
        self._watched.pop(partition, None)
        self._count(partition, records, size_bytes)

    def _count(self, partition: TopicPartition, records: int, size_bytes: int) -> None:
        before_records, before_bytes = self._sizes.get(partition, (0, 0))
        self._total_records += records - before_records
        self._total_bytes += size_bytes - before_bytes
        self._sizes[partition] = (records, size_bytes)

    @property
    def has_room(self) -> bool:
        """True while all partitions together hold less than they may."""
        return self._total_records < self.limits.total_records and self._total_bytes < self.limits.total_bytes

    @property
    def free_bytes(self) -> int:
        """The free bytes of all partitions together; negative while they hold too much."""
        return self.limits.total_bytes - self._total_bytes

    @property
    def buffered(self) -> tuple[int, int]:
        """Records and bytes that all partitions hold together."""
        return self._total_records, self._total_bytes

    @property
    def has_full(self) -> bool:
        """True if a partition is paused because it is full."""
        return bool(self._full)

    @property
    def held(self) -> Iterable[TopicPartition]:
        """Partitions over their high watermark that are not paused yet: observe them again before the next poll."""
        return self._over_since.keys()

    def pause(self, partition: TopicPartition, reason: PauseReason) -> None:
        reasons = self._reasons.setdefault(partition, set())
        if not reasons:
            if partition in self._to_resume:
                self._to_resume.discard(partition)
            else:
                self._to_pause.add(partition)
        reasons.add(reason)
        if reason is PauseReason.FULL:
            self._full.setdefault(partition, None)

    def resume(self, partition: TopicPartition, reason: PauseReason) -> None:
        reasons = self._reasons.get(partition)
        if reasons is None or reason not in reasons:
            return
        reasons.discard(reason)
        if reason is PauseReason.FULL:
            self._full.pop(partition, None)
        if not reasons:
            del self._reasons[partition]
            if partition in self._to_pause:
                self._to_pause.discard(partition)
            else:
                self._to_resume.add(partition)

    def is_paused(self, partition: TopicPartition) -> bool:
        return partition in self._reasons

    def is_paused_for(self, partition: TopicPartition, reason: PauseReason) -> bool:
        return reason in self._reasons.get(partition, ())

    def forget(self, partition: TopicPartition) -> None:
        """Drop a revoked partition. The client drops its pause state too."""
        self._reasons.pop(partition, None)
        self._over_since.pop(partition, None)
        self._full.pop(partition, None)
        self.count(partition, records=0, size_bytes=0)
        del self._sizes[partition]
        self._to_pause.discard(partition)
        self._to_resume.discard(partition)

    def changes(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Return the partitions that the client is to pause, and those to resume, since the last call."""
        if not self._to_pause and not self._to_resume:
            return [], []
        to_pause, to_resume = sorted(self._to_pause), sorted(self._to_resume)
        self._to_pause.clear()
        self._to_resume.clear()
        return to_pause, to_resume
