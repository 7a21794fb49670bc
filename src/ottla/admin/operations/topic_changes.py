"""Topics: created, grown, emptied and deleted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ottla.admin.errors import raise_failed
from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, RetryLater, changing, problem_of
from ottla.admin.facts.cluster_facts import Part, TopicInfo
from ottla.admin.facts.facts_reader import WantedFacts, read_facts
from ottla.admin.facts.protocol_names import EARLIEST, LATEST
from ottla.admin.operations.partition_offsets import (
    ask_leaders,
    existing_partitions,
    list_offsets,
    offsets_at,
    partitions_of,
)
from ottla.config import TopicSpec
from ottla.errors import InputError, OttlaError, UnknownTopic
from ottla.topics import TopicPartition, named_topics, topic_problem
from ottla.wire_client.errors import PartitionUnavailable
from ottla_wire.protocol import ApiKey, ErrorCode

_TIMEOUT_MS: Final = 30_000
"""How long the cluster may take for a change before it answers; Kafka's own tools wait as long."""

_BY_DEFAULT: Final = -1

TOPIC_PARTS: Final = frozenset({Part.TOPICS})


def describe_topics(
    names: Collection[str] | None, *, parts: Collection[Part], at_ms: int, internal: bool = True
) -> AdminOperation[tuple[TopicInfo, ...]]:
    """Return topics by name, all of them if `names` is None, with the parts of the facts that are wanted."""
    wanted = WantedFacts(parts=TOPIC_PARTS.union(parts), at_ms=at_ms, topics=None if names is None else tuple(names))
    facts = yield from read_facts(wanted)
    for name in names or ():
        if name not in facts.by_topic:
            refused = [each.reason for each in facts.not_read if each.subject == f"topic {name}"]
            if refused:
                raise InputError(refused[0])
            raise UnknownTopic(f"{name}: the cluster has no such topic")
    return tuple(topic for topic in facts.topics if internal or not topic.is_internal)


def create_topics(
    topics: Mapping[str, TopicSpec | None], *, dry_run: bool = False, wait: bool = True
) -> AdminOperation[dict[str, tuple[int, int]]]:
    """Create topics, and wait until all their partitions have leaders. None takes the cluster's defaults.

    Returns the partitions and replicas of each, as the cluster chose. With `dry_run` the cluster only checks.
    """
    if not topics:
        return {}
    answer = yield from _ask_to_create(topics, dry_run=dry_run)
    failed = _failed(answer.topics, "name")
    created = {
        each.name: (each.num_partitions, each.replication_factor) for each in answer.topics if each.name not in failed
    }
    if wait and not dry_run:
        yield from _await_leaders(created)
    raise_failed("topics", names=list(topics), failed=failed)
    return created


def create_missing_topics(topics: Mapping[str, TopicSpec | None]) -> AdminOperation[tuple[str, ...]]:
    """Create the topics that the cluster does not have, and return their names; existing topics are unchanged. Raises
    `BrokerRefused`, or `PartlyDone` if some were created."""
    if not topics:
        return ()
    answer = yield from _ask_to_create(topics, dry_run=False)
    existing = {each.name for each in answer.topics if each.error_code == ErrorCode.TOPIC_ALREADY_EXISTS}
    failed = {name: error for name, error in _failed(answer.topics, "name").items() if name not in existing}
    raise_failed("topics", names=list(topics), failed=failed)
    return tuple(name for name in topics if name not in existing)


def _ask_to_create(topics: Mapping[str, TopicSpec | None], *, dry_run: bool) -> AdminOperation[Any]:
    for name in topics:
        _check_name(name)
    body = {
        "topics": [_creatable(name, spec or TopicSpec()) for name, spec in topics.items()],
        "timeout_ms": _TIMEOUT_MS,
        "validate_only": dry_run,
    }
    return (yield from changing(AdminRequest(api=ApiKey.CREATE_TOPICS, body=body)))


def add_partitions(topic: str, total: int, *, dry_run: bool = False) -> AdminOperation[None]:
    """Give a topic more partitions: `total` in all. Records of one key go to another partition from then on."""
    body = {
        "topics": [{"name": topic, "count": total, "assignments": None}],
        "timeout_ms": _TIMEOUT_MS,
        "validate_only": dry_run,
    }
    answer = yield from changing(AdminRequest(api=ApiKey.CREATE_PARTITIONS, body=body))
    raise_failed("partitions", names=[topic], failed=_failed(answer.results, "name"))
    if not dry_run:
        yield from _await_leaders({topic: (total, 0)})


def delete_topics(names: Sequence[str]) -> AdminOperation[None]:
    """Delete topics with all their records. UnknownTopic where one does not exist; the others are deleted."""
    if not names:
        return
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        _check_name(name)
    body = {"topics": [{"name": name} for name in wanted], "topic_names": wanted, "timeout_ms": _TIMEOUT_MS}
    answer = yield from changing(AdminRequest(api=ApiKey.DELETE_TOPICS, body=body))
    failed = _failed(answer.responses, "name")
    gone = [name for name in wanted if name not in failed]
    while gone:
        left = yield from existing_partitions(gone)
        if not left:
            break
        yield RetryLater(
            reason=PartitionUnavailable(f"{', '.join(left)}: the deletion was accepted, but the topic still exists")
        )
    raise_failed("topics", names=wanted, failed=failed)


def delete_records(before: Mapping[TopicPartition, int]) -> AdminOperation[dict[TopicPartition, int]]:
    """Delete the records before an offset of each partition (LATEST: all). Returns where each log begins now.

    InputError where an offset is behind the end of its log; nothing is deleted then.
    """
    ends = yield from list_offsets(dict.fromkeys(before, LATEST))
    for place, offset in before.items():
        if offset != LATEST and not 0 <= offset <= ends[place]:
            raise InputError(f"{place}: found offset {offset}, wanted 0 to {ends[place]}, the end of the log")

    def ask(broker: int, places: list[TopicPartition]) -> AdminRequest:
        topics = named_topics((each, {"partition_index": each.partition, "offset": before[each]}) for each in places)
        return AdminRequest(
            api=ApiKey.DELETE_RECORDS, body={"topics": topics, "timeout_ms": _TIMEOUT_MS}, broker=broker
        )

    return (
        yield from ask_leaders(
            before,
            ask,  # asking twice deletes no more than once
            lambda answer: (
                (TopicPartition(topic.name, each.partition_index), each.error_code, each.low_watermark)
                for topic in answer.topics
                for each in topic.partitions
            ),
            what="records of",
            # A new leader does not know yet how far its followers are.
            passing=(ErrorCode.OFFSET_OUT_OF_RANGE,),
        )
    )


def records_before(
    topic: str, position: str | dt.datetime, *, now_ms: int, partitions: Collection[int] | None = None
) -> AdminOperation[dict[TopicPartition, tuple[int, int]]]:
    """Return (first offset, offset of a position) of each partition: what `delete_records` up to there would delete."""
    found = (yield from partitions_of([topic]))[topic]
    places = [TopicPartition(topic, number) for number in sorted(found if partitions is None else partitions)]
    starts = yield from list_offsets(dict.fromkeys(places, EARLIEST))
    offsets = yield from offsets_at(places, position, now_ms=now_ms)
    return {place: (starts[place], max(starts[place], offsets[place])) for place in places}


def _creatable(name: str, spec: TopicSpec) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": _BY_DEFAULT if spec.partitions is None else spec.partitions,
        "replication_factor": _BY_DEFAULT if spec.replication_factor is None else spec.replication_factor,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in spec.config_texts.items()],
    }


def _await_leaders(topics: Mapping[str, tuple[int, int]]) -> AdminOperation[None]:
    """Wait for the leaders of new partitions: a broker learns of a partition shortly after the controller. A topic that
    this user may create but not describe is not waited for."""
    unseen: set[str] = set()
    while topics:
        found = yield from existing_partitions(list(topics), unseen=unseen)
        missing = [
            name
            for name, (partitions, _) in topics.items()
            if name not in unseen
            and (name not in found or len(found[name]) < partitions or min(found[name].values()) < 0)
        ]
        if not missing:
            return
        yield RetryLater(reason=PartitionUnavailable(f"{', '.join(missing[:5])}: created, but without leaders yet"))


def _failed(results: Any, name: str) -> dict[str, OttlaError]:
    failed: dict[str, OttlaError] = {}
    for result in results:
        called = getattr(result, name)
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            failed[called] = UnknownTopic(f"{called}: the cluster has no such topic")
            continue
        problem = problem_of(f"topic {called}", result.error_code, result.error_message)
        if problem is not None:
            failed[called] = problem
    return failed


def _check_name(name: str) -> None:
    problem = topic_problem(name)
    if problem is not None:
        raise InputError(problem)
