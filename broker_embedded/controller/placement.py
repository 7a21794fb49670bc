"""Which brokers get the replicas of new partitions, and who of them leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ErrorCode


def place(image: ClusterImage, *, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Replicas of each new partition, the preferred leader first: the broker that leads least leads next.

    Followers are the brokers after the leader in a circle that starts one further on each round, so that the replicas
    of one broker's partitions do not all sit on the same neighbour.
    """
    brokers = sorted(broker.broker_id for broker in image.live_brokers())
    if replication_factor > len(brokers):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} cannot be reached: {len(brokers)} brokers are alive",
        )
    leads = Counter(dict.fromkeys(brokers, 0))
    for topic in image.topics.values():
        leads.update(state.leader for state in topic.partitions.values() if state.leader in leads)
    return [_choose(brokers, leads, round_number, replication_factor) for round_number in range(partitions)]


def _choose(brokers: Sequence[int], leads: Counter[int], round_number: int, replication_factor: int) -> tuple[int, ...]:
    leader = min(brokers, key=lambda broker: (leads[broker], broker))
    leads[leader] += 1
    others = [broker for broker in brokers if broker != leader]
    if not others:
        return (leader,)
    start = (brokers.index(leader) + round_number // len(brokers)) % len(others)
    circle = others[start:] + others[:start]
    return (leader, *circle[: replication_factor - 1])
