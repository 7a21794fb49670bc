"""What the log keeps of a KIP-848 group, as typed records to and from Kafka's schemas.

A value of None (`gone`) is a tombstone. Written as Apache Kafka 4.0 writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ottla_wire.facts import fact
from ottla_wire.protocol import codec

from ...runtime.shard import CoordinatorRecord
from .assignment import Assignment, of_message, to_message
from .member import AssignmentProgress, MemberState, MemberSubscription

T = TypeVar("T")
Fields: TypeAlias = dict[str, Any]

GROUP_EPOCH_KEY = 3
PARTITION_METADATA_KEY = 4
MEMBER_KEY = 5
TARGET_EPOCH_KEY = 6
TARGET_MEMBER_KEY = 7
CURRENT_ASSIGNMENT_KEY = 8
REGEX_KEY = 16


class SubscribedTopicMetadata(NamedTuple):
    """Metadata that the target assignment was computed from; a change causes a new one."""

    topic_id: bytes
    partition_count: int


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matches, as of the metadata at `version`."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@fact
class GroupEpoch:
    epoch: int | None


@fact
class PartitionMetadata:
    topics: Mapping[str, SubscribedTopicMetadata] | None


@fact
class MemberMetadata:
    member_id: str
    subscription: MemberSubscription | None


@fact
class TargetEpoch:
    epoch: int | None


@fact
class TargetMember:
    member_id: str
    assignment: Assignment | None


@fact
class CurrentAssignment:
    member_id: str
    progress: AssignmentProgress | None


@fact
class Regex:
    pattern: str
    resolved: ResolvedRegex | None


ConsumerRecord: TypeAlias = (
    GroupEpoch | PartitionMetadata | MemberMetadata | TargetEpoch | TargetMember | CurrentAssignment | Regex
)


# -- encoding


def encode(group_id: str, record: ConsumerRecord) -> CoordinatorRecord:
    name, version, key, value = _parts(record)
    encoded_key = codec.encode_record_value(f"{name}Key", version, {"group_id": group_id, **key})
    encoded_value = None if value is None else codec.encode_record_value(f"{name}Value", 0, value)
    return CoordinatorRecord(encoded_key, encoded_value)


def _parts(record: ConsumerRecord) -> tuple[str, int, Fields, Fields | None]:
    """Return schema name, key version, key fields besides the group, and value fields."""
    match record:
        case GroupEpoch(epoch=epoch):
            return "ConsumerGroupMetadata", GROUP_EPOCH_KEY, {}, _unless_gone(epoch, lambda known: {"epoch": known})
        case PartitionMetadata(topics=topics):
            return "ConsumerGroupPartitionMetadata", PARTITION_METADATA_KEY, {}, _unless_gone(topics, _topics)
        case MemberMetadata(member_id=member_id, subscription=subscription):
            value = _unless_gone(subscription, _subscription)
            return "ConsumerGroupMemberMetadata", MEMBER_KEY, {"member_id": member_id}, value
        case TargetEpoch(epoch=epoch):
            value = _unless_gone(epoch, lambda known: {"assignment_epoch": known})
            return "ConsumerGroupTargetAssignmentMetadata", TARGET_EPOCH_KEY, {}, value
        case TargetMember(member_id=member_id, assignment=assignment):
            value = _unless_gone(assignment, lambda known: {"topic_partitions": to_message(known)})
            return "ConsumerGroupTargetAssignmentMember", TARGET_MEMBER_KEY, {"member_id": member_id}, value
        case CurrentAssignment(member_id=member_id, progress=progress):
            value = _unless_gone(progress, _progress)
            name = "ConsumerGroupCurrentMemberAssignment"
            return name, CURRENT_ASSIGNMENT_KEY, {"member_id": member_id}, value
        case Regex(pattern=pattern, resolved=resolved):
            value = _unless_gone(resolved, _resolved)
            return "ConsumerGroupRegularExpression", REGEX_KEY, {"regular_expression": pattern}, value


def _unless_gone(known: T | None, fields: Callable[[T], Fields]) -> Fields | None:
    return None if known is None else fields(known)


def _topics(topics: Mapping[str, SubscribedTopicMetadata]) -> Fields:
    return {
        "topics": [
            {
                "topic_id": topic.topic_id,
                "topic_name": name,
                "num_partitions": topic.partition_count,
                "partition_metadata": [],
            }
            for name, topic in topics.items()
        ]
    }


def _resolved(resolved: ResolvedRegex) -> Fields:
    return {"topics": sorted(resolved.topics), "version": resolved.version, "timestamp": resolved.timestamp_ms}


def _subscription(subscription: MemberSubscription) -> dict[str, Any]:
    return {
        "instance_id": subscription.instance_id,
        "rack_id": subscription.rack_id,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
        "subscribed_topic_regex": subscription.topic_regex,
        "rebalance_timeout_ms": subscription.rebalance_timeout_ms,
        "server_assignor": subscription.server_assignor,
    }


def _progress(progress: AssignmentProgress) -> dict[str, Any]:
    return {
        "member_epoch": progress.epoch,
        "previous_member_epoch": progress.previous_epoch,
        "state": int(progress.state),
        "assigned_partitions": to_message(progress.assigned),
        "partitions_pending_revocation": to_message(progress.pending_revocation),
    }


# -- decoding


def decode(record: CoordinatorRecord) -> tuple[str, ConsumerRecord] | None:
    """Return (group id, record), or None if it is about something else."""
    kind = codec.record_version(record.key)
    name = _NAMES.get(kind)
    if name is None:
        return None
    _, key = codec.decode_record_value(f"{name}Key", record.key)
    value = None if record.value is None else codec.decode_record_value(f"{name}Value", record.value)[1]
    return key.group_id, _decoded(kind, key, value)


_NAMES = {
    GROUP_EPOCH_KEY: "ConsumerGroupMetadata",
    PARTITION_METADATA_KEY: "ConsumerGroupPartitionMetadata",
    MEMBER_KEY: "ConsumerGroupMemberMetadata",
    TARGET_EPOCH_KEY: "ConsumerGroupTargetAssignmentMetadata",
    TARGET_MEMBER_KEY: "ConsumerGroupTargetAssignmentMember",
    CURRENT_ASSIGNMENT_KEY: "ConsumerGroupCurrentMemberAssignment",
    REGEX_KEY: "ConsumerGroupRegularExpression",
}


def _decoded(kind: int, key: Any, value: Any) -> ConsumerRecord:
    match kind:
        case 3:
            return GroupEpoch(epoch=value and value.epoch)
        case 4:
            topics = value and {
                topic.topic_name: SubscribedTopicMetadata(bytes(topic.topic_id), topic.num_partitions)
                for topic in value.topics
            }
            return PartitionMetadata(topics=topics)
        case 5:
            return MemberMetadata(member_id=key.member_id, subscription=value and _subscription_of(value))
        case 6:
            return TargetEpoch(epoch=value and value.assignment_epoch)
        case 7:
            assignment = None if value is None else of_message(value.topic_partitions)
            return TargetMember(member_id=key.member_id, assignment=assignment)
        case 8:
            return CurrentAssignment(member_id=key.member_id, progress=value and _progress_of(value))
        case _:
            resolved = value and ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            return Regex(pattern=key.regular_expression, resolved=resolved)


def _subscription_of(value: Any) -> MemberSubscription:
    return MemberSubscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex or None,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
    )


def _progress_of(value: Any) -> AssignmentProgress:
    return AssignmentProgress(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=of_message(value.assigned_partitions),
        pending_revocation=of_message(value.partitions_pending_revocation),
    )
