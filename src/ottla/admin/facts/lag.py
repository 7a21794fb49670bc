"""How far a group is behind, from facts alone."""

from __future__ import annotations

from ottla.admin.facts.cluster_facts import ClusterFacts, CommittedOffset, GroupInfo, MemberInfo
from ottla.commit_marks import is_marked_limited
from ottla.topics import TopicPartition
from ottla_wire.facts import fact


@fact
class PartitionLag:
    """One partition of a group. Offsets are of the next record; what is None is not known, or is not there.

    `lag` counts records from what was committed, or from the log's start where that is later, to the high watermark; an
    upper bound, because offsets may have gaps. Where nothing is committed it is what a group would read that starts at
    the earliest record. Of a share group it counts the records that are not settled. It is negative where the committed
    offset is beyond the log's end, as in Kafka's own tools: the next member begins where auto.offset.reset says. It is
    None where it is not known; `problem` says why. `lost` is what retention took before it was read. `held_at` is where
    an open transaction stops readers of isolation level read_committed.
    """

    topic: str
    partition: int
    committed: int | None
    """The committed offset."""
    log_start: int | None
    """The first offset in the log."""
    log_end: int | None
    """The high watermark."""
    lag: int | None
    lost: int = 0
    held_at: int | None = None
    member: str | None = None
    """The id of the member that has the partition."""
    client_id: str | None = None
    problem: str | None = None
    """Why the lag is not known: the partition has no leader, say."""
    is_counted: bool = False
    """True if the broker computed the lag, as it does for share groups."""
    is_limited: bool = False
    """At its last commit the handler's `max_rate` held records back."""
    is_gone: bool = False
    """The cluster has no such topic or partition: there is nothing left to read, and `lag` is None."""


@fact
class GroupLag:
    """The lag of a group by partition."""

    group_id: str
    state: str
    """Kafka's word for the group's state."""
    partitions: tuple[PartitionLag, ...]
    """The partitions, ordered by topic and number."""

    @property
    def total(self) -> int | None:
        """Return how many records the group is behind; None where that is not known of a partition (`at_least` is)."""
        return None if self.unknown else self.at_least

    @property
    def at_least(self) -> int:
        """Return how many records it is behind on the partitions of which that is known."""
        return sum(max(0, each.lag or 0) for each in self.partitions)

    @property
    def unknown(self) -> tuple[PartitionLag, ...]:
        """The partitions whose lag is not known. Not those that are gone."""
        return tuple(each for each in self.partitions if each.lag is None and not each.is_gone)

    @property
    def beyond_end(self) -> tuple[PartitionLag, ...]:
        """The partitions whose committed offset is beyond the end of the log."""
        return tuple(each for each in self.partitions if each.lag is not None and each.lag < 0)

    @property
    def lost(self) -> int:
        """Records that retention deleted before the group read them."""
        return sum(each.lost for each in self.partitions)


def lag_of(group: GroupInfo, facts: ClusterFacts) -> GroupLag:
    """Return the lag of one group, on every partition that it has committed for or that a member has."""
    offsets = {TopicPartition(each.topic, each.partition): each for each in group.offsets or ()}
    members = {place: member for member in group.members or () for place in member.partitions}
    places = sorted(offsets.keys() | members.keys())
    lags = tuple(_lag(place, offsets.get(place), members.get(place), facts) for place in places)
    return GroupLag(group_id=group.group_id, state=group.state, partitions=lags)


def _lag(
    place: TopicPartition, found: CommittedOffset | None, member: MemberInfo | None, facts: ClusterFacts
) -> PartitionLag:
    committed, unsettled = (None, None) if found is None else (found.offset, found.unsettled)
    fact = facts.by_partition.get(place)
    start, end = (None, None) if fact is None else (fact.log_start, fact.high_watermark)
    stable = None if fact is None else fact.last_stable_offset
    lag = None
    lost = 0
    if start is not None and end is not None:
        # Behind a share group's start offset some records are settled already, which its broker leaves out.
        lag = end - max(start if committed is None else committed, start) if unsettled is None else unsettled
        lost = 0 if committed is None else max(0, start - committed)
    is_limited = found is not None and is_marked_limited(found.metadata)
    return PartitionLag(
        topic=place.topic,
        partition=place.partition,
        committed=committed,
        log_start=start,
        log_end=end,
        lag=lag,
        lost=lost,
        held_at=stable if stable is not None and end is not None and stable < end else None,
        member=None if member is None else member.member_id,
        client_id=None if member is None else member.client_id,
        problem=None if lag is not None else _problem(place, facts),
        is_counted=unsettled is not None,
        is_limited=is_limited and member is not None and lag != 0,
        is_gone=_is_gone(place, facts),
    )


def _is_gone(place: TopicPartition, facts: ClusterFacts) -> bool:
    """Return whether the cluster was asked for the topic, and has no such partition. What may not be described is not
    gone."""
    if place in facts.by_partition:  # first: there are ten thousand, and as many subjects may not be read
        return False
    return not any(each.subject in (f"topic {place.topic}", "topics") for each in facts.not_read)


def _problem(place: TopicPartition, facts: ClusterFacts) -> str:
    fact = facts.by_partition.get(place)
    if fact is None:
        reasons = [each.reason for each in facts.not_read if each.subject == f"topic {place.topic}"]
        return reasons[0] if reasons else "the cluster has no such partition"
    if fact.leader is None:
        return "the partition has no leader"
    reasons = [each.reason for each in facts.not_read if each.subject == f"broker {fact.leader}"]
    return reasons[0] if reasons else f"its leader, broker {fact.leader}, did not say where the log ends"
