"""The assignor `simple`: every partition has a member, and every member has a partition of the topics it subscribes to.

Partitions are dealt to members in turn. If there are more members than partitions, partitions are dealt again to the
members that have none. Each member gets as many partitions as in Kafka, but not always the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..consumer.assignment import Assignment, TopicIdPartition


def assign_simple(
    subscriptions: Mapping[str, frozenset[bytes]], partition_counts: Mapping[bytes, int]
) -> dict[str, Assignment]:
    """Return the partitions of each member, given the topics that it subscribes to."""
    assigned: dict[str, list[TopicIdPartition]] = {member_id: [] for member_id in sorted(subscriptions)}
    holders: dict[TopicIdPartition, int] = {}
    for topic_id in sorted(partition_counts):
        takers = [member_id for member_id in assigned if topic_id in subscriptions[member_id]]
        if not takers:
            continue
        for partition in range(partition_counts[topic_id]):
            least = min(takers, key=lambda member_id: len(assigned[member_id]))
            assigned[least].append(TopicIdPartition(topic_id, partition))
            holders[TopicIdPartition(topic_id, partition)] = 1
    for member_id, held in assigned.items():
        if held:
            continue
        offered = [each for each in holders if each.topic_id in subscriptions[member_id]]
        if offered:
            least_held = min(offered, key=lambda each: (holders[each], each))
            holders[least_held] += 1
            held.append(least_held)
    return {member_id: frozenset(held) for member_id, held in assigned.items()}
