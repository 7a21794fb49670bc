"""Compares readings of groups: since when a partition stands still, and which offsets were lost unread. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.admin.facts.lag import GroupLag, PartitionLag

KEPT_MS: Final = 15 * 60_000
"""How long a group that was not read is remembered: its coordinator may be away."""


class _PartitionState:
    __slots__ = ("committed", "counted_to", "since_ms")

    def __init__(self, committed: int | None, since_ms: int, counted_to: int) -> None:
        self.committed = committed
        self.since_ms = since_ms
        """From when on it is seen with lag and at this offset."""
        self.counted_to = counted_to
        """The log's start up to which losses are counted."""


class _GroupState:
    __slots__ = ("lost", "partitions", "seen_ms")

    def __init__(self) -> None:
        self.seen_ms = 0
        self.partitions: dict[tuple[str, int], _PartitionState] = {}
        self.lost: dict[str, int] = {}


class GroupWatch:
    """Remembers each group's committed offsets of the last reading."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupState] = {}

    def take(self, groups: Iterable[GroupLag], at_ms: int) -> None:
        """Compare with the last reading."""
        for group in groups:
            state = self._groups.setdefault(group.group_id, _GroupState())
            state.seen_ms = at_ms
            before, state.partitions = state.partitions, {}
            for each in group.partitions:
                if each.is_gone:
                    continue
                place = each.topic, each.partition
                state.partitions[place] = _next(before.get(place), each, at_ms)
                lost = _lost_since(before.get(place), each)
                state.lost[each.topic] = state.lost.get(each.topic, 0) + lost
            topics = {each.topic for each in group.partitions if not each.is_gone}
            state.lost = {topic: count for topic, count in state.lost.items() if topic in topics}
        for name in [name for name, state in self._groups.items() if at_ms - state.seen_ms > KEPT_MS]:
            del self._groups[name]

    def stalled_since_ms(self, group: str, each: PartitionLag) -> int | None:
        """Return from when on a partition is seen with lag at one committed offset; None where it has no lag."""
        state = self._groups.get(group)
        found = None if state is None else state.partitions.get((each.topic, each.partition))
        return None if found is None or not each.lag or each.lag < 0 else found.since_ms

    def lost(self, group: str, topic: str) -> int:
        """Return how many offsets the group lost of a topic since it was first seen."""
        state = self._groups.get(group)
        return 0 if state is None else state.lost.get(topic, 0)


def _next(before: _PartitionState | None, each: PartitionLag, at_ms: int) -> _PartitionState:
    start = each.log_start
    counted_to = start if start is not None else (0 if before is None else before.counted_to)
    if each.lag is None:  # not known now: neither progress nor standstill
        since_ms = at_ms if before is None else before.since_ms
        committed = each.committed if before is None else before.committed
        return _PartitionState(committed, since_ms, counted_to)
    stands_still = before is not None and before.committed == each.committed and each.lag > 0
    return _PartitionState(each.committed, before.since_ms if before and stands_still else at_ms, counted_to)


def _lost_since(before: _PartitionState | None, each: PartitionLag) -> int:
    """Return how many offsets between the committed one and the log's start went since the last reading."""
    if before is None or each.log_start is None or each.committed is None:
        return 0
    return max(0, each.log_start - max(before.counted_to, each.committed))
