"""What the log keeps of a share group, as typed records to and from Kafka's schemas. None is a tombstone."""

from __future__ import annotations

from typing import Any, TypeAlias

from ottla_wire.facts import fact
from ottla_wire.protocol import codec

from ...runtime.shard import CoordinatorRecord
from ..consumer.assignment import NOTHING, Assignment, of_message, to_message

_MEMBER, _GROUP, _TARGET_EPOCH, _TARGET, _CURRENT, _PARTITIONS = range(10, 16)
_NAMES = {
    _MEMBER: "ShareGroupMemberMetadata",
    _GROUP: "ShareGroupMetadata",
    _TARGET_EPOCH: "ShareGroupTargetAssignmentMetadata",
    _TARGET: "ShareGroupTargetAssignmentMember",
    _CURRENT: "ShareGroupCurrentMemberAssignment",
    _PARTITIONS: "ShareGroupStatePartitionMetadata",
}
STABLE = 0
"""The only state of a member."""


@fact
class Subscription:
    """A member's own metadata."""

    topic_names: frozenset[str] = frozenset()
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""


@fact
class Progress:
    """A member's epoch and assignment."""

    epoch: int = 0
    previous_epoch: int = -1
    assigned: Assignment = NOTHING


@fact
class StatePartitions:
    """The share partitions whose state the share coordinator has, or is about to have."""

    initializing: Assignment = NOTHING
    initialized: Assignment = NOTHING
    names: tuple[tuple[bytes, str], ...] = ()
    """Topic id and name of each topic in here."""


@fact
class MemberRecord:
    member_id: str
    subscription: Subscription | None


@fact
class GroupRecord:
    epoch: int | None
    metadata_hash: int = 0


@fact
class TargetEpochRecord:
    epoch: int | None
    timestamp_ms: int = 0


@fact
class TargetRecord:
    member_id: str
    assignment: Assignment | None


@fact
class CurrentRecord:
    member_id: str
    progress: Progress | None


@fact
class PartitionsRecord:
    partitions: StatePartitions | None


ShareRecord: TypeAlias = (
    MemberRecord | GroupRecord | TargetEpochRecord | TargetRecord | CurrentRecord | PartitionsRecord
)


def encode(group_id: str, record: ShareRecord) -> CoordinatorRecord:
    kind, key, value = _parts(record)
    name = _NAMES[kind]
    encoded_key = codec.encode_record_value(f"{name}Key", kind, {"group_id": group_id, **key})
    return CoordinatorRecord(
        encoded_key, None if value is None else codec.encode_record_value(f"{name}Value", 0, value)
    )


def _parts(record: ShareRecord) -> tuple[int, dict[str, Any], dict[str, Any] | None]:
    """Return kind, key fields besides the group, value fields."""
    value: dict[str, Any] | None = None
    match record:
        case MemberRecord(member_id=member_id, subscription=subscription):
            if subscription is not None:
                value = _subscription(subscription)
            return _MEMBER, {"member_id": member_id}, value
        case GroupRecord(epoch=epoch):
            if epoch is not None:
                value = {"epoch": epoch, "metadata_hash": record.metadata_hash}
            return _GROUP, {}, value
        case TargetEpochRecord(epoch=epoch):
            if epoch is not None:
                value = {"assignment_epoch": epoch, "assignment_timestamp": record.timestamp_ms}
            return _TARGET_EPOCH, {}, value
        case TargetRecord(member_id=member_id, assignment=assignment):
            if assignment is not None:
                value = {"topic_partitions": to_message(assignment)}
            return _TARGET, {"member_id": member_id}, value
        case CurrentRecord(member_id=member_id, progress=progress):
            if progress is not None:
                value = _progress(progress)
            return _CURRENT, {"member_id": member_id}, value
        case PartitionsRecord(partitions=partitions):
            if partitions is not None:
                value = _partitions(partitions)
            return _PARTITIONS, {}, value


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {
        "rack_id": subscription.rack_id,
        "client_id": subscription.client_id,
        "client_host": subscription.client_host,
        "subscribed_topic_names": sorted(subscription.topic_names),
    }


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "member_epoch": progress.epoch,
        "previous_member_epoch": progress.previous_epoch,
        "state": STABLE,
        "assigned_partitions": to_message(progress.assigned),
    }


def _partitions(partitions: StatePartitions) -> dict[str, Any]:
    names = dict(partitions.names)

    def named(topics: Assignment) -> list[dict[str, Any]]:
        return [{**topic, "topic_name": names.get(topic["topic_id"], "")} for topic in to_message(topics)]

    return {
        "initializing_topics": named(partitions.initializing),
        "initialized_topics": named(partitions.initialized),
        "deleting_topics": [],
    }


def decode(record: CoordinatorRecord) -> tuple[str, ShareRecord] | None:
    """Return group id and record, or None if it is about something else."""
    kind = codec.record_version(record.key)
    name = _NAMES.get(kind)
    if name is None:
        return None
    _, key = codec.decode_record_value(f"{name}Key", record.key)
    value = None if record.value is None else codec.decode_record_value(f"{name}Value", record.value)[1]
    return key.group_id, _decoded(kind, key, value)


def _decoded(kind: int, key: Any, value: Any) -> ShareRecord:
    match kind:
        case 10:
            return MemberRecord(member_id=key.member_id, subscription=value and _subscription_of(value))
        case 11:
            return GroupRecord(epoch=value and value.epoch, metadata_hash=0 if value is None else value.metadata_hash)
        case 12:
            timestamp_ms = 0 if value is None else value.assignment_timestamp
            return TargetEpochRecord(epoch=value and value.assignment_epoch, timestamp_ms=timestamp_ms)
        case 13:
            assignment = None if value is None else of_message(value.topic_partitions)
            return TargetRecord(member_id=key.member_id, assignment=assignment)
        case 14:
            progress = value and Progress(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                assigned=of_message(value.assigned_partitions),
            )
            return CurrentRecord(member_id=key.member_id, progress=progress)
        case _:
            return PartitionsRecord(partitions=value and _partitions_of(value))


def _subscription_of(value: Any) -> Subscription:
    return Subscription(
        topic_names=frozenset(value.subscribed_topic_names),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
    )


def _partitions_of(value: Any) -> StatePartitions:
    topics = [*value.initializing_topics, *value.initialized_topics]
    return StatePartitions(
        initializing=of_message(value.initializing_topics),
        initialized=of_message(value.initialized_topics),
        names=tuple(sorted({(bytes(topic.topic_id), topic.topic_name) for topic in topics})),
    )
