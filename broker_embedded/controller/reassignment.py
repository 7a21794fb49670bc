"""Moves replicas between brokers: starts, replaces and cancels a move.

While a move is in progress the partition has the replicas of both ends: those wanted first, then those to be removed.
It completes in `partition_change`, with the ISR change that brings the last added replica in. Throttles are topic
settings, which replication reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.controller import elections
from broker_embedded.controller.partition_change import Election, PartitionTarget, change_partition
from broker_embedded.controller.topics import check_replicas
from broker_embedded.metadata.image import ClusterImage, PartitionImage
from broker_embedded.metadata.records import MetadataRecord
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode


@fact
class Reassignment:
    """The target replicas of a partition; None cancels the move in progress."""

    topic: str
    partition: int
    replicas: tuple[int, ...] | None


def reassign(
    image: ClusterImage, wanted: Reassignment, *, allow_factor_change: bool, config: BrokerConfig
) -> list[MetadataRecord]:
    """Return the record of one partition's move; BrokerError if it cannot be."""
    topic = image.topic(wanted.topic)
    state = None if topic is None else topic.partitions.get(wanted.partition)
    if topic is None or state is None:
        name = TopicPartition(wanted.topic, wanted.partition)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}")
    election = elections.usual_election(image, topic, config)
    if wanted.replicas is None:
        target = _cancel(image, state, election)
    else:
        replicas = check_replicas(image, wanted.replicas)
        if not allow_factor_change and len(replicas) != len(original_replicas(state)):
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"found {len(replicas)} replicas, the partition has {len(original_replicas(state))} and the request"
                " does not allow another number",
            )
        target = _start(state, replicas)
    change = change_partition(image, topic.topic_id, state, target, election=election)
    return [] if change is None else [change]


def original_replicas(state: PartitionImage) -> tuple[int, ...]:
    """Return the replicas without those that a move in progress adds."""
    return tuple(node for node in state.replicas if node not in state.adding_replicas)


def _start(state: PartitionImage, wanted: Sequence[int]) -> PartitionTarget:
    """Start a move from the current replicas. Replicas that an earlier move added and that are not in sync yet are
    still added, or removed.

    What an earlier move added and has not brought into sync yet is still to be added, or is to be removed.
    """
    original = original_replicas(state)
    removing = tuple(node for node in state.replicas if node not in wanted)
    return PartitionTarget(
        replicas=(*wanted, *removing),
        adding=tuple(node for node in wanted if node not in original),
        removing=removing,
    )


def _cancel(image: ClusterImage, state: PartitionImage, election: Election) -> PartitionTarget:
    if not state.is_reassigning:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    replicas = original_replicas(state)
    isr = tuple(node for node in state.isr if node not in state.adding_replicas)
    can_elect = election is Election.UNCLEAN and any(image.is_active(node) for node in replicas)
    if not isr and not can_elect:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "only replicas that the reassignment adds are in sync: cancelling it would need an unclean election",
        )
    return PartitionTarget(replicas=replicas, isr=isr, adding=(), removing=())
