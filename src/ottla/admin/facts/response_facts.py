"""Parses responses of brokers into facts. Every value is validated: a broker may send anything."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ottla.admin.facts.cluster_facts import (
    AclInfo,
    CommittedOffset,
    GroupInfo,
    LogDirInfo,
    MemberInfo,
    MoveInfo,
    QuorumInfo,
    QuotaInfo,
    ReplicaInfo,
    SettingInfo,
    TransactionInfo,
    VoterInfo,
)
from ottla.admin.facts.protocol_names import ACL_OPERATIONS, ACL_PATTERNS, ACL_PERMISSIONS, ACL_RESOURCES, SOURCES
from ottla.topics import TopicPartition
from ottla_wire.protocol import ZERO_UUID, ErrorCode, ProtocolError, codec

_UNTOLD = -1


def topic_id_of(raw: Any) -> str | None:
    """Return a topic's id as Kafka's tools print ids of topics, or None where the broker gave none."""
    if not raw or raw == ZERO_UUID:
        return None
    text = bytes(raw).hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def settings_of(result: Any) -> dict[str, SettingInfo]:
    """Return the settings of one resource."""
    return {
        entry.name: SettingInfo(
            value=entry.value,
            source=SOURCES.get(entry.config_source, "UNKNOWN"),
            is_read_only=bool(entry.read_only),
            is_sensitive=bool(entry.is_sensitive),
        )
        for entry in result.configs
    }


def log_dirs_of(response: Any) -> tuple[LogDirInfo, ...]:
    """Return the log directories of one broker."""
    return tuple(
        LogDirInfo(
            path=result.log_dir,
            error=None if result.error_code == ErrorCode.NONE else ErrorCode.of(result.error_code).name,
            total_bytes=_none_if_unknown(result.total_bytes),
            usable_bytes=_none_if_unknown(result.usable_bytes),
            is_cordoned=bool(result.is_cordoned),
            replicas=tuple(
                ReplicaInfo(
                    topic=topic.name,
                    partition=each.partition_index,
                    bytes=max(0, each.partition_size),
                    offset_lag=each.offset_lag,
                    is_future=bool(each.is_future_key),
                )
                for topic in result.topics
                for each in topic.partitions
            ),
        )
        for result in response.results
    )


def classic_group(described: Any, *, coordinator: int) -> GroupInfo:
    """Return a group of DescribeGroups."""
    return GroupInfo(
        group_id=described.group_id,
        type="Classic",
        state=described.group_state,
        coordinator=coordinator,
        protocol_type=described.protocol_type,
        assignor=described.protocol_data,
        members=tuple(
            MemberInfo(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                partitions=_classic_assignment(member.member_assignment),
                subscribed=_classic_subscription(member.member_metadata),
            )
            for member in described.members
        ),
    )


def modern_group(described: Any, *, kind: str, coordinator: int) -> GroupInfo:
    """Return a group of ConsumerGroupDescribe or ShareGroupDescribe."""
    return GroupInfo(
        group_id=described.group_id,
        type=kind,
        state=described.group_state,
        coordinator=coordinator,
        protocol_type=kind.lower(),
        assignor=described.assignor_name,
        members=tuple(
            MemberInfo(
                member_id=member.member_id,
                instance_id=getattr(member, "instance_id", None),
                client_id=member.client_id,
                host=member.client_host,
                partitions=_places(member.assignment.topic_partitions, "topic_name"),
                subscribed=tuple(member.subscribed_topic_names),
            )
            for member in described.members
        ),
    )


def share_offsets_of(topics: Iterable[Any]) -> tuple[CommittedOffset, ...]:
    """Return start offsets out of DescribeShareGroupOffsets. A partition that is not initialized is left out."""
    return tuple(
        CommittedOffset(
            topic=topic.topic_name,
            partition=entry.partition_index,
            offset=entry.start_offset,
            unsettled=entry.lag if getattr(entry, "lag", -1) >= 0 else None,
        )
        for topic in topics
        for entry in topic.partitions
        if not entry.error_code and entry.start_offset >= 0
    )


def offsets_of(topics: Iterable[Any]) -> tuple[CommittedOffset, ...]:
    """Return committed offsets out of OffsetFetch. A partition without one is left out."""
    return tuple(
        CommittedOffset(
            topic=topic.name,
            partition=entry.partition_index,
            offset=entry.committed_offset,
            metadata=entry.metadata or "",
        )
        for topic in topics
        for entry in topic.partitions
        if not entry.error_code and entry.committed_offset >= 0
    )


def transaction_of(state: Any) -> TransactionInfo:
    return TransactionInfo(
        transactional_id=state.transactional_id,
        producer_id=state.producer_id,
        state=state.transaction_state,
        timeout_ms=state.transaction_timeout_ms,
        started_ms=_none_if_unknown(state.transaction_start_time_ms),
        partitions=_places(state.topics, "topic"),
    )


def moves_of(response: Any) -> tuple[MoveInfo, ...]:
    return tuple(
        MoveInfo(
            topic=topic.name,
            partition=each.partition_index,
            replicas=tuple(each.replicas),
            adding=tuple(each.adding_replicas),
            removing=tuple(each.removing_replicas),
        )
        for topic in response.topics
        for each in topic.partitions
    )


def quorum_of(response: Any) -> QuorumInfo | None:
    """Return the metadata quorum; None where the broker describes none."""
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code == ErrorCode.NONE:
                nodes = [(node, True) for node in each.current_voters] + [(node, False) for node in each.observers]
                return QuorumInfo(
                    leader=each.leader_id,
                    leader_epoch=each.leader_epoch,
                    high_watermark=each.high_watermark,
                    nodes=tuple(
                        VoterInfo(
                            node_id=node.replica_id,
                            is_voter=is_voter,
                            log_end_offset=node.log_end_offset,
                            caught_up_ms=_none_if_unknown(node.last_caught_up_timestamp),
                        )
                        for node, is_voter in nodes
                    ),
                )
    return None


def acls_of(response: Any) -> tuple[AclInfo, ...]:
    return tuple(AclInfo(**acl_fields(resource, acl)) for resource in response.resources for acl in resource.acls)


def acl_fields(resource: Any, acl: Any) -> dict[str, str]:
    """Return the fields of an ACL out of DescribeAcls or DeleteAcls. A number for which Kafka's word is unknown stays a
    number."""
    return {
        "resource": ACL_RESOURCES.get(resource.resource_type, str(resource.resource_type)),
        "name": resource.resource_name,
        "pattern": ACL_PATTERNS.get(resource.pattern_type, str(resource.pattern_type)),
        "principal": acl.principal,
        "host": acl.host,
        "operation": ACL_OPERATIONS.get(acl.operation, str(acl.operation)),
        "permission": ACL_PERMISSIONS.get(acl.permission_type, str(acl.permission_type)),
    }


def quotas_of(response: Any) -> tuple[QuotaInfo, ...]:
    return tuple(
        QuotaInfo(
            entity={each.entity_type: each.entity_name for each in entry.entity}, name=quota.key, value=quota.value
        )
        for entry in response.entries or ()
        for quota in entry.values
        if math.isfinite(quota.value)  # a broker may send anything, and JSON has no other numbers
    )


def _classic_assignment(data: Any) -> tuple[TopicPartition, ...]:
    """Return the assignment of a classic member; empty if its bytes do not follow the consumer protocol."""
    assignment = _decoded("ConsumerProtocolAssignment", data)
    return () if assignment is None else _places(assignment.assigned_partitions, "topic")


def _classic_subscription(data: Any) -> tuple[str, ...]:
    subscription = _decoded("ConsumerProtocolSubscription", data)
    return () if subscription is None else tuple(subscription.topics)


def _decoded(name: str, data: Any) -> Any:
    try:
        return codec.decode_record_value(name, bytes(data))[1] if data else None
    except ProtocolError:
        return None


def _places(topics: Iterable[Any], name: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(getattr(topic, name), number) for topic in topics for number in topic.partitions)


def _none_if_unknown(number: int) -> int | None:
    return None if number <= _UNTOLD else number
