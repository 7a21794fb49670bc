"""The start offsets of share groups: set, or deleted (AlterShareGroupOffsets, DeleteShareGroupOffsets; KIP-932).

All records before the start offset of a share group are settled. To set it forgets which records behind it are settled
too; the group must have no members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ottla.admin.errors import GroupInUse, UnknownGroup
from ottla.admin.facts.admin_operation import AdminOperation, AdminRequest, problem_of, until
from ottla.admin.facts.group_coordinators import coordinators_of
from ottla.errors import OttlaError, RetriableError
from ottla.topics import TopicPartition
from ottla_wire.protocol import ApiKey, ErrorCode


def set_share_offsets(group: str, offsets: Mapping[TopicPartition, int]) -> AdminOperation[None]:
    """Have a share group start at these offsets. Raises `GroupInUse` where it has members."""
    by_topic: dict[str, list[dict[str, int]]] = {}
    for place, offset in offsets.items():
        by_topic.setdefault(place.topic, []).append({"partition_index": place.partition, "start_offset": offset})
    topics = [{"topic_name": name, "partitions": entries} for name, entries in by_topic.items()]
    if topics:
        yield from _ask(group, ApiKey.ALTER_SHARE_GROUP_OFFSETS, topics)


def delete_share_offsets(group: str, places: Collection[TopicPartition]) -> AdminOperation[None]:
    """Have a share group forget the topics of these partitions. Raises `GroupInUse` where it has members."""
    topics = [{"topic_name": name} for name in sorted({place.topic for place in places})]
    if topics:
        yield from _ask(group, ApiKey.DELETE_SHARE_GROUP_OFFSETS, topics)


def _ask(group: str, api: ApiKey, topics: list[dict[str, Any]]) -> AdminOperation[None]:
    def attempt() -> AdminOperation[RetriableError | None]:
        found = (yield from coordinators_of([group]))[group]
        if isinstance(found, OttlaError):
            raise found
        (answer,) = yield [AdminRequest(api=api, body={"group_id": group, "topics": topics}, broker=found)]
        if isinstance(answer, RetriableError):
            return answer  # the same offsets again are the same offsets
        if isinstance(answer, OttlaError):
            raise answer
        later = _problem(f"group {group}", group, answer)
        for topic in answer.responses:
            for part in getattr(topic, "partitions", [topic]):
                later = later or _problem(f"group {group}: {topic.topic_name}", group, part)
        return later

    yield from until(attempt)


def _problem(subject: str, group: str, answer: Any) -> RetriableError | None:
    """Return why to try again. Raises what a retry does not change."""
    if answer.error_code == ErrorCode.NON_EMPTY_GROUP:
        raise GroupInUse(f"group {group} has members; stop them first")
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        raise UnknownGroup(f"group {group}: the cluster has no such group")
    problem = problem_of(subject, answer.error_code, answer.error_message)
    if problem is None or isinstance(problem, RetriableError):
        return problem
    raise problem
