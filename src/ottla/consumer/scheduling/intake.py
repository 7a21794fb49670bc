"""Fetched records that the session has not taken in yet: a slice per priority and round.

Taking in records takes a while. With priorities, an urgent record may be behind thousands that were fetched with it, or
be fetched while those are taken in. So a round takes in one slice of each priority, the highest first, and the shell
polls its client again before the next round. Each priority has a slice in each round, so that none waits for a higher
one to be empty; its share of the work is decided by the turns. The session counts what waits here when it gets the
first slice of its partition, so the shell asks its client for more only while what waits fits into the free room.

Without priorities a round takes in everything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ottla.consumer.model.events import Behind
from ottla.records import TopicPartition

SLICE_RECORDS: Final = 2_000
"""Records of one priority in a round: some milliseconds of work."""


@dataclass(frozen=True, slots=True)
class Slice:
    """The next messages of a partition, for the assignment `epoch`. `behind`: what remains."""

    topic_partition: TopicPartition
    messages: Sequence[Any]
    epoch: int
    behind: Behind
    size_bytes: int = 0
    """Their size in memory: their share of the messages that were fetched together."""


@dataclass(slots=True)
class _WaitingMessages:
    epoch: int
    messages: list[Any]
    size_bytes: int
    at: int = 0


class Intake:
    """Messages (or records) that wait to be taken in, by partition. `priority_of`: the priority of each topic, 0 is the
    highest; None without priorities."""

    __slots__ = ("_by_priority", "_most", "_priority_of", "_size_bytes")

    def __init__(self, priority_of: Mapping[str, int] | None) -> None:
        self._priority_of = priority_of or {}
        self._most = None if priority_of is None else SLICE_RECORDS
        self._by_priority: dict[int, OrderedDict[TopicPartition, _WaitingMessages]] = {}
        self._size_bytes = 0

    @property
    def is_empty(self) -> bool:
        return not any(self._by_priority.values())

    def has_room(self, free_bytes: int) -> bool:
        """Return whether the client may be asked for more, while the session has room for so many bytes."""
        return self.is_empty or self._size_bytes < free_bytes

    def put(self, name: TopicPartition, messages: list[Any], *, epoch: int, size_bytes: int) -> None:
        """Add fetched messages, behind earlier ones. Messages of an older assignment are dropped. Takes the list over
        from the caller."""
        ring = self._by_priority.setdefault(self._priority_of.get(name.topic, 0), OrderedDict())
        waiting = ring.get(name)
        self._size_bytes += size_bytes
        if waiting is None or waiting.epoch != epoch:
            self._size_bytes -= 0 if waiting is None else waiting.size_bytes
            ring[name] = _WaitingMessages(epoch, messages, size_bytes)
            return
        del waiting.messages[: waiting.at]
        waiting.messages += messages
        waiting.size_bytes += size_bytes
        waiting.at = 0

    def forget(self, name: TopicPartition) -> None:
        """Drop the messages of this partition: it was revoked, or the client seeks and fetches them again."""
        for ring in self._by_priority.values():
            if (dropped := ring.pop(name, None)) is not None:
                self._size_bytes -= dropped.size_bytes

    def round(self) -> Iterator[Slice]:
        """Yield one slice of each priority, the highest first. Partitions of a priority take turns."""
        for priority in sorted(self._by_priority):
            ring = self._by_priority[priority]
            for _ in range(len(ring) if self._most is None else min(len(ring), 1)):
                yield self._next(ring)

    def _next(self, ring: OrderedDict[TopicPartition, _WaitingMessages]) -> Slice:
        name, waiting = ring.popitem(last=False)
        end = len(waiting.messages) if self._most is None else min(len(waiting.messages), waiting.at + self._most)
        messages = waiting.messages[waiting.at : end]
        left = len(waiting.messages) - end
        bytes_left = waiting.size_bytes * left // (left + len(messages))
        size_bytes = waiting.size_bytes - bytes_left
        self._size_bytes -= size_bytes
        if left:
            waiting.at, waiting.size_bytes = end, bytes_left
            ring[name] = waiting
        return Slice(name, messages, waiting.epoch, Behind(left, bytes_left), size_bytes)
