"""A partition and its retry partitions as a chain of levels, and the keys of the records in each level.

Level 0 is a partition of the topic itself, level n the partition of the same number in the n-th retry topic. Each level
is a log, and records move from a level to a later one only. One rule keeps the order of a key:

    a record is handled at its level only if no record of its key is in a later level;
    otherwise it waits at its level until none is (`RetryLevel.followers`), or is written behind them, unhandled.

A record is *expected* in a level from the decision to write it there, *present* from when it was read back, and gone
when it is settled. `RetryChain` counts the expected and the present records of each key and level. After an assignment
the content of the retry topics is unknown, so a level is not handled until all later levels have been read to the
end that they had at the assignment (`RetryLevel.is_restored`).

The writes of one key to later levels are sequential: each starts when the one before is acknowledged. A write that
fails and is repeated must not land behind its successor. This holds across levels too: a record that asked for a long
delay skips a level, and if its write were lost, its successor in the level between would be handled first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ottla.consumer.model.run import AnyRecord
from ottla.records import TopicPartition

W = TypeVar("W")


class RetryLevel:
    """One partition's place in its chain, for one assignment."""

    __slots__ = (
        "chain",
        "due_ms",
        "end",
        "followers",
        "impatient",
        "index",
        "is_restored",
        "refetch_from",
        "restored_to",
        "timer_ms",
        "waiting",
    )

    def __init__(self, chain: RetryChain, index: int) -> None:
        self.chain = chain
        self.index = index
        self.waiting: deque[tuple[int, AnyRecord]] = deque()
        """Records that are not due, each with the time when it is (monotonic), in offset order."""
        self.followers: dict[bytes, list[AnyRecord]] = {}
        """Records that wait here, by key, until no record of their key is in a later level."""
        self.impatient: set[bytes] = set()
        """Keys whose records do not wait any more: they are written to the next level until none is in a later one."""
        self.due_ms = 0
        """When the last record that was released fell due."""
        self.timer_ms: int | None = None
        self.end: int | None = None
        """The end of the log at the assignment; None until it is looked up."""
        self.restored_to: int | None = None
        """The offset up to which records have been read; None before the first."""
        self.is_restored = index == 0 or not chain.keeps_key_order
        self.refetch_from: int | None = None
        """The first record of which only the key was kept while restoring, because the buffer was full."""

    @property
    def is_open(self) -> bool:
        """True if records may be handled: all later levels are assigned to this member and restored."""
        chain = self.chain
        return not chain.keeps_key_order or all(
            level is not None and level.is_restored for level in chain.levels[self.index + 1 :]
        )

    @property
    def absent(self) -> list[TopicPartition]:
        """The later partitions of the chain that are not assigned to this member."""
        chain = self.chain
        if not chain.keeps_key_order:
            return []
        later = enumerate(chain.levels[self.index + 1 :], self.index + 1)
        return [chain.partition_of(index) for index, level in later if level is None]

    @property
    def not_due(self) -> int:
        """The number of records that wait until they are due, or for an earlier record of their key."""
        return len(self.waiting) + sum(map(len, self.followers.values()))

    def is_waiting(self, offset: int) -> bool:
        """Return whether the oldest unfinished record, the one at `offset`, is among them."""
        if self.waiting and self.waiting[0][1].offset == offset:
            return True
        return any(followers[0].offset == offset for followers in self.followers.values())

    def take_due(self, now_ms: int) -> list[AnyRecord]:
        """Remove and return the records that are due, in order."""
        due: list[AnyRecord] = []
        while self.waiting and self.waiting[0][0] <= now_ms:
            self.due_ms, record = self.waiting.popleft()
            due.append(record)
        return due


class RetryChain:
    """The chain of one partition. Records without a key have no order and are never counted.

    `on_freed` is called with a key when a level has no record of it any more."""

    __slots__ = ("_expected", "_on_freed", "_present", "_topics", "keeps_key_order", "levels", "origin", "writes")

    def __init__(
        self,
        origin: TopicPartition,
        retry_topics: Iterable[str],
        *,
        keeps_key_order: bool,
        on_freed: Callable[[RetryChain, bytes], None] = lambda chain, key: None,
    ) -> None:
        self._on_freed = on_freed
        self.origin = origin
        self.keeps_key_order = keeps_key_order
        self._topics = (origin.topic, *retry_topics)
        self.levels: list[RetryLevel | None] = [None] * len(self._topics)
        self.writes: KeyedWrites[bytes] = KeyedWrites()
        self._expected: list[Counter[bytes]] = []
        self._present: list[Counter[bytes]] = []
        self.forget_keys()

    def partition_of(self, index: int) -> TopicPartition:
        return TopicPartition(self._topics[index], self.origin.partition)

    def partitions(self) -> list[TopicPartition]:
        return [self.partition_of(index) for index in range(len(self._topics))]

    def forget_keys(self) -> None:
        """Drop all counts: a partition of the chain is revoked or restarted, and they are no longer right."""
        self._expected = [Counter() for _ in self._topics]
        self._present = [Counter() for _ in self._topics]
        self.writes = KeyedWrites()

    def is_held(self, key: bytes | None, index: int) -> bool:
        """Return whether a record of this key is in a level after `index`."""
        return bool(self.levels_with(key, index))

    def levels_with(self, key: bytes | None, index: int) -> list[int]:
        """Return the levels after `index` that have a record of this key, or expect one."""
        if key is None or not self.keeps_key_order:
            return []
        later = range(index + 1, len(self._topics))
        return [level for level in later if key in self._expected[level] or key in self._present[level]]

    def holds_any(self, index: int) -> bool:
        """Return whether `is_held` may be true of any key."""
        later = range(index + 1, len(self._topics))
        return self.keeps_key_order and any(self._expected[level] or self._present[level] for level in later)

    def expect(self, key: bytes | None, index: int) -> None:
        """Count a record of this key that is being written to level `index`."""
        if key is not None and self.keeps_key_order:
            self._expected[index][key] += 1

    def expect_no_more(self, key: bytes | None, index: int) -> None:
        """Take back one `expect`: the record is not written to level `index` after all."""
        if key is not None and self.keeps_key_order and _take_one(self._expected[index], key):
            self._on_freed(self, key)

    def arrive(self, key: bytes | None, index: int) -> None:
        """Count a record of this key that was read in level `index`."""
        if key is not None and self.keeps_key_order:
            _take_one(self._expected[index], key)
            self._present[index][key] += 1

    def settle(self, key: bytes | None, index: int) -> None:
        """Take back one `arrive`: the record is settled."""
        if key is not None and self.keeps_key_order and _take_one(self._present[index], key):
            self._on_freed(self, key)


class KeyedWrites(Generic[W]):
    """The order of writes: sequential per key, in the order of the requests."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[W, deque[object]] = {}

    def ask(self, key: W, write: object) -> bool:
        """Queue `write`. Returns whether it may start now."""
        queue = self._queues.setdefault(key, deque())
        queue.append(write)
        return len(queue) == 1

    def acknowledged(self, key: W) -> object | None:
        """Remove the first write of this key, which is done. Returns the write that may start now, if any."""
        queue = self._queues.get(key)
        if queue is None:
            return None
        queue.popleft()
        if queue:
            return queue[0]
        del self._queues[key]
        return None


def _take_one(counter: Counter[bytes], key: bytes) -> bool:
    """Count one less of `key`. Returns whether none is left."""
    left = counter.get(key, 0) - 1
    if left > 0:
        counter[key] = left
        return False
    counter.pop(key, None)
    return True
