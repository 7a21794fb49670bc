"""The records of a partition that may be handled at the same time: one class per ordering.

    by partition   one run at a time; a record that waits for its retry holds the partition
    by key         many runs at a time, no key in two of them; a waiting record holds its key; null keys are free
    unordered      many runs at a time; nothing holds anything

Records are put in, and leave through `take`. Their partition or key then stays busy until `end_run`. Records that
failed are held (`hold`, later `retry` or `release`) or dropped. They are held in groups, because a batch that failed is
delivered again as a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import chain
from typing import Any, ClassVar

from ottla.consumer.model.rows import Rows
from ottla.consumer.model.run import AnyRecord
from ottla.consumer.partitions.waiting_retries import KeyedRetries, WaitingRetries, keys_of


class Ordering(Enum):
    """Which order is kept while handlers run side by side."""

    PARTITION = "partition"
    """Records of a partition are handled one after another."""
    KEY = "key"
    """Records of one key are handled one after another; other keys go on side by side."""
    UNORDERED = "unordered"
    """Nothing waits for anything else."""


class Lanes(ABC):
    """The records of one partition that wait for a worker."""

    __slots__ = ("_buffer", "_retries")

    keep_order: ClassVar[bool] = False
    """Whether the offsets of a run ascend, apart from retries. With several runs in flight, records that one run
    returns or frees precede others regardless of their offsets."""

    def __init__(self) -> None:
        self._buffer: deque[AnyRecord] = deque()
        self._retries = WaitingRetries()

    def put(self, records: Iterable[AnyRecord]) -> None:
        """Put new records from the client, in offset order, behind all others."""
        self._buffer.extend(records)

    def put_first(self, records: Sequence[AnyRecord]) -> None:
        """Put records that no run has in front of all others, also of those that are retried."""
        self._buffer.extendleft(reversed(records))

    @property
    @abstractmethod
    def is_ready(self) -> bool:
        """True if `take` may return records."""

    @property
    def has_retries(self) -> bool:
        """True if a group is to be delivered again now."""
        return bool(self._retries)

    @property
    def waiting(self) -> int:
        """The largest number of records that `take` could return."""
        return len(self._buffer) + self._retries.records

    @abstractmethod
    def take(self, limit: int, limit_bytes: int | None = None) -> Sequence[AnyRecord]:
        """Return the records of the next run: at most `limit`, and no more once they are `limit_bytes` together.

        A group to be retried comes alone, whatever its size. Empty when all records wait for others.
        """

    @abstractmethod
    def end_run(self, records: Sequence[AnyRecord], untouched: Sequence[AnyRecord]) -> None:
        """End the run over `records`. Call `hold` for its failed records first; `untouched` ones go back in order."""

    def hold(self, group: Sequence[AnyRecord]) -> None:
        """Hold failed records for their retry, with the later records that the ordering makes wait."""
        return

    def retry(self, group: Sequence[AnyRecord]) -> None:
        """Deliver a held group again: it comes next, alone, and before groups with later records."""
        # Several wait when a batch is delivered again record by record: one that fails once more, and is retried once
        # more, must not end up behind those that follow it.
        self._retries.add(group)

    def release(self, group: Sequence[AnyRecord]) -> None:
        """Release the records behind a held group, which was settled in another way."""
        return


class PartitionLanes(Lanes):
    """Strict order: one run at a time.

    Records wait in the stretches in which they were put. A stretch is cut and joined as a whole, so that a record that
    waits costs nothing by itself.
    """

    __slots__ = ("_held", "_is_running", "_stretches", "_waiting")

    keep_order: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._is_running = False
        self._held = 0
        self._stretches: deque[Sequence[AnyRecord]] = deque()
        self._waiting = 0

    @property
    def is_ready(self) -> bool:
        is_free = not self._is_running and self._held == 0
        return is_free and bool(self._retries or self._stretches)

    @property
    def waiting(self) -> int:
        return self._waiting + self._retries.records

    def put(self, records: Iterable[AnyRecord]) -> None:
        stretch = records if isinstance(records, Rows) else list(records)
        if stretch:
            self._stretches.append(stretch)
            self._waiting += len(stretch)

    def take(self, limit: int, limit_bytes: int | None = None) -> Sequence[AnyRecord]:
        if not self.is_ready:
            return []
        self._is_running = True
        if self._retries:
            return self._retries.pop()
        if limit_bytes is not None:
            limit = self._count_within(limit, limit_bytes)
        first = self._cut(limit)
        count = len(first)
        others: list[Any] = []
        # Columns are not joined with records that were made before (after a restart, out of a retry topic).
        are_rows = isinstance(first, Rows)
        while count < limit and self._stretches and isinstance(self._stretches[0], Rows) is are_rows:
            others.append(self._cut(limit - count))
            count += len(others[-1])
        self._waiting -= count
        if not others:
            return first
        return first.joined(others) if isinstance(first, Rows) else [*chain(first, *others)]

    def _cut(self, limit: int) -> Sequence[AnyRecord]:
        """Remove and return the first `limit` records of the first stretch, or all of it."""
        stretch = self._stretches[0]
        if len(stretch) <= limit:
            return self._stretches.popleft()
        taken = stretch[:limit]
        if isinstance(stretch, list):
            del stretch[:limit]
        else:
            self._stretches[0] = stretch[limit:]
        return taken

    def _count_within(self, limit: int, limit_bytes: int) -> int:
        """Return how many records a run of so many bytes has. Rows are counted by number alone."""
        count = size_bytes = 0
        for stretch in self._stretches:
            if isinstance(stretch, Rows):
                return limit
            for record in stretch:
                if count >= limit or size_bytes >= limit_bytes:
                    return count
                size_bytes += record_size(record)
                count += 1
        return count

    def put_first(self, records: Sequence[AnyRecord]) -> None:
        if not records:
            return
        if self._retries:
            Lanes.retry(self, records)  # what waits for its retry is older than the rest, and may be younger than they
            return
        self._stretches.appendleft(records if isinstance(records, Rows) else list(records))
        self._waiting += len(records)

    def end_run(self, records: Sequence[AnyRecord], untouched: Sequence[AnyRecord]) -> None:
        self._is_running = False
        self.put_first(untouched)

    def hold(self, group: Sequence[AnyRecord]) -> None:
        self._held += 1

    def retry(self, group: Sequence[AnyRecord]) -> None:
        self._held -= 1
        super().retry(group)

    def release(self, group: Sequence[AnyRecord]) -> None:
        self._held -= 1


class KeyLanes(Lanes):
    """Order per key. A key is busy while a run or a held record has it; its later records park behind it."""

    __slots__ = ("_busy", "_held", "_released", "_retrying")

    _retries: KeyedRetries

    def __init__(self) -> None:
        super().__init__()
        self._retries = KeyedRetries()
        self._busy: dict[bytes, list[AnyRecord]] = {}
        self._held: Counter[bytes] = Counter()
        """How many held groups have the key: an outage, or deliveries that fail late, fail several of one run."""
        self._retrying: set[bytes] = set()
        """Keys of the retries that are in a run: the next retry of such a key waits for its end."""
        self._released: deque[AnyRecord] = deque()

    @property
    def is_ready(self) -> bool:
        return bool(self._released or self._buffer) or self._retries.is_ready(self._held.keys(), self._retrying)

    @property
    def waiting(self) -> int:
        return super().waiting + len(self._released)

    def put_first(self, records: Sequence[AnyRecord]) -> None:
        self._released.extendleft(reversed(self._put_behind_their_keys(records)))

    @property
    def parked(self) -> int:
        """Records that wait for an earlier record of their key."""
        return sum(map(len, self._busy.values()))

    def take(self, limit: int, limit_bytes: int | None = None) -> Sequence[AnyRecord]:
        retry = self._retries.pop_ready(self._held.keys(), self._retrying) if self._retries else None
        if retry is not None:
            self._retrying |= keys_of(retry)
            return retry
        run: list[AnyRecord] = []
        own_keys: set[bytes] = set()
        size_bytes = 0
        for source in (self._released, self._buffer):
            while source and len(run) < limit and (limit_bytes is None or size_bytes < limit_bytes):
                record = source.popleft()
                key = record.raw_key
                parked = None if key is None else self._busy.get(key)
                if key is None:
                    pass
                elif parked is None:
                    self._busy[key] = []
                    own_keys.add(key)
                elif key not in own_keys:
                    parked.append(record)
                    continue
                run.append(record)
                if limit_bytes is not None:
                    size_bytes += record_size(record)
        return run

    def _put_behind_their_keys(self, records: Sequence[AnyRecord]) -> list[AnyRecord]:
        """Put records that were taken before the later ones of their keys that are retried or wait. Returns those whose
        keys have none: they come first."""
        back: list[AnyRecord] = []
        behind: dict[bytes, list[AnyRecord]] = {}
        for record in records:
            key = record.raw_key
            if key is not None and key in self._retries.keys:
                super().retry([record])  # It is older than the records of its key that wait for their retry.
            elif key is not None and key in self._held:
                behind.setdefault(key, []).append(record)
            else:
                back.append(record)
        for key, waiting in behind.items():
            self._busy[key][:0] = waiting
        return back

    def end_run(self, records: Sequence[AnyRecord], untouched: Sequence[AnyRecord]) -> None:
        back = self._put_behind_their_keys(untouched)
        freed: list[AnyRecord] = []
        keys = keys_of(records)
        self._retrying -= keys
        self._retries.unblock(keys)
        for key in keys:
            if key not in self._held and key not in self._retries.keys:
                freed.extend(self._busy.pop(key, ()))
        # Records that were taken come before those that waited behind them, and both before records that were not
        # looked at yet: there may be later records of the same keys among those.
        first = sorted(back + freed, key=lambda record: record.offset)
        self._released.extendleft(reversed(first))

    def hold(self, group: Sequence[AnyRecord]) -> None:
        self._held.update(keys_of(group))

    def retry(self, group: Sequence[AnyRecord]) -> None:
        # The keys stay busy: the end of the retry's own run frees them.
        self._unhold(group)
        super().retry(group)

    def release(self, group: Sequence[AnyRecord]) -> None:
        for key in self._unhold(group) - self._retrying:
            if key not in self._retries.keys:
                self._released.extendleft(reversed(self._busy.pop(key, [])))

    def _unhold(self, group: Sequence[AnyRecord]) -> set[bytes]:
        """Stop holding a group. Returns its keys that no other group holds."""
        free: set[bytes] = set()
        for key in keys_of(group):
            if self._held[key] > 1:
                self._held[key] -= 1
            else:
                del self._held[key]
                free.add(key)
        self._retries.unblock(free)
        return free


class UnorderedLanes(Lanes):
    """No order: whatever is there."""

    __slots__ = ()

    @property
    def is_ready(self) -> bool:
        return bool(self._retries or self._buffer)

    def take(self, limit: int, limit_bytes: int | None = None) -> Sequence[AnyRecord]:
        if self._retries:
            return self._retries.pop()
        return _pop(self._buffer, limit, limit_bytes)

    def end_run(self, records: Sequence[AnyRecord], untouched: Sequence[AnyRecord]) -> None:
        self._buffer.extendleft(reversed(untouched))


def lanes_for(ordering: Ordering) -> Lanes:
    """Empty lanes with the given ordering."""
    kinds: dict[Ordering, type[Lanes]] = {
        Ordering.PARTITION: PartitionLanes,
        Ordering.KEY: KeyLanes,
        Ordering.UNORDERED: UnorderedLanes,
    }
    return kinds[ordering]()


def retry_lanes_for(ordering: Ordering) -> Lanes:
    """Empty lanes for a retry topic of a handler with this ordering. What promises order per partition keeps the order
    of each key there: a record that waits must not hold the keys that have nothing to do with it."""
    return lanes_for(Ordering.KEY if ordering is Ordering.PARTITION else ordering)


def record_size(record: AnyRecord) -> int:
    """Return the cost of a record in bytes, for turns counted in bytes; an empty one costs 1."""
    return len(record.raw_value or b"") + len(record.raw_key or b"") + 1


def _pop(buffer: deque[AnyRecord], limit: int, limit_bytes: int | None) -> list[AnyRecord]:
    if limit_bytes is None:
        if len(buffer) <= limit:
            records = list(buffer)
            buffer.clear()
            return records
        popleft = buffer.popleft
        return [popleft() for _ in range(limit)]
    records = []
    size_bytes = 0
    while buffer and len(records) < limit and size_bytes < limit_bytes:
        record = buffer.popleft()
        records.append(record)
        size_bytes += record_size(record)
    return records
