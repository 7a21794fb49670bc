"""AlterPartition: a leader requests another ISR, with the partition state that it knows.

What the leader knows must be exactly what is committed: an older state is refused, and a newer one means that this
controller is behind and no controller any more. Only brokers that are in the cluster, in the incarnation that the
leader has fetched from, may come into an ISR (KIP-841, KIP-903).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.controller import elections
from broker_embedded.controller.partition_change import PartitionTarget, change_partition
from broker_embedded.metadata.delta import changed_partition
from broker_embedded.metadata.image import ClusterImage, PartitionImage
from broker_embedded.metadata.records import LeaderRecoveryState, MetadataRecord
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

UNKNOWN_EPOCH = -1


@fact
class IsrChange:
    """A leader's request. `isr` names each member with its broker epoch; -1 is not checked."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED


@fact
class IsrResult:
    """The partition after the change, or the error."""

    error: ErrorCode = ErrorCode.NONE
    state: PartitionImage | None = None


def change_isr(
    image: ClusterImage, leader: int, wanted: IsrChange, *, config: BrokerConfig
) -> tuple[list[MetadataRecord], IsrResult]:
    """Return the record of one partition's change and the response to the leader."""
    topic = image.topic_by_id(wanted.topic_id)
    if topic is None:
        return [], IsrResult(error=ErrorCode.UNKNOWN_TOPIC_ID)
    state = topic.partitions.get(wanted.partition)
    if state is None:
        return [], IsrResult(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = _problem_with(image, state, leader, wanted)
    if error is not ErrorCode.NONE:
        return [], IsrResult(error=error)
    target = PartitionTarget(isr=tuple(node for node, _ in wanted.isr), recovery=wanted.recovery)
    election = elections.usual_election(image, topic, config)
    change = change_partition(image, topic.topic_id, state, target, election=election)
    if change is None:
        return [], IsrResult(state=state)
    after = changed_partition(state, change)
    if after.leader != leader:
        # The change completed a reassignment that takes the leader away: done, and the old leader has to read of it.
        return [change], IsrResult(error=ErrorCode.NEW_LEADER_ELECTED)
    return [change], IsrResult(state=after)


def _problem_with(image: ClusterImage, state: PartitionImage, leader: int, wanted: IsrChange) -> ErrorCode:
    nodes = [node for node, _ in wanted.isr]
    knows_more = wanted.leader_epoch > state.leader_epoch or wanted.partition_epoch > state.partition_epoch
    if knows_more:
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if leader != state.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < state.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    is_possible = leader in nodes and len(set(nodes)) == len(nodes) and set(nodes) <= set(state.replicas)
    if not is_possible:
        return ErrorCode.INVALID_REQUEST
    is_recovering = wanted.recovery is LeaderRecoveryState.RECOVERING
    was_recovered = state.leader_recovery_state is LeaderRecoveryState.RECOVERED
    if is_recovering and (was_recovered or len(nodes) > 1):
        return ErrorCode.INVALID_REQUEST
    if not all(_is_eligible(image, node, epoch) for node, epoch in wanted.isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _is_eligible(image: ClusterImage, node: int, epoch: int) -> bool:
    broker = image.brokers.get(node)
    if broker is None or not broker.is_active:
        return False
    return epoch in (UNKNOWN_EPOCH, broker.epoch)
