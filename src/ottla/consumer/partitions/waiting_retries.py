"""Groups of failed records that are due and wait for their next delivery: the group with the earliest record first.

A group is what failed together: one record, or the records of a batch. All operations cost O(log n) for each record of
a group: an outage behind a handler makes thousands of groups wait at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from heapq import heappop, heappush
from itertools import count

from ottla.consumer.model.rows import Rows
from ottla.consumer.model.run import AnyRecord

_Entry = tuple[int, int, Sequence[AnyRecord]]
"""(offset of the first record, order of arrival, group). No two entries arrive at once, so groups are not compared."""


class WaitingRetries:
    """Groups in the order of their first offsets; of equal offsets the one that was added first."""

    __slots__ = ("_arrivals", "_heap", "records")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._arrivals = count()
        self.records = 0
        """How many records all groups have together."""

    def __bool__(self) -> bool:
        return self.records > 0

    def add(self, group: Sequence[AnyRecord]) -> None:
        """Add a group, which is not empty."""
        heappush(self._heap, self._entry(group))
        self.records += len(group)

    def pop(self) -> Sequence[AnyRecord]:
        """Remove and return the first group. Raises `IndexError` if none waits."""
        group = heappop(self._heap)[2]
        self.records -= len(group)
        return group

    def _entry(self, group: Sequence[AnyRecord]) -> _Entry:
        return group[0].offset, next(self._arrivals), group if isinstance(group, Rows) else list(group)


class KeyedRetries(WaitingRetries):
    """Groups of which one may be delivered when it is the first of each of its keys, and none of these is blocked.

    The heap has the groups that may be ready. One that turns out not to be is dropped from it; it comes back when the
    group before it is removed, or when one of its keys is not blocked any longer. Records without a key wait for none.
    """

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        super().__init__()
        self._by_key: dict[bytes, list[_Entry]] = {}
        """Key → a heap of the groups that have it."""

    @property
    def keys(self) -> Set[bytes]:
        """The keys of all groups that wait."""
        return self._by_key.keys()

    def add(self, group: Sequence[AnyRecord]) -> None:
        entry = self._entry(group)
        self.records += len(group)
        for key in keys_of(group):
            heappush(self._by_key.setdefault(key, []), entry)
        heappush(self._heap, entry)

    def unblock(self, keys: Iterable[bytes]) -> None:
        """Note that the first groups of these keys may be ready."""
        for key in keys:
            entries = self._by_key.get(key)
            if entries:
                heappush(self._heap, entries[0])

    def is_ready(self, *blocked: Set[bytes]) -> bool:
        """Return whether a group waits that is the first of all its keys and has no key in `blocked`."""
        while self._heap:
            _, arrival, group = self._heap[0]
            if all(self._is_next(key, arrival, blocked) for key in keys_of(group)):
                return True
            heappop(self._heap)
        return False

    def pop_ready(self, *blocked: Set[bytes]) -> Sequence[AnyRecord] | None:
        """Remove and return the first group that is ready, None if there is none.

        Call `unblock` with its keys once its delivery has ended.
        """
        if not self.is_ready(*blocked):
            return None
        group = self.pop()
        for key in keys_of(group):
            entries = self._by_key[key]
            heappop(entries)
            if not entries:
                del self._by_key[key]
        return group

    def _is_next(self, key: bytes, arrival: int, blocked: Iterable[Set[bytes]]) -> bool:
        entries = self._by_key.get(key)
        return entries is not None and entries[0][1] == arrival and not any(key in each for each in blocked)


def keys_of(records: Iterable[AnyRecord]) -> set[bytes]:
    """Return the keys of the records that have one."""
    return {record.raw_key for record in records if record.raw_key is not None}
