"""Range: each topic's partitions in contiguous ranges over the members in order, the first ones taking one more.

Members with the same subscription get the same partition numbers of every topic with as many partitions, so that they
can join them. Static members come first, by instance id, so that a restart changes nothing.
"""

from __future__ import annotations

from ..assignment import Assignment, TopicIdPartition
from .spec import GroupSpec


def assign_range(group: GroupSpec) -> dict[str, Assignment]:
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in group.members}
    in_order = sorted(group.members, key=lambda member_id: _rank(group, member_id))
    for topic_id, partition_count in group.partition_counts.items():
        takers = [member_id for member_id in in_order if topic_id in group.members[member_id].topics]
        if not takers:
            continue
        quota, extra = divmod(partition_count, len(takers))
        start = 0
        for position, member_id in enumerate(takers):
            end = start + quota + (position < extra)
            assigned[member_id].update(TopicIdPartition(topic_id, partition) for partition in range(start, end))
            start = end
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _rank(group: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = group.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
