"""When the facts of a cluster are read, and how much of them. Pure.

Figures (offsets, sizes) cost a cluster of ten thousand partitions seconds, so they have a small share of the time. How
its brokers, leaders and replicas stand is read more often, in a tenth of that, and it is what a person looks for in an
incident; then the dear reads, which take longer because brokers do not answer, become fewer and not more.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum
from typing import Final

from ottla.admin.facts.cluster_facts import ClusterFacts, Part, PartitionInfo, TopicInfo

MOST_SHARE: Final = 0.03
"""Maximum share of time for reads: users of the cluster must not notice them."""
MOST_PAUSE_S: Final = 8.0
"""Between two reads of whatever kind: facts are at most 15 s old, or said to be."""
FIGURES_S: Final = 60.0
"""Between two reads of everything at most."""
_DEAR_S: Final = 1.0

OUTLINE: Final = frozenset({Part.TOPICS, Part.MOVES, Part.REACHED})
FIGURES: Final = frozenset({Part.OFFSETS, Part.LOG_DIRS})


class RefreshPart(Enum):
    """The parts to read."""

    EVERYTHING = "everything"
    OUTLINE = "outline"


def pause_after(took_s: float, *, every_s: float, most_s: float = math.inf) -> float:
    """Return the pause after work of this duration, in seconds: at least `every_s`, at most `most_s`, and such that the
    work keeps its share of the time.
    """
    return min(most_s, max(every_s, took_s / MOST_SHARE - took_s))


class Rhythm:
    """The next parts to read, and when. Times are of one monotonic clock, in seconds."""

    def __init__(self, *, every_s: float) -> None:
        self._every_s = every_s
        self._everything_at = self._outline_at = -math.inf

    def done(self, read: RefreshPart, *, took_s: float, now_s: float, is_incident: bool) -> None:
        """Record that a read has ended, or failed."""
        if read is RefreshPart.EVERYTHING:
            most_s = max(FIGURES_S, self._every_s)
            is_dear = is_incident and took_s > _DEAR_S
            pause_s = most_s if is_dear else pause_after(took_s, every_s=self._every_s, most_s=most_s)
            self._everything_at = now_s + pause_s
            took_s = 0.0  # an outline takes less, and how much less is found out
        most_s = max(MOST_PAUSE_S, self._every_s)
        self._outline_at = now_s + pause_after(took_s, every_s=self._every_s, most_s=most_s)

    def next(self) -> tuple[RefreshPart, float]:
        """Return the next read and its time."""
        if self._everything_at <= self._outline_at:
            return RefreshPart.EVERYTHING, self._everything_at
        return RefreshPart.OUTLINE, self._outline_at


def is_incident(facts: ClusterFacts) -> bool:
    """Return whether a problem may make reads expensive: brokers that do not answer, partitions without leaders."""
    return (
        bool(facts.not_read)
        or any(broker.is_fenced or broker.unreachable is not None for broker in facts.brokers)
        or any(each.leader is None or each.offline for topic in facts.topics for each in topic.partitions)
    )


def with_figures(outline: ClusterFacts, last: ClusterFacts) -> ClusterFacts:
    """Return the cluster's state with the last figures, which were read at `at_ms`."""
    brokers = {broker.id: broker for broker in last.brokers}
    return replace(
        outline,
        at_ms=last.at_ms,
        parts=last.parts,
        brokers=tuple(
            replace(each, log_dirs=known.log_dirs) if (known := brokers.get(each.id)) is not None else each
            for each in outline.brokers
        ),
        topics=tuple(_topic(each, last.by_topic.get(each.name)) for each in outline.topics),
        not_read=(*outline.not_read, *(each for each in last.not_read if each.part in FIGURES)),
    )


def _topic(now: TopicInfo, before: TopicInfo | None) -> TopicInfo:
    if before is None or before.topic_id != now.topic_id:  # new, or recreated under the same name
        return now
    known = {each.partition: each for each in before.partitions}
    return replace(now, partitions=tuple(_partition(each, known.get(each.partition)) for each in now.partitions))


def _partition(now: PartitionInfo, before: PartitionInfo | None) -> PartitionInfo:
    if before is None:
        return now
    return PartitionInfo(  # `replace` takes three times as long, and there are tens of thousands
        partition=now.partition,
        leader=now.leader,
        leader_epoch=now.leader_epoch,
        replicas=now.replicas,
        in_sync=now.in_sync,
        offline=now.offline,
        log_start=before.log_start,
        high_watermark=before.high_watermark,
        last_stable_offset=before.last_stable_offset,
    )
