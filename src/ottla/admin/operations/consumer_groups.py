"""Describes and deletes consumer groups, and deletes their offsets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ottla.admin.errors import GroupInUse, UnknownGroup, raise_failed
from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, problem_of, until
from ottla.admin.facts.cluster_facts import ClusterFacts, GroupInfo, Part
from ottla.admin.facts.facts_reader import WantedFacts, read_facts
from ottla.admin.facts.group_coordinators import coordinators_of
from ottla.admin.facts.lag import GroupLag, lag_of
from ottla.admin.operations.offset_changes import Problems, change_offsets
from ottla.errors import InputError, OttlaError, RetriableError
from ottla.topics import TopicPartition, named_topics
from ottla.wire_client.errors import BrokerRefused
from ottla_wire.protocol import ApiKey, ErrorCode

NOT_FORGOTTEN = "Kafka deletes its offsets by whole topics only, never by partition"

_DESCRIBED = frozenset({Part.GROUPS, Part.GROUP_MEMBERS, Part.GROUP_OFFSETS})


def list_groups(*, at_ms: int) -> AdminOperation[tuple[GroupInfo, ...]]:
    """Return all groups that may be seen, without members and offsets. Raises what a broker refused."""
    facts = yield from read_facts(WantedFacts(parts=frozenset({Part.GROUPS}), at_ms=at_ms))
    if facts.not_read and not facts.groups:
        raise InputError(facts.not_read[0].reason)
    return facts.groups


def describe_groups(names: Collection[str], *, at_ms: int) -> AdminOperation[tuple[GroupInfo, ...]]:
    """Return groups with their members and offsets, in the order of their names. UnknownGroup where one does not
    exist."""
    facts = yield from read_facts(WantedFacts(parts=_DESCRIBED, at_ms=at_ms, groups=tuple(names)))
    _check_all_read(facts, names)
    return facts.groups


def group_lag(names: Collection[str] | None, *, at_ms: int) -> AdminOperation[tuple[GroupLag, ...]]:
    """Return the lag of groups, of all if `names` is None; offsets are asked for only where a group has some."""
    wanted = WantedFacts(parts=_DESCRIBED, at_ms=at_ms, groups=None if names is None else tuple(names))
    found = yield from read_facts(wanted)
    if names is not None:
        _check_all_read(found, names)
    topics = {each.topic for group in found.groups for each in group.offsets or ()}
    topics |= {place.topic for group in found.groups for member in group.members or () for place in member.partitions}
    offsets = found
    if topics:
        parts = frozenset({Part.OFFSETS})
        offsets = yield from read_facts(WantedFacts(parts=parts, at_ms=at_ms, topics=tuple(sorted(topics))))
    return tuple(lag_of(group, offsets) for group in found.groups)


def delete_groups(names: Sequence[str]) -> AdminOperation[None]:
    """Delete groups with all that they committed. GroupInUse where one has members, UnknownGroup where it is none."""
    failed: dict[str, OttlaError] = {}
    done: set[str] = set()

    def attempt() -> AdminOperation[RetriableError | None]:
        by_broker: dict[int, list[str]] = {}
        later: RetriableError | None = None
        left = [name for name in names if name not in failed and name not in done]
        for name, found in (yield from coordinators_of(left)).items():
            if isinstance(found, OttlaError):
                failed[name] = found
            else:
                by_broker.setdefault(found, []).append(name)
        asks = [
            AdminRequest(api=ApiKey.DELETE_GROUPS, body={"groups_names": each}, broker=broker)
            for broker, each in by_broker.items()
        ]
        for ask, answer in zip(asks, (yield asks) if asks else (), strict=True):
            if isinstance(answer, RetriableError):
                later = answer  # a group that is deleted by now is unknown the next time
                continue
            if isinstance(answer, OttlaError):
                failed.update(dict.fromkeys(ask.body["groups_names"], answer))
                continue
            for result in answer.results:
                problem = _problem_of_group(result.group_id, result.error_code, result.error_message)
                if isinstance(problem, RetriableError):
                    later = problem
                elif problem is not None:
                    failed[result.group_id] = problem
                else:
                    done.add(result.group_id)
        return later

    yield from until(attempt)
    raise_failed("groups", names=names, failed=failed)


def forget_offsets(group: str, places: Collection[TopicPartition]) -> AdminOperation[None]:
    """Delete what a group committed for partitions. GroupInUse where members subscribe to all of their topics,
    PartlyDone where they subscribe to some, InputError for a share group."""
    topics = named_topics((place, {"partition_index": place.partition}) for place in places)

    def read(answer: Any) -> RetriableError | Problems:
        problem = _problem_of_group(group, answer.error_code)
        if isinstance(problem, RetriableError):
            return problem
        if problem is not None:
            raise problem
        return [
            (TopicPartition(topic.name, each.partition_index), _not_forgotten(group, topic.name, each.error_code))
            for topic in answer.topics
            for each in topic.partitions
        ]

    if not places:
        return
    try:
        yield from change_offsets(group, ApiKey.OFFSET_DELETE, {"group_id": group, "topics": topics}, places, read)
    except UnknownGroup:  # a coordinator says so of a share group as well
        facts = yield from read_facts(WantedFacts(parts=frozenset({Part.GROUPS}), at_ms=0, groups=(group,)))
        refuse_share_groups(NOT_FORGOTTEN, *facts.groups)
        raise


def refuse_share_groups(why: str, *groups: GroupInfo) -> None:
    """Raise `InputError` if there is a share group among these."""
    for group in groups:
        if group.type == "Share":
            raise InputError(f"group {group.group_id} is a share group: {why}; its offsets can be reset")


def _problem_of_group(group: str, code: int, message: str | None = None) -> OttlaError | None:
    if code == ErrorCode.GROUP_ID_NOT_FOUND:
        return UnknownGroup(f"group {group}: the cluster has no such group")
    if code == ErrorCode.NON_EMPTY_GROUP:
        return GroupInUse(f"group {group} has members; stop them first ({ErrorCode.of(code).name})")
    return problem_of(f"group {group}", code, message)


def _not_forgotten(group: str, topic: str, code: int) -> OttlaError | None:
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None  # nothing is left to forget
    if code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
        return GroupInUse(f"group {group} has members that subscribe to {topic}; stop them first")
    return problem_of(f"group {group}: {topic}", code)


def _check_all_read(facts: ClusterFacts, names: Collection[str]) -> None:
    there = {group.group_id for group in facts.groups}
    for name in names:
        refused = [each.reason for each in facts.not_read if each.subject in (f"group {name}", name)]
        refused += [each.reason for each in facts.not_read if each.subject.startswith("groups of broker")]
        if name not in there or refused:
            if refused:
                raise BrokerRefused(refused[0])
            raise UnknownGroup(f"group {name}: the cluster has no such group")
