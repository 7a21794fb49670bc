"""Offsets of a consumer group, read and published without being a member of it.

A pipeline keeps its own offsets; publishing them under a group's name lets every lag tool see how far it is. Kafka
takes such a commit (generation -1, no member) as long as the group has no members of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.errors import OttlaError
from ottla.topics import TopicPartition, by_topic, named_topics
from ottla.wire_client.client_settings import connection_settings
from ottla.wire_client.cluster.cluster_client import Cluster, refused
from ottla.wire_client.cluster.coordinator_calls import MOVED, Coordinates, with_coordinator
from ottla.wire_client.errors import BrokerRefused, PartitionUnavailable
from ottla.wire_client.group.classic_protocol import leave_request
from ottla.wire_client.net.broker_connection import Connection
from ottla_wire.protocol import ApiKey, ErrorCode

_GOODBYE_MS: Final = 2_000

_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})


def commit_group_offsets(cluster: Cluster, group: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Publish `offsets` (the next offset to read of each partition) as the group's committed offsets.

    Raises `BrokerRefused` when the coordinator refuses them.
    """
    if not offsets:
        return
    topics = offset_topics({partition: (offset, "") for partition, offset in offsets.items()})
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}

    def attempt(connection: Connection) -> str | None:
        answer = connection.call(ApiKey.OFFSET_COMMIT, body)
        codes = {ErrorCode.of(entry.error_code) for topic in answer.topics for entry in topic.partitions}
        if codes & _HAS_MEMBERS:
            raise BrokerRefused(
                f"group {group} has members of its own, so its offsets cannot be set from outside; choose a name that"
                " no consumer uses"
            )
        for code in codes - MOVED - {ErrorCode.NONE}:
            raise refused(f"offsets of group {group}", code)
        return "the coordinator moved or is loading" if codes & MOVED else None

    with_coordinator(cluster, Coordinates.GROUP, group, attempt)


def offset_topics(offsets: Mapping[TopicPartition, tuple[int, str]]) -> list[dict[str, object]]:
    """Return the topics of an OffsetCommit or TxnOffsetCommit for these (offset, metadata)."""
    return named_topics(
        (place, {"partition_index": place.partition, "committed_offset": offset, "committed_metadata": metadata})
        for place, (offset, metadata) in offsets.items()
    )


def assignor_in_use(settings: Mapping[str, Any], group: str) -> str:
    """Return the assignor of a classic group's members; empty without members or a timely response."""
    found: list[str] = []

    def attempt(connection: Connection) -> str | None:
        answer = connection.call(ApiKey.DESCRIBE_GROUPS, {"groups": [group], "include_authorized_operations": False})
        (described,) = answer.groups
        code = ErrorCode.of(described.error_code)
        if code in MOVED:
            return code.name
        if code is ErrorCode.NONE:
            found.append(described.protocol_data)
        return None

    try:
        wire = connection_settings(settings, request_timeout_ms=_GOODBYE_MS, api_timeout_ms=_GOODBYE_MS)
        with Cluster(wire) as cluster:
            with_coordinator(cluster, Coordinates.GROUP, group, attempt)
    except OttlaError:
        return ""
    return found[0] if found else ""


def leave_group(settings: Mapping[str, Any], *, group: str, member_id: str) -> None:
    """Take a dynamic member out of its classic group, as well as it can be done, on a connection beside its client's.

    A broker answers the requests of a connection in their order. A client whose JoinGroup waits for the others is heard
    only when they have come, and says its own goodbye too late.
    """
    try:
        wire = connection_settings(settings, request_timeout_ms=_GOODBYE_MS, api_timeout_ms=_GOODBYE_MS)
        with Cluster(wire) as cluster:
            _leave(cluster, group, member_id)
    except OttlaError:
        pass  # the session ends by itself


def _leave(cluster: Cluster, group: str, member_id: str) -> None:
    def attempt(connection: Connection) -> str | None:
        code = ErrorCode.of(connection.call(ApiKey.LEAVE_GROUP, leave_request(group, member_id)).error_code)
        if code in MOVED:
            return code.name
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            raise refused(f"group {group}", code)
        return None

    with_coordinator(cluster, Coordinates.GROUP, group, attempt)


def delete_group(cluster: Cluster, group: str) -> None:
    """Delete a group without members, with all that it committed; nothing where there is none."""

    def attempt(connection: Connection) -> str | None:
        (result,) = connection.call(ApiKey.DELETE_GROUPS, {"groups_names": [group]}).results
        code = ErrorCode.of(result.error_code)
        if code in MOVED:
            return code.name
        if code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
            raise refused(f"group {group}", code)
        return None

    with_coordinator(cluster, Coordinates.GROUP, group, attempt)


def list_group_names(cluster: Cluster, *, ends_with: str) -> list[str]:
    """Return the groups with this ending. Brokers leave out those that the client may not describe.

    Raises a RetriableError if a broker has not listed all of its groups within `default.api.timeout.ms`.
    """

    def attempt() -> list[str]:
        cluster.refresh(())
        found: set[str] = set()
        for node_id in cluster.addresses:
            answer = cluster.ask_broker(node_id).call(ApiKey.LIST_GROUPS, {"states_filter": [], "types_filter": []})
            code = ErrorCode.of(answer.error_code)
            if code in MOVED:  # it loads a partition of __consumer_offsets, and leaves its groups out
                raise PartitionUnavailable(f"groups of broker {node_id}: the broker returned {code.name}")
            if code is not ErrorCode.NONE:
                raise refused(f"groups of broker {node_id}", code)
            found |= {each.group_id for each in answer.groups}
        return sorted(name for name in found if name.endswith(ends_with))

    return cluster.until(attempt, what=f"groups that end with {ends_with}")


def group_offsets(cluster: Cluster, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the committed offsets of the group; partitions without one are left out."""
    return {p: offset for p, (offset, _) in committed_offsets(cluster, group, partitions).items()}


def committed_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool = True
) -> dict[TopicPartition, tuple[int, str]]:
    """Return (offset, metadata) as committed, of all partitions if `partitions` is None. Waits for transactions that
    are about to decide on them (KIP-447), unless `require_stable` is False: then it returns what was committed before
    them."""
    wanted = None if partitions is None else dict.fromkeys(partitions)
    numbers = by_topic((each, each.partition) for each in wanted or ())
    asked = [{"name": name, "partition_indexes": indexes} for name, indexes in numbers.items()]
    topics = None if wanted is None else asked
    found: dict[TopicPartition, tuple[int, str]] = {}

    def attempt(connection: Connection) -> str | None:
        answer = connection.call(
            ApiKey.OFFSET_FETCH,
            {
                "group_id": group,
                "topics": topics,
                "require_stable": require_stable,
            },
        )
        code = ErrorCode.of(answer.error_code)
        if code in MOVED:
            return code.name
        if code is not ErrorCode.NONE:
            raise refused(f"offsets of group {group}", code)
        for topic in answer.topics:
            for entry in topic.partitions:
                if entry.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    return "a transaction holds offsets of the group"
                place = TopicPartition(topic.name, entry.partition_index)
                is_asked = wanted is None or place in wanted
                if entry.error_code == ErrorCode.NONE and entry.committed_offset >= 0 and is_asked:
                    found[place] = (entry.committed_offset, entry.metadata or "")
        return None

    with_coordinator(cluster, Coordinates.GROUP, group, attempt)
    return found
