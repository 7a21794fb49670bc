"""One partition and its retry topics as a line, and the keys that are under way in it.

A line has stages: stage 0 is a partition of the topic itself, stage n the partition of the same number in the n-th
retry topic. Records only move down the line, and each stage is a log. So the order of a key is kept by one rule:

    a record of a key is handled at its stage only when no record of that key is in a later stage;
    else it waits at its stage until none is (`Stage.followers`), or is passed on, unhandled, behind them.

Which keys are in which stage is counted here: a record is *expected* in a stage from the decision to write it there,
*present* from when it was read back, and gone when it is settled. After an assignment nothing is known of what is in
the retry topics, so a stage is not handled before all later ones were read once up to their end (`Stage.is_restored`).

What is written to later stages for one key is written one after the other, each when the one before is acknowledged: a
write that fails and is tried again must not land behind its successor. That holds across stages too: a record that
asked for a long delay skips a stage, and its successor in the stage between would come first if its write were lost.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from ottla.consumer.model.run import AnyRecord
from ottla.records import TopicPartition

W = TypeVar("W")


class Stage:
    """One partition's place in its line, for one assignment."""

    __slots__ = (
        "due_ms",
        "end",
        "followers",
        "impatient",
        "index",
        "is_restored",
        "line",
        "looked_to",
        "refetch_from",
        "timer_ms",
        "waiting",
    )

    def __init__(self, line: RetryLine, index: int) -> None:
        self.line = line
        self.index = index
        self.waiting: deque[tuple[int, AnyRecord]] = deque()
        """Records that are not due, each with the time it is: first in, first out."""
        self.followers: dict[bytes, list[AnyRecord]] = {}
        """By key, records that wait here until no record of their key is in a later stage."""
        self.impatient: set[bytes] = set()
        """Keys whose records wait no longer: they are passed on until no record of the key is in a later stage."""
        self.due_ms = 0
        """When the last one that was let go fell due."""
        self.timer_ms: int | None = None
        self.end: int | None = None
        """Where the log ended when the partition was assigned; None until somebody looked."""
        self.looked_to: int | None = None
        """Up to where its records have been seen; None before the first."""
        self.is_restored = index == 0 or not line.keeps_key_order
        self.refetch_from: int | None = None
        """The first record that was only looked at while restoring, because the buffer was full."""

    @property
    def is_open(self) -> bool:
        """Whether its records may be handled: the later stages are ours, and known."""
        line = self.line
        return not line.keeps_key_order or all(
            stage is not None and stage.is_restored for stage in line.stages[self.index + 1 :]
        )

    @property
    def absent(self) -> list[TopicPartition]:
        """The later partitions of the line that are not assigned to this member."""
        line = self.line
        if not line.keeps_key_order:
            return []
        behind = enumerate(line.stages[self.index + 1 :], self.index + 1)
        return [line.partition_of(index) for index, stage in behind if stage is None]

    @property
    def not_due(self) -> int:
        """How many records wait for their time, or for that of an earlier record of their key."""
        return len(self.waiting) + sum(map(len, self.followers.values()))

    def is_waiting(self, offset: int) -> bool:
        """Whether the oldest unfinished record, which is at this offset, waits so."""
        if self.waiting and self.waiting[0][1].offset == offset:
            return True
        return any(followers[0].offset == offset for followers in self.followers.values())

    def take_due(self, now_ms: int) -> list[AnyRecord]:
        """The records whose time has come, in order."""
        due: list[AnyRecord] = []
        while self.waiting and self.waiting[0][0] <= now_ms:
            self.due_ms, record = self.waiting.popleft()
            due.append(record)
        return due


class RetryLine:
    """The line of one partition. Null keys have no order, and are never counted. `on_freed` is called when a stage has
    no record of a key any more."""

    __slots__ = ("_expected", "_on_freed", "_present", "_topics", "keeps_key_order", "origin", "stages", "writes")

    def __init__(
        self,
        origin: TopicPartition,
        retry_topics: Iterable[str],
        *,
        keeps_key_order: bool,
        on_freed: Callable[[RetryLine, bytes], None] = lambda line, key: None,
    ) -> None:
        self._on_freed = on_freed
        self.origin = origin
        self.keeps_key_order = keeps_key_order
        self._topics = (origin.topic, *retry_topics)
        self.stages: list[Stage | None] = [None] * len(self._topics)
        self.writes: KeyedWrites[bytes] = KeyedWrites()
        self._expected: list[Counter[bytes]] = []
        self._present: list[Counter[bytes]] = []
        self.forget_keys()

    def partition_of(self, index: int) -> TopicPartition:
        return TopicPartition(self._topics[index], self.origin.partition)

    def partitions(self) -> list[TopicPartition]:
        return [self.partition_of(index) for index in range(len(self._topics))]

    def forget_keys(self) -> None:
        """A partition of the line goes away, or begins anew: what was counted holds no more."""
        self._expected = [Counter() for _ in self._topics]
        self._present = [Counter() for _ in self._topics]
        self.writes = KeyedWrites()

    def is_held(self, key: bytes | None, index: int) -> bool:
        """Whether a record of this key is under way in a later stage than `index`."""
        return bool(self.stages_with(key, index))

    def stages_with(self, key: bytes | None, index: int) -> list[int]:
        """The stages behind `index` in which a record of this key is under way."""
        if key is None or not self.keeps_key_order:
            return []
        later = range(index + 1, len(self._topics))
        return [stage for stage in later if key in self._expected[stage] or key in self._present[stage]]

    def holds_any(self, index: int) -> bool:
        """Whether `is_held` may be true of any key."""
        later = range(index + 1, len(self._topics))
        return self.keeps_key_order and any(self._expected[stage] or self._present[stage] for stage in later)

    def expect(self, key: bytes | None, index: int) -> None:
        """A record of this key will be read in stage `index`: it is being written there."""
        if key is not None and self.keeps_key_order:
            self._expected[index][key] += 1

    def expect_no_more(self, key: bytes | None, index: int) -> None:
        """A record of this key that was expected in stage `index` goes another way."""
        if key is not None and self.keeps_key_order and _take_one(self._expected[index], key):
            self._on_freed(self, key)

    def arrive(self, key: bytes | None, index: int) -> None:
        """A record of this key was read in stage `index`."""
        if key is not None and self.keeps_key_order:
            _take_one(self._expected[index], key)
            self._present[index][key] += 1

    def leave(self, key: bytes | None, index: int) -> None:
        """A record of this key that was read in stage `index` is settled."""
        if key is not None and self.keeps_key_order and _take_one(self._present[index], key):
            self._on_freed(self, key)


class KeyedWrites(Generic[W]):
    """Who may be written now: per key one at a time, in the order asked for."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[W, deque[object]] = {}

    def ask(self, key: W, letter: object) -> bool:
        """Queue `letter`. True when it may be written at once."""
        queue = self._queues.setdefault(key, deque())
        queue.append(letter)
        return len(queue) == 1

    def acknowledged(self, key: W) -> object | None:
        """The first one of this key was written. Returns the one that may be written now."""
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
