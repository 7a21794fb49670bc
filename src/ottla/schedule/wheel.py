"""Maps due times to partitions of a schedule topic.

A partition is a slot. The slots of a level take turns: slot `i` of `n` holds the windows k with `k % n == i`, each
`width_ms` long. There are two levels, of 15 minutes and of 6 hours. What is due later than the coarse level reaches is
put into the farthest slot, and is moved on from there when that slot's window comes.

A slot is open from `LEAD_MS` before its window until one width after its end, so that a sender whose record was
delayed, or whose clock differs, is still in time. A slot takes records of its next window only when two more widths are
over: what is left in a slot after it closed belongs to its next window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

LEAD_MS: Final = 60_000
_BEHIND: Final = 3
"""Slot widths of a turn that accept no new message: the running window, the one in which its slot stays open, and one
more, so that nothing is written to a slot while it is emptied."""


class Level(NamedTuple):
    """Slots of one width. `first` is the partition of the first slot."""

    first: int
    slots: int
    width_ms: int

    @property
    def horizon_ms(self) -> int:
        """Return how far ahead a record of this level may be due."""
        return (self.slots - _BEHIND) * self.width_ms


class Reach(NamedTuple):
    """The level for a delay, and how far ahead in it: the current slot is `first + (now_ms + ahead_ms) // width_ms %
    slots`.
    """

    first: int
    slots: int
    width_ms: int
    ahead_ms: int

    def span(self, now_ms: int) -> tuple[int, int, int]:
        """Return the current slot and its window [from, until) in milliseconds since the epoch."""
        turn = (now_ms + self.ahead_ms) // self.width_ms
        from_ms = turn * self.width_ms - self.ahead_ms
        return self.first + turn % self.slots, from_ms, from_ms + self.width_ms


@dataclass(frozen=True, slots=True)
class Wheel:
    """Geometry of a schedule topic, the same for all writers and readers."""

    levels: tuple[Level, ...] = (Level(0, 32, 15 * 60_000), Level(32, 32, 6 * 3_600_000))

    @property
    def partitions(self) -> int:
        return sum(level.slots for level in self.levels)

    def slot_for(self, due_ms: int, now_ms: int) -> int:
        """Return the partition for a record: of the finest level that reaches so far, else the farthest slot."""
        # Terse: it is called for each send.
        in_ms = due_ms - now_ms
        if in_ms < 0:
            in_ms, due_ms = 0, now_ms
        for first, slots, width_ms in self.levels:
            if in_ms <= (slots - _BEHIND) * width_ms:
                return first + due_ms // width_ms % slots
        return _slot(self.levels[-1], now_ms + self.levels[-1].horizon_ms)

    def reach_of(self, delay_ms: int) -> Reach:
        """Return the level and distance for a delay, independent of the send time."""
        for level in self.levels:
            if delay_ms <= level.horizon_ms:
                return Reach(*level, delay_ms)
        return Reach(*self.levels[-1], self.levels[-1].horizon_ms)

    def closes_ms(self, partition: int, now_ms: int) -> int | None:
        """Return when the slot closes; None if it is closed."""
        level, index = self._place(partition)
        for window in range(now_ms // level.width_ms - 1, (now_ms + LEAD_MS) // level.width_ms + 1):
            if window % level.slots == index:
                return (window + 2) * level.width_ms
        return None

    def settled_ms(self, partition: int, now_ms: int) -> int:
        """Return when the slot should last have been empty. An older record was left over."""
        level, index = self._place(partition)
        last = now_ms // level.width_ms - 2
        window = last - (last - index) % level.slots
        return (window + 2) * level.width_ms

    def belongs(self, partition: int, due_ms: int, now_ms: int) -> bool:
        """Return whether a record with a later due time may stay in the slot: the open window or the next one."""
        closes_ms = self.closes_ms(partition, now_ms)
        if closes_ms is not None and due_ms < closes_ms:
            return True
        level, _ = self._place(partition)
        return due_ms - now_ms <= level.horizon_ms and _slot(level, due_ms) == partition

    def _place(self, partition: int) -> tuple[Level, int]:
        for level in self.levels:
            if partition < level.first + level.slots:
                return level, partition - level.first
        raise ValueError(f"partition: found {partition}, wanted less than {self.partitions}")


WHEEL: Final = Wheel()


def _slot(level: Level, due_ms: int) -> int:
    return level.first + (due_ms // level.width_ms) % level.slots
