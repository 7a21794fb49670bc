"""Requests of a run: start and cancel moves, choose directories, set and restore throttles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, problem_of, raise_problem
from ottla.admin.facts.protocol_names import BROKER, TOPIC
from ottla.admin.facts.response_facts import settings_of
from ottla.admin.facts.setting_requests import change_settings, describe_settings
from ottla.admin.operations.replica_changes import reassign
from ottla.admin.placement.move_plan import DiskMove, Move
from ottla.admin.placement.run_throttles import ThrottleSetting, merged
from ottla.errors import OttlaError
from ottla.topics import TopicPartition, by_topic
from ottla_wire.protocol import ApiKey, ErrorCode

_KINDS: Final = {"topic": TOPIC, "broker": BROKER}
_OWN: Final = {"topic": "DYNAMIC_TOPIC_CONFIG", "broker": "DYNAMIC_BROKER_CONFIG"}
_NOT_YET: Final = (ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Refused = dict[TopicPartition, OttlaError]


def begin(moves: Sequence[Move]) -> AdminOperation[Refused]:
    """Begin moves. Returns those that were refused. The replication factor may change only where a move says so."""
    refused: Refused = {}
    for changes_factor in (False, True):
        chosen = [move for move in moves if (len(move.new) != len(move.old)) is changes_factor]
        if chosen:
            refused |= yield from reassign(
                {move.place: list(move.new) for move in chosen}, may_change_factor=changes_factor
            )
    return refused


def cancel(places: Iterable[TopicPartition]) -> AdminOperation[Refused]:
    """Cancel moves. One that has ended is no error."""
    return (yield from reassign(dict.fromkeys(places)))


def put_in_dirs(wanted: Iterable[tuple[Move, DiskMove]]) -> AdminOperation[Refused]:
    """Ask brokers for directories of replicas. A broker that has no replica yet remembers the directory, as Kafka
    does."""
    by_broker: dict[int, dict[str, dict[str, list[int]]]] = {}
    for move, each in wanted:
        topics = by_broker.setdefault(each.broker, {}).setdefault(each.target, {})
        topics.setdefault(move.topic, []).append(move.partition)
    refused: Refused = {}
    if not by_broker:
        return refused
    answers = yield [
        AdminRequest(
            api=ApiKey.ALTER_REPLICA_LOG_DIRS,
            broker=broker,
            body={
                "dirs": [
                    {"path": path, "topics": [{"name": name, "partitions": each} for name, each in topics.items()]}
                    for path, topics in dirs.items()
                ]
            },
        )
        for broker, dirs in by_broker.items()
    ]
    for answer in answers:
        if isinstance(answer, OttlaError):
            continue  # a broker that is down is asked again after the next look
        for topic in answer.results:
            for each in topic.partitions:
                place = TopicPartition(topic.topic_name, each.partition_index)
                problem = problem_of(f"directory of {place}", each.error_code)
                if problem is not None and ErrorCode.of(each.error_code) not in _NOT_YET:
                    refused[place] = problem
    return refused


def elect(places: Sequence[TopicPartition]) -> AdminOperation[None]:
    """Let preferred replicas lead. Whether they do is seen by looking again, never by the answer."""
    by_name = by_topic((place, place.partition) for place in places)
    topics = [{"topic": name, "partitions": each} for name, each in by_name.items()]
    yield [
        AdminRequest(
            api=ApiKey.ELECT_LEADERS, body={"election_type": 0, "topic_partitions": topics, "timeout_ms": 30_000}
        )
    ]


def read_settings(wanted: Mapping[tuple[str, str, str], str]) -> AdminOperation[list[ThrottleSetting]]:
    """Return the current throttles beside the wanted ones."""
    names: dict[tuple[str, str], list[str]] = {}
    for kind, resource, name in wanted:
        names.setdefault((kind, resource), []).append(name)
    answers = yield [describe_settings(_KINDS[kind], [resource], each) for (kind, resource), each in names.items()]
    found = []
    for (kind, resource), answer in zip(names, answers, strict=True):
        if isinstance(answer, OttlaError):
            raise answer
        for result in answer.results:
            raise_problem(f"settings of {kind} {resource}", result.error_code, result.error_message)
            now = settings_of(result)
            for name in names[kind, resource]:
                fact = now.get(name)
                old = fact.value if fact is not None and fact.source == _OWN[kind] else None
                new = merged(name, old, wanted[kind, resource, name])
                found.append(ThrottleSetting(kind=kind, resource=resource, name=name, old=old, new=new))
    return found


def set_all(settings: Iterable[ThrottleSetting], *, back: bool) -> AdminOperation[dict[str, OttlaError]]:
    """Set throttles, or with `back` put them back. Returns the brokers and topics where that was not possible."""
    by_resource: dict[tuple[str, str], list[ThrottleSetting]] = {}
    for each in settings:
        by_resource.setdefault((each.kind, each.resource), []).append(each)
    if not by_resource:
        return {}
    answers = yield [
        change_settings(_KINDS[kind], resource, {each.name: each.old if back else each.new for each in chosen})
        for (kind, resource), chosen in by_resource.items()
    ]
    failed: dict[str, OttlaError] = {}
    for (kind, resource), answer in zip(by_resource, answers, strict=True):
        problem = answer if isinstance(answer, OttlaError) else None
        code = ErrorCode.NONE
        for result in () if problem is not None else answer.responses:
            code = ErrorCode.of(result.error_code)
            problem = problem_of(f"throttle of {kind} {resource}", result.error_code, result.error_message)
        is_gone = back and kind == "topic" and code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if problem is not None and not is_gone:
            failed[f"{kind} {resource}"] = problem
    return failed
