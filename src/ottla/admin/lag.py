"""How far a group is behind, from facts alone."""

from __future__ import annotations

from ottla.admin.facts import ClusterFacts, GroupFact
from ottla.topics import TopicPartition
from ottla_wire.facts import fact


@fact
class PartitionLag:
    """One partition of a group. Offsets are of the next record; what is None is not known, or is not there.

    `lag` counts records from what was committed, or from the log's start where that is later, to the high watermark; an
    upper bound, because offsets may have gaps. Where nothing is committed it is what a group would read that starts at
    the earliest record. `lost` is what retention took before it was read. `held_at` is where an open transaction stops
    readers of isolation level read_committed.
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


@fact
class GroupLag:
    """The lag of a group by partition. `total` leaves out what is not known."""

    group_id: str
    state: str
    """Kafka's word for the group's state."""
    partitions: tuple[PartitionLag, ...]
    """The partitions, ordered by topic and number."""

    @property
    def total(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lost(self) -> int:
        """Records that retention deleted before the group read them."""
        return sum(each.lost for each in self.partitions)


def lag_of(group: GroupFact, facts: ClusterFacts) -> GroupLag:
    """The lag of one group, on every partition that it has committed for or that a member has."""
    committed = {TopicPartition(each.topic, each.partition): each.offset for each in group.offsets or ()}
    members = {place: member for member in group.members or () for place in member.partitions}
    lags = []
    for place in sorted(committed.keys() | members.keys()):
        member = members.get(place)
        lags.append(
            _lag(
                place,
                committed.get(place),
                facts,
                member=None if member is None else member.member_id,
                client_id=None if member is None else member.client_id,
            )
        )
    return GroupLag(group_id=group.group_id, state=group.state, partitions=tuple(lags))


def _lag(
    place: TopicPartition, committed: int | None, facts: ClusterFacts, *, member: str | None, client_id: str | None
) -> PartitionLag:
    fact = facts.by_partition.get(place)
    start, end = (None, None) if fact is None else (fact.log_start, fact.high_watermark)
    stable = None if fact is None else fact.last_stable_offset
    lag = None
    lost = 0
    if start is not None and end is not None:
        lag = max(0, end - max(start if committed is None else committed, start))
        lost = 0 if committed is None else max(0, start - committed)
    return PartitionLag(
        topic=place.topic,
        partition=place.partition,
        committed=committed,
        log_start=start,
        log_end=end,
        lag=lag,
        lost=lost,
        held_at=stable if stable is not None and end is not None and stable < end else None,
        member=member,
        client_id=client_id,
    )
