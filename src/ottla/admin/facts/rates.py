"""Rates of a cluster, from two samples of its facts. Pure: the times are in the facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ottla.admin.facts.cluster_facts import ClusterFacts, PartitionInfo
from ottla.errors import InputError
from ottla.topics import TopicPartition
from ottla_wire.facts import fact


@fact
class Rates:
    """Per second, between two samples `seconds` apart. What is unknown is left out, and is not zero.

    `bytes_in` is what a partition's log grew by, `records_in` by how many offsets.
    """

    seconds: float
    records_in: Mapping[TopicPartition, float] = field(default_factory=dict)
    bytes_in: Mapping[TopicPartition, float] = field(default_factory=dict)

    def leader_bytes_in(self, facts: ClusterFacts) -> dict[int, float]:
        """Return the bytes per second that are written to each broker as a leader."""
        found = dict.fromkeys(facts.broker_ids, 0.0)
        for place, rate in self.bytes_in.items():
            partition = facts.by_partition.get(place)
            if partition is not None and partition.leader is not None:
                found[partition.leader] = found.get(partition.leader, 0.0) + rate
        return found


def rates_between(before: ClusterFacts, after: ClusterFacts) -> Rates:
    """Return the rates between two samples of one cluster. InputError where they are of two, or not in this order."""
    if before.cluster_id != after.cluster_id:
        raise InputError(f"samples: wanted two of one cluster, found {before.cluster_id} and {after.cluster_id}")
    seconds = (after.at_ms - before.at_ms) / 1000
    if seconds <= 0:
        raise InputError(f"the second sample must be the later one: it is {-seconds:g} s before the first")
    records: dict[TopicPartition, float] = {}
    sizes: dict[TopicPartition, float] = {}
    before_bytes, after_bytes = _leader_bytes(before), _leader_bytes(after)
    for place, now in after.by_partition.items():
        then = before.by_partition.get(place)
        if then is None or _is_another(before, after, place.topic):
            continue
        grown = _growth(then, now)
        if grown is None:
            continue
        records[place] = grown / seconds
        size = _bytes_grown(then, now, grown, before_bytes.get(place), after_bytes.get(place))
        if size is not None:
            sizes[place] = size / seconds
    return Rates(seconds=seconds, records_in=records, bytes_in=sizes)


def _bytes_grown(
    then: PartitionInfo, now: PartitionInfo, grown: int, before: int | None, after: int | None
) -> float | None:
    """Return the growth of the log in bytes. If its start was deleted meanwhile, estimate it from the growth of the
    offsets and the average record size."""
    if after is None:
        return None
    if before is not None and then.log_start == now.log_start and then.leader == now.leader and after >= before:
        return float(after - before)
    records = now.records
    if grown == 0:
        return 0.0
    return None if not records else grown * after / records


def _growth(then: PartitionInfo, now: PartitionInfo) -> int | None:
    if then.high_watermark is None or now.high_watermark is None or now.high_watermark < then.high_watermark:
        return None  # not read, or an unclean election cut it off
    return now.high_watermark - then.high_watermark


def _is_another(before: ClusterFacts, after: ClusterFacts, topic: str) -> bool:
    """Return whether a topic was deleted and created between the samples."""
    return before.by_topic[topic].topic_id != after.by_topic[topic].topic_id


def _leader_bytes(facts: ClusterFacts) -> dict[TopicPartition, int]:
    leaders = {place: partition.leader for place, partition in facts.by_partition.items()}
    return {
        place: replica.bytes
        for broker, _, replica in facts.replicas()
        if leaders.get(place := TopicPartition(replica.topic, replica.partition)) == broker.id
    }
