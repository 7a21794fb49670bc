"""Reassignments in progress as the cluster lists them, started by any tool, in the form of a plan's moves. Pure."""

from __future__ import annotations

from ottla.admin.facts.cluster_facts import ClusterFacts, MoveInfo
from ottla.admin.facts.rates import Rates
from ottla.admin.placement.deciding import PlanRun, Status, decide
from ottla.admin.placement.move_plan import Move
from ottla.topics import TopicPartition


def moves_under_way(facts: ClusterFacts, rates: Rates | None = None) -> tuple[Move, ...]:
    """Return the reassignments in progress in the form of a plan's moves."""
    return tuple(
        Move(
            topic=each.topic,
            partition=each.partition,
            bytes=facts.partition_bytes.get(place_of(each), 0),
            old=replicas_before(each),
            new=tuple(broker for broker in each.replicas if broker not in each.removing),
            rate=0.0 if rates is None else rates.bytes_in.get(place_of(each), 0.0),
        )
        for each in facts.moves
    )


def statuses_under_way(facts: ClusterFacts) -> tuple[Status, ...]:
    """Return how far each of them is, and why it makes no progress where that can be seen."""
    moves = moves_under_way(facts)
    ours = {(each.topic, each.partition): each.new for each in moves}
    return decide(PlanRun(moves=moves, ours=ours, begins_nothing=True), facts).statuses


def place_of(move: MoveInfo) -> TopicPartition:
    """Return which partition moves."""
    return TopicPartition(move.topic, move.partition)


def replicas_before(move: MoveInfo) -> tuple[int, ...]:
    """Return the replicas that a cancel leaves. Their order may differ from that before the move, which no broker
    knows."""
    return tuple(broker for broker in move.replicas if broker not in move.adding)
