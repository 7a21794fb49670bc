"""Offsets of a consumer group, read and published without being a member of it.

A pipeline keeps its own offsets; publishing them under a group's name lets every lag tool see how far it is. Kafka
takes such a commit (generation -1, no member) as long as the group has no members of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ottla.columnar.cluster import Cluster, refused
from ottla.columnar.connection import Connection
from ottla.columnar.errors import BrokerRefused, PartitionUnavailable
from ottla.errors import BrokerUnavailable
from ottla.records import TopicPartition
from ottla_wire.protocol import ApiKey, ErrorCode

_COORDINATOR_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


def commit_group_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Publish `offsets` (the next offset to read of each partition) as the group's committed offsets."""
    if not offsets:
        return
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for partition, offset in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            {"partition_index": partition.partition, "committed_offset": offset, "committed_metadata": ""}
        )
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": name, "partitions": entries} for name, entries in by_topic.items()],
    }

    def attempt(connection: Connection) -> bool:
        answer = connection.call(ApiKey.OFFSET_COMMIT, body)
        codes = {ErrorCode(entry.error_code) for topic in answer.topics for entry in topic.partitions}
        if codes & _HAS_MEMBERS:
            raise BrokerRefused(
                f"group {group} has members of its own, so its offsets cannot be set from outside; choose a name that"
                " no consumer uses"
            )
        for code in codes - _COORDINATOR_MOVED - {ErrorCode.NONE}:
            raise refused(f"offsets of group {group}", code)
        return not codes & _COORDINATOR_MOVED

    _with_coordinator(cluster, group, attempt)


def group_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The committed offsets of the group; partitions without one are left out."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    found: dict[TopicPartition, int] = {}

    def attempt(connection: Connection) -> bool:
        answer = connection.call(
            ApiKey.OFFSET_FETCH,
            {
                "group_id": group,
                "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in by_topic.items()],
            },
        )
        code = ErrorCode(answer.error_code)
        if code in _COORDINATOR_MOVED:
            return False
        if code is not ErrorCode.NONE:
            raise refused(f"offsets of group {group}", code)
        for topic in answer.topics:
            for entry in topic.partitions:
                if entry.error_code == ErrorCode.NONE and entry.committed_offset >= 0:
                    found[TopicPartition(topic.name, entry.partition_index)] = entry.committed_offset
        return True

    _with_coordinator(cluster, group, attempt)
    return found


def _with_coordinator(cluster: Cluster, group: str, attempt: Any) -> None:
    """Run `attempt` on the group's coordinator, found again whenever it has moved."""
    deadline = cluster.now() + cluster.settings.api_timeout_ms / 1000
    reason = "not tried"
    while True:
        try:
            answer = cluster.any_broker().call(ApiKey.FIND_COORDINATOR, {"key": group, "key_type": 0})
            code = ErrorCode(answer.error_code)
            if code is ErrorCode.NONE:
                if attempt(cluster.ask(answer.host, answer.port)):
                    return
                reason = "the coordinator moved or is loading"
            elif code in _COORDINATOR_MOVED:
                reason = code.name
            else:
                raise refused(f"coordinator of group {group}", code)
        except BrokerUnavailable as error:
            reason = str(error)
        if cluster.now() >= deadline:
            raise PartitionUnavailable(f"group {group}: no coordinator in time: {reason}")
        cluster.pause()
