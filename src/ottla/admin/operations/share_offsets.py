"""The start offsets of share groups: set, or deleted (AlterShareGroupOffsets, DeleteShareGroupOffsets; KIP-932).

All records before the start offset of a share group are settled. To set it forgets which records behind it are settled
too; the group must have no members.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ottla.admin.errors import GroupInUse, UnknownGroup
from ottla.admin.facts.admin_operation import AdminOperation, problem_of
from ottla.admin.operations.offset_changes import Problems, change_offsets
from ottla.errors import OttlaError, RetriableError
from ottla.topics import TopicPartition, by_topic
from ottla_wire.protocol import ApiKey, ErrorCode


def set_share_offsets(group: str, offsets: Mapping[TopicPartition, int]) -> AdminOperation[None]:
    """Have a share group start at these offsets. Raises `GroupInUse` where it has members."""
    named = by_topic((each, {"partition_index": each.partition, "start_offset": at}) for each, at in offsets.items())
    topics = [{"topic_name": name, "partitions": entries} for name, entries in named.items()]
    if topics:
        yield from _ask(group, ApiKey.ALTER_SHARE_GROUP_OFFSETS, topics, offsets)


def delete_share_offsets(group: str, places: Collection[TopicPartition]) -> AdminOperation[None]:
    """Have a share group forget the topics of these partitions. Raises `GroupInUse` where it has members."""
    topics = [{"topic_name": name} for name in sorted({place.topic for place in places})]
    if topics:
        yield from _ask(group, ApiKey.DELETE_SHARE_GROUP_OFFSETS, topics, places)


def _ask(
    group: str, api: ApiKey, topics: list[dict[str, Any]], places: Collection[TopicPartition]
) -> AdminOperation[None]:
    def read(answer: Any) -> RetriableError | Problems:
        problem = _problem(f"group {group}", group, answer)
        if isinstance(problem, RetriableError):
            return problem
        if problem is not None:
            raise problem
        return outcomes(answer)

    def outcomes(answer: Any) -> Problems:
        """Return an outcome for each partition: a deletion is answered by topic."""
        for topic in answer.responses:
            subject = f"group {group}: {topic.topic_name}"
            if api is ApiKey.DELETE_SHARE_GROUP_OFFSETS:
                yield from (
                    (each, _problem(subject, group, topic)) for each in places if each.topic == topic.topic_name
                )
                continue
            for part in topic.partitions:
                yield TopicPartition(topic.topic_name, part.partition_index), _problem(subject, group, part)

    yield from change_offsets(group, api, {"group_id": group, "topics": topics}, places, read)


def _problem(subject: str, group: str, answer: Any) -> OttlaError | None:
    if answer.error_code == ErrorCode.NON_EMPTY_GROUP:
        return GroupInUse(f"group {group} has members; stop them first")
    if answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return UnknownGroup(f"group {group}: the cluster has no such group")
    return problem_of(subject, answer.error_code, answer.error_message)
