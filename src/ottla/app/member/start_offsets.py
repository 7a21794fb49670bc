"""Where a member begins in partitions of which its group has committed nothing. Pure.

A partition that was added after the member joined begins at its start, whatever `auto.offset.reset` says: with `latest`
its first records would be passed over, because they come before the group notices that it is there. All others begin
where `auto.offset.reset` says. With `latest` that place is looked up once and committed, as Java's consumer does: the
group goes on from there after a rebalance or a restart, and a partition without a commit is one it has never had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.records import TopicPartition

Committed = Mapping[TopicPartition, tuple[int, str]]

_AT_THE_END: Final = frozenset({"latest", "largest", "end"})
_AT_THE_START: Final = frozenset({"earliest", "smallest", "beginning"})
_MOST_NAMED: Final = 20


class StartOffsets:
    """The rule of one member. `reset` is its `auto.offset.reset`."""

    def __init__(self, *, reset: str) -> None:
        self._counts: dict[str, int] = {}
        self._begins_at_end = reset in _AT_THE_END
        self.decides = reset not in _AT_THE_START
        """Whether there is anything to decide: with `earliest` every partition begins at its start."""

    def joined(self, counts: Mapping[str, int]) -> None:
        """Record how many partitions the topics had when the member joined."""
        self._counts.update(counts)

    def gone(self, topic: str) -> None:
        """Record that the topic was deleted: records of its name are new from now on."""
        if topic in self._counts:
            self._counts[topic] = 0

    def at_start(self, partitions: Iterable[TopicPartition], committed: Committed) -> list[TopicPartition]:
        """Return the assigned partitions that were added since the member joined: they are read from their start."""
        if not self.decides:
            return []
        return [
            name
            for name in partitions
            if name not in committed and name.topic in self._counts and name.partition >= self._counts[name.topic]
        ]

    def at_end(self, partitions: Iterable[TopicPartition], committed: Committed) -> list[TopicPartition]:
        """Return the assigned partitions that are read from their end."""
        if not self._begins_at_end:
            return []
        return [
            name for name in partitions if name not in committed and name.partition < self._counts.get(name.topic, 0)
        ]

    def siblings(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return all partitions of the topics of these. If the group has committed any of them, it was here before."""
        topics = sorted({name.topic for name in partitions})
        return [TopicPartition(topic, index) for topic in topics for index in range(self._counts.get(topic, 0))]


def known_starts(begins: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    """Return the partitions whose start offset is known."""
    return {name: start for name, start in begins.items() if start is not None}


def passed_over(
    at_end: Mapping[TopicPartition, tuple[int, int]], committed: Collection[TopicPartition]
) -> list[dict[str, object]]:
    """Return the fields of `started_at_log_end` for partitions that begin at their end, each with (start, end) of its
    log, although the group has committed other partitions of the topic: their records were written before any member
    knew of them."""
    known = {name.topic for name in committed}
    found = [(name, ends) for name, ends in at_end.items() if name.topic in known and ends[0] < ends[1]]
    why = (
        "the group has committed other partitions of this topic and nothing of this one, and auto.offset.reset is "
        "latest: what was written before this member joined is passed over"
    )
    return [
        {"partition": str(name), "from": start, "to": end, "records_at_most": end - start, "why": why}
        for name, (start, end) in found[:_MOST_NAMED]
    ]
