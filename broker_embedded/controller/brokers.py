"""Brokers that come and go, and what that means for the partitions they lead."""

from __future__ import annotations

from collections.abc import Collection

from broker_embedded.common.types import NO_LEADER
from broker_embedded.metadata.image import ClusterImage, PartitionImage
from broker_embedded.metadata.records import (
    BrokerRegistrationChange,
    ChangePartition,
    MetadataRecord,
    RegisterBroker,
)


def register(image: ClusterImage, registration: RegisterBroker) -> list[MetadataRecord]:
    """A broker starts. What it led before it leads again in a new epoch: its log may have lost an unflushed tail."""
    node = registration.broker_id
    records: list[MetadataRecord] = [registration]
    for topic in image.topics.values():
        for state in topic.partitions.values():
            can_lead = state.leader == node or (state.leader == NO_LEADER and node in state.isr)
            if can_lead:
                records.append(ChangePartition(topic_id=topic.topic_id, partition=state.partition, leader=node))
    return records


def fence(image: ClusterImage, nodes: Collection[int]) -> list[MetadataRecord]:
    """Brokers are gone.

    Another in-sync replica leads; a partition without one has no leader until its broker is back.
    """
    gone = set(nodes)
    records: list[MetadataRecord] = [
        BrokerRegistrationChange(broker_id=node, broker_epoch=image.brokers[node].epoch, fenced=True)
        for node in sorted(gone)
        if not image.brokers[node].fenced
    ]
    alive = {broker.broker_id for broker in image.live_brokers()} - gone
    for topic in image.topics.values():
        records += [
            ChangePartition(topic_id=topic.topic_id, partition=state.partition, leader=elect(state, alive))
            for state in topic.partitions.values()
            if state.leader in gone
        ]
    return records


def elect(state: PartitionImage, alive: Collection[int]) -> int:
    """The first replica, in order of preference, that is alive and in sync; NO_LEADER if there is none."""
    return next((node for node in state.replicas if node in state.isr and node in alive), NO_LEADER)
