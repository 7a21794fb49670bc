"""The start offsets of share groups: set, or deleted (AlterShareGroupOffsets, DeleteShareGroupOffsets; KIP-932).

All records before the start offset of a share group are settled. To set it forgets which records behind it are settled
too; the group must have no members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ottla.admin.errors import GroupInUse, UnknownGroup
from ottla.admin.facts.admin_operation import AdminOperation, problem_of
from ottla.admin.facts.group_coordinators import ask_coordinator
from ottla.errors import RetriableError
from ottla.topics import TopicPartition, by_topic
from ottla_wire.protocol import ApiKey, ErrorCode


def set_share_offsets(group: str, offsets: Mapping[TopicPartition, int]) -> AdminOperation[None]:
    """Have a share group start at these offsets. Raises `GroupInUse` where it has members."""
    named = by_topic((each, {"partition_index": each.partition, "start_offset": at}) for each, at in offsets.items())
    topics = [{"topic_name": name, "partitions": entries} for name, entries in named.items()]
    if topics:
        yield from _ask(group, ApiKey.ALTER_SHARE_GROUP_OFFSETS, topics)


def delete_share_offsets(group: str, places: Collection[TopicPartition]) -> AdminOperation[None]:
    """Have a share group forget the topics of these partitions. Raises `GroupInUse` where it has members."""
    topics = [{"topic_name": name} for name in sorted({place.topic for place in places})]
    if topics:
        yield from _ask(group, ApiKey.DELETE_SHARE_GROUP_OFFSETS, topics)


def _ask(group: str, api: ApiKey, topics: list[dict[str, Any]]) -> AdminOperation[None]:
    def read(answer: Any) -> RetriableError | None:
        later = _problem(f"group {group}", group, answer)
        for topic in answer.responses:
            for part in getattr(topic, "partitions", [topic]):
                later = later or _problem(f"group {group}: {topic.topic_name}", group, part)
        return later

    # The same offsets again are the same offsets.
    yield from ask_coordinator(group, api, {"group_id": group, "topics": topics}, read)


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
