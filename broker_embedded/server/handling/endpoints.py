"""The leaders that responses name for clients that asked another broker, and where they listen (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.image import ClusterImage


def current_leader(image: ClusterImage, topic_partition: TopicPartition) -> dict[str, Any]:
    """Return the field that names a partition's leader; empty for an unknown partition."""
    state = image.partition(topic_partition)
    if state is None:
        return {}
    return {"current_leader": {"leader_id": state.leader, "leader_epoch": state.leader_epoch}}


def leader_endpoints(image: ClusterImage, partitions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the endpoints of the leaders that the partitions of a response name."""
    return endpoints_of(image, {each["current_leader"]["leader_id"] for each in partitions if "current_leader" in each})


def endpoints_of(image: ClusterImage, nodes: Iterable[int]) -> list[dict[str, Any]]:
    """Return one entry for each registered node, in the order of their ids."""
    brokers = image.brokers
    return [
        {"node_id": node, "host": brokers[node].host, "port": brokers[node].port, "rack": brokers[node].rack}
        for node in sorted(nodes)
        if node in brokers
    ]
