"""Replication factor and preferred leaders. New replicas are placed by replica counts, rack by rack; existing replicas
do not move."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ottla.admin.errors import raise_failed
from ottla.admin.facts.admin_operation import (
    AdminOperation,
    AdminRequest,
    RetryLater,
    changing,
    problem_of,
    raise_problem,
    reading,
)
from ottla.admin.facts.cluster_facts import BrokerInfo, ClusterFacts, Part, PartitionInfo
from ottla.admin.facts.facts_reader import WantedFacts, read_facts
from ottla.admin.operations.partition_offsets import partitions_of
from ottla.errors import InputError, OttlaError, UnknownTopic
from ottla.topics import TopicPartition, by_topic, named_topics
from ottla.wire_client.errors import PartitionUnavailable
from ottla_wire.facts import fact
from ottla_wire.protocol import ApiKey, ErrorCode

_TIMEOUT_MS: Final = 30_000
_PREFERRED: Final = 0
_NO_MOVE: Final = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@fact
class ReplicaMove:
    """The replicas of one partition before and after; the first of them is the preferred leader."""

    topic: str
    partition: int
    old: tuple[int, ...]
    """Ids of the brokers that hold it now."""
    new: tuple[int, ...]
    """Ids of the brokers that shall hold it."""


def plan_replicas(topic: str, factor: int, *, at_ms: int) -> AdminOperation[tuple[ReplicaMove, ...]]:
    """Return what gives every partition of a topic so many replicas. Empty where they have them."""
    facts = yield from read_facts(WantedFacts(parts=frozenset({Part.TOPICS}), at_ms=at_ms))
    if topic not in facts.by_topic:
        raise UnknownTopic(f"{topic}: the cluster has no such topic")
    return replicas_planned(facts, topic, factor)


def replicas_planned(facts: ClusterFacts, topic: str, factor: int) -> tuple[ReplicaMove, ...]:
    """Plan replicas from facts. Raises InputError if the cluster has fewer brokers."""
    live = {broker.id: broker for broker in facts.brokers if not broker.is_fenced}
    if not 1 <= factor <= len(live):
        raise InputError(f"{topic}: found {factor} replicas, wanted 1 to {len(live)}, the brokers that are up")
    held = dict.fromkeys(live, 0)
    for each in facts.by_partition.values():
        for broker in each.replicas:
            held[broker] = held.get(broker, 0) + 1
    moves = []
    for each in facts.by_topic[topic].partitions:
        new = _fewer(each, factor) if len(each.replicas) > factor else _more(each, factor, live, held)
        if new != each.replicas:
            moves.append(ReplicaMove(topic=topic, partition=each.partition, old=each.replicas, new=new))
    return tuple(moves)


def alter_replicas(moves: Sequence[ReplicaMove], *, wait: bool = True) -> AdminOperation[None]:
    """Begin moves, and with `wait` return when all new replicas are in sync and the old ones gone. InputError where a
    partition is moved twice."""
    if not moves:
        return
    wanted: dict[TopicPartition, list[int] | None] = {}
    for move in moves:
        place = TopicPartition(move.topic, move.partition)
        if place in wanted:
            raise InputError(f"{place}: found two moves, {wanted[place]} and {list(move.new)}, wanted one")
        wanted[place] = list(move.new)
    failed = {str(place): problem for place, problem in (yield from reassign(wanted)).items()}
    if wait:
        yield from _await_moves({place for place in wanted if str(place) not in failed})
    raise_failed("replicas", names=list(map(str, wanted)), failed=failed)


def reassign(
    wanted: Mapping[TopicPartition, list[int] | None], *, may_change_factor: bool = True
) -> AdminOperation[dict[TopicPartition, OttlaError]]:
    """Begin to move partitions to these replicas, None: cancel. Returns those that were refused. A move that has ended
    is cancelled without an error."""
    entries = ((place, {"partition_index": place.partition, "replicas": each}) for place, each in wanted.items())
    body = {
        "timeout_ms": _TIMEOUT_MS,
        "allow_replication_factor_change": may_change_factor,
        "topics": named_topics(entries),
    }
    answer = yield from changing(AdminRequest(api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, body=body))
    raise_problem("replicas", answer.error_code, answer.error_message)
    refused: dict[TopicPartition, OttlaError] = {}
    for topic in answer.responses:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            problem = problem_of(f"replicas of {place}", each.error_code, each.error_message)
            is_over = wanted[place] is None and ErrorCode.of(each.error_code) in _NO_MOVE
            if problem is not None and not is_over:
                refused[place] = problem
    return refused


def elect_leaders(places: Collection[TopicPartition] | None) -> AdminOperation[tuple[TopicPartition, ...]]:
    """Let the preferred replicas lead, of all partitions if `places` is None. Returns those whose leader changed."""
    topics = by_topic((place, place.partition) for place in places or ())
    wanted = None if places is None else [{"topic": name, "partitions": each} for name, each in topics.items()]
    body = {"election_type": _PREFERRED, "topic_partitions": wanted, "timeout_ms": _TIMEOUT_MS}
    answer = yield from changing(AdminRequest(api=ApiKey.ELECT_LEADERS, body=body))
    raise_problem("elections", answer.error_code)
    elected: list[TopicPartition] = []
    failed: dict[str, OttlaError] = {}
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            place = TopicPartition(topic.topic, each.partition_id)
            problem = problem_of(f"election of {place}", each.error_code, each.error_message)
            if problem is None:
                elected.append(place)
            elif each.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                failed[str(place)] = problem
    yield from _await_leaders(elected)
    raise_failed("elections", names=[*map(str, elected), *failed], failed=failed)
    return tuple(sorted(elected))


def _await_leaders(places: Sequence[TopicPartition]) -> AdminOperation[None]:
    """Wait until metadata names the elected leaders: for a moment after the response it may name the old ones."""
    while places:
        body = {"topics": [{"name": name} for name in dict.fromkeys(place.topic for place in places)]}
        answer = yield from reading(
            AdminRequest(api=ApiKey.METADATA, body={**body, "allow_auto_topic_creation": False})
        )
        leads = {
            TopicPartition(topic.name, each.partition_index): each.leader_id == (*each.replica_nodes, -1)[0]
            for topic in answer.topics
            for each in topic.partitions
        }
        places = [place for place in places if not leads.get(place, True)]
        if places:
            yield RetryLater(
                reason=PartitionUnavailable(
                    f"{places[0]}: the election succeeded, but the metadata still names the old leader"
                )
            )


def _await_moves(places: Collection[TopicPartition]) -> AdminOperation[None]:
    numbers = by_topic((place, place.partition) for place in sorted(places))
    yield from partitions_of(list(numbers))
    topics = [{"name": name, "partition_indexes": each} for name, each in numbers.items()]
    while topics:
        ask = AdminRequest(api=ApiKey.LIST_PARTITION_REASSIGNMENTS, body={"timeout_ms": _TIMEOUT_MS, "topics": topics})
        answer = yield from reading(ask)
        left = [f"{topic.name}-{each.partition_index}" for topic in answer.topics for each in topic.partitions]
        if not left:
            return
        more = f" and {len(left) - 1} partitions more" if len(left) > 1 else ""
        yield RetryLater(
            reason=PartitionUnavailable(f"{left[0]}{more}: new replicas are still being copied; the brokers continue")
        )


def _fewer(each: PartitionInfo, factor: int) -> tuple[int, ...]:
    """Return fewer replicas: the leader first, then those that are in sync, in their order."""
    order = sorted(each.replicas, key=lambda broker: (broker != each.leader, broker not in each.in_sync))
    kept = set(order[:factor])
    return tuple(broker for broker in each.replicas if broker in kept)


def _more(each: PartitionInfo, factor: int, live: Mapping[int, BrokerInfo], held: dict[int, int]) -> tuple[int, ...]:
    new = list(each.replicas)
    while len(new) < factor:
        racks = {live[broker].rack for broker in new if broker in live}
        free = [broker for broker in live if broker not in new]
        chosen = min(free, key=lambda broker: (live[broker].rack in racks, held[broker], broker))
        new.append(chosen)
        held[chosen] += 1
    return tuple(new)
