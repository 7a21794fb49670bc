"""Places the replicas of new partitions, and chooses their leaders.

As Kafka's StripedReplicaPlacer: leaders are spread over brokers, the replicas of a partition over racks, and a broker
that is fenced may get a replica when there are not enough others, but does not lead. Partitions of one request are
striped: each live broker leads one before any leads a second. Unlike there no chance is involved: the broker that leads
least in the cluster comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ErrorCode


def place(image: ClusterImage, *, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """Return replicas of each new partition, the preferred leader first."""
    present = [broker for broker in image.brokers.values() if not broker.in_controlled_shutdown]
    usable = [broker for broker in present if broker.takes_replicas]
    live = sorted(broker.broker_id for broker in usable if not broker.fenced)
    fenced = sorted(broker.broker_id for broker in usable if broker.fenced)
    if replication_factor > len(usable):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of"
            f" {replication_factor} cannot be reached because only {len(usable)} broker(s) are registered"
            + (f", {len(fenced)} of them fenced" if fenced else "")
            + (f"; {len(present) - len(usable)} more have all log directories cordoned." if present != usable else "."),
        )
    if not live:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned: nobody could lead",
        )
    racks = {broker.broker_id: broker.rack for broker in usable}
    order = sorted(live, key=lambda broker: (image.leader_counts.get(broker, 0), broker))
    holds: Counter[int] = Counter()
    placed = []
    for round_number in range(partitions):
        leader = order[round_number % len(order)]
        circle = _circle(live, leader, round_number)
        chosen = _spread([leader], circle, racks, holds, replication_factor)
        chosen = _spread(chosen, fenced, racks, holds, replication_factor)
        holds.update(chosen)
        placed.append(tuple(chosen))
    return placed


def _circle(brokers: Sequence[int], leader: int, round_number: int) -> list[int]:
    """Return the brokers after the leader, in a circle that starts one further on each round.

    So the replicas of one broker's partitions do not all sit on the same neighbour.
    """
    others = [broker for broker in brokers if broker != leader]
    if not others:
        return []
    start = (brokers.index(leader) + round_number // len(brokers)) % len(others)
    return others[start:] + others[:start]


def _spread(
    chosen: Sequence[int],
    candidates: Sequence[int],
    racks: Mapping[int, str | None],
    holds: Counter[int],
    wanted: int,
) -> list[int]:
    """Return `chosen` and as many `candidates` as wanted.

    Next is always one of a rack that has fewest replicas of this partition; of those, one that holds fewest replicas of
    the partitions placed so far; of those, the first in the circle.
    """
    if len(chosen) >= wanted or not candidates:
        return list(chosen)
    result = list(chosen)
    left = list(candidates)
    used = Counter(racks[broker] for broker in result)
    while left and len(result) < wanted:
        following = min(left, key=lambda broker: (used[racks[broker]], holds[broker]))
        left.remove(following)
        result.append(following)
        used[racks[following]] += 1
    return result
