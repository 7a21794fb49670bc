"""Uniform: members get equally many partitions, and keep those that they have as far as that allows.

If all members have the same subscription, each keeps its partitions up to its quota, and the other partitions go to the
members below theirs. Otherwise the partitions with the fewest candidates are placed first, each with the candidate that
has fewest. Then partitions are moved, one by one, from a member to one that has at least two fewer, until no move
helps; each move lowers the sum of squares, so this ends.
"""

from __future__ import annotations

from ..assignment import Assignment, TopicIdPartition
from .spec import GroupSpec


def assign_uniform(group: GroupSpec) -> dict[str, Assignment]:
    if not group.members:
        return {}
    subscriptions = {member.topics for member in group.members.values()}
    assigned = _assign_same(group) if len(subscriptions) == 1 else _assign_different(group)
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _assign_same(group: GroupSpec) -> dict[str, list[TopicIdPartition]]:
    partitions = _all_partitions(group)
    quota, extra = divmod(len(partitions), len(group.members))
    kept: dict[str, list[TopicIdPartition]] = {}
    taken: set[TopicIdPartition] = set()
    # Members that already hold more than the plain quota get the extra partitions, so that those need not move.
    by_holding = sorted(group.members, key=lambda member_id: -len(group.members[member_id].current))
    for member_id in by_holding:
        held = sorted(
            partition for partition in group.members[member_id].current & partitions if partition not in taken
        )
        limit = quota + 1 if extra > 0 and len(held) > quota else quota
        kept[member_id] = held[:limit]
        taken.update(kept[member_id])
        extra -= len(kept[member_id]) > quota
    free = iter(sorted(partitions - taken))
    assigned = {member_id: kept[member_id] for member_id in group.members}
    for held in assigned.values():
        while len(held) < quota:
            held.append(next(free))
    for held, partition in zip((held for held in assigned.values() if len(held) == quota), free, strict=False):
        held.append(partition)
    return assigned


def _assign_different(group: GroupSpec) -> dict[str, list[TopicIdPartition]]:
    partitions = _all_partitions(group)
    takers = {
        topic_id: [member_id for member_id, member in group.members.items() if topic_id in member.topics]
        for topic_id in group.partition_counts
    }
    assigned: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in group.members}
    owner: dict[TopicIdPartition, str] = {}
    for member_id, member in group.members.items():
        for partition in sorted(member.current & partitions):
            if partition.topic_id in member.topics and partition not in owner:
                owner[partition] = member_id
                assigned[member_id].append(partition)
    free = sorted(partitions - owner.keys(), key=lambda partition: (len(takers[partition.topic_id]), partition))
    for partition in free:
        candidates = takers[partition.topic_id]
        if candidates:
            least = min(candidates, key=lambda member_id: len(assigned[member_id]))
            owner[partition] = least
            assigned[least].append(partition)
    _balance(assigned, owner, takers)
    return assigned


def _balance(
    assigned: dict[str, list[TopicIdPartition]],
    owner: dict[TopicIdPartition, str],
    takers: dict[bytes, list[str]],
) -> None:
    has_moved = True
    while has_moved:
        has_moved = False
        for partition, member_id in sorted(owner.items()):
            least = min(takers[partition.topic_id], key=lambda each: len(assigned[each]))
            if len(assigned[member_id]) >= len(assigned[least]) + 2:
                assigned[member_id].remove(partition)
                assigned[least].append(partition)
                owner[partition] = least
                has_moved = True


def _all_partitions(group: GroupSpec) -> set[TopicIdPartition]:
    return {
        TopicIdPartition(topic_id, partition)
        for topic_id, count in group.partition_counts.items()
        for partition in range(count)
    }
