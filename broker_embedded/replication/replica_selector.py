"""Chooses the replica for a consumer to read from (KIP-392): `replica.selector.class`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker_embedded.metadata.image import ClusterImage
from broker_embedded.replication.partition import Partition

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """A replica that has the offset the consumer asks for."""

    node_id: int
    rack: str | None
    log_end_offset: int
    caught_up_ms_ago: int


def nearest_replica(rack_id: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
    """Return the replica in the consumer's rack: the leader if it is there, else the follower that is furthest."""
    if not rack_id or leader.rack == rack_id:
        return leader.node_id
    near = [each for each in followers if each.rack == rack_id]
    if not near:
        return leader.node_id
    return max(near, key=lambda each: (each.log_end_offset, -each.caught_up_ms_ago, -each.node_id)).node_id


def preferred_read_replica(partition: Partition, image: ClusterImage, *, rack_id: str, offset: int, now_ms: int) -> int:
    """Return the replica that a consumer in `rack_id` should read `offset` from. Called on the leader."""
    leading = partition.leading
    own = partition.node_id
    if not rack_id or leading is None:
        return own
    followers = []
    for node in partition.isr:
        follower, broker = leading.followers.get(node), image.brokers.get(node)
        if follower is None or broker is None or broker.fenced:
            continue
        if follower.log_start_offset <= offset <= follower.log_end_offset:
            age_ms = now_ms - follower.last_caught_up_ms
            followers.append(ReplicaView(node, broker.rack, follower.log_end_offset, age_ms))
    leader = image.brokers.get(own)
    rack = None if leader is None else leader.rack
    return nearest_replica(rack_id, ReplicaView(own, rack, partition.log.log_end_offset, 0), followers)
