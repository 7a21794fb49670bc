"""Where a member begins in partitions of which its group has committed nothing. Pure.

A partition that was added after the member joined begins at its start, whatever `auto.offset.reset` says: with `latest`
its first records would be passed over, because they come before the group notices that it is there. All others begin
where `auto.offset.reset` says. With `latest` that place is looked up once and committed, as Java's consumer does: the
group goes on from there after a rebalance or a restart, and a partition without a commit is one it has never had.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ottla.consumer.model.effects import Notice
from ottla.records import TopicPartition
from ottla.stepping import Steps

Committed = Mapping[TopicPartition, tuple[int, str]]
Begins = dict[TopicPartition, int | None]

_AT_THE_END: Final = frozenset({"latest", "largest", "end"})
_AT_THE_START: Final = frozenset({"earliest", "smallest", "beginning"})
_MOST_NAMED: Final = 20


class StartOffsets:
    """The rule of one member. `reset` is its `auto.offset.reset`. Of partitions, `log_ends_of` returns the bounds of
    their logs, without those that do not answer, and `committed_of` the group's commits, or None; on an event loop both
    are awaited."""

    def __init__(
        self,
        *,
        reset: str,
        log_ends_of: Callable[[Sequence[TopicPartition]], Any],
        committed_of: Callable[[Sequence[TopicPartition]], Any],
        notice: Callable[[Notice], object],
    ) -> None:
        self._log_ends_of = log_ends_of
        self._committed_of = committed_of
        self._notice = notice
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

    def find(self, names: Sequence[TopicPartition], committed: Committed | None) -> Steps[Begins]:
        """Return the start offsets of partitions without a commit; None stands for the start of a log without a leader.
        Other partitions start by the client's reset policy."""
        if committed is None or not self.decides:
            return {}
        at_start, at_end = self.at_start(names, committed), self._at_end(names, committed)
        if not at_start and not at_end:
            return {}
        ends = yield partial(self._log_ends_of, [*at_start, *at_end])
        begun = {name: ends[name] for name in at_end if name in ends}
        if any(low < end for low, end in begun.values()):
            known: Committed | None = yield partial(self._committed_of, self._siblings(begun))
            for fields in _passed_over(begun, known or {}):
                self._notice(Notice("started_at_log_end", "warning", fields))
        begins: Begins = {name: end for name, (_, end) in begun.items()}
        return begins | {name: ends[name][0] if name in ends else None for name in at_start}

    def at_start(self, partitions: Iterable[TopicPartition], committed: Committed) -> list[TopicPartition]:
        """Return the assigned partitions that were added since the member joined: they are read from their start."""
        if not self.decides:
            return []
        return [
            name
            for name in partitions
            if name not in committed and name.topic in self._counts and name.partition >= self._counts[name.topic]
        ]

    def _at_end(self, partitions: Iterable[TopicPartition], committed: Committed) -> list[TopicPartition]:
        """Return the assigned partitions that are read from their end."""
        if not self._begins_at_end:
            return []
        return [
            name for name in partitions if name not in committed and name.partition < self._counts.get(name.topic, 0)
        ]

    def _siblings(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return all partitions of the topics of these. If the group has committed any of them, it was here before."""
        topics = sorted({name.topic for name in partitions})
        return [TopicPartition(topic, index) for topic in topics for index in range(self._counts.get(topic, 0))]


def known_starts(begins: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
    """Return the partitions whose start offset is known."""
    return {name: start for name, start in begins.items() if start is not None}


def _passed_over(
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
