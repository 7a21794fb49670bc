"""The records of KIP-848 groups and of share groups in the log, converted to and from Kafka's schemas.

A value of None is a tombstone. The kind of a record is the version of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from ottla_wire.facts import fact
from ottla_wire.protocol import codec, schemas
from ottla_wire.protocol.message import Message

from ..runtime.shard import CoordinatorRecord
from .consumer.assignment import Assignment, of_message, to_message
from .consumer.member import AssignmentProgress, MemberState, MemberSubscription

R = TypeVar("R")
Fields: TypeAlias = dict[str, Any]

_OF_ONE_TYPE: Final = frozenset(
    {
        "assignment_timestamp",
        "instance_id",
        "partitions_pending_revocation",
        "rebalance_timeout_ms",
        "server_assignor",
        "subscribed_topic_regex",
    }
)
"""Fields of values that only one of both types of groups has. Any other that the schema lacks is a mistake."""


@fact
class GroupEpoch:
    epoch: int | None
    metadata_hash: int = 0
    """Used by share groups only."""


@fact
class MemberMetadata:
    member_id: str
    subscription: MemberSubscription | None


@fact
class TargetEpoch:
    epoch: int | None
    timestamp_ms: int = 0
    """Used by share groups only."""


@fact
class TargetMember:
    member_id: str
    assignment: Assignment | None


@fact
class CurrentAssignment:
    member_id: str
    progress: AssignmentProgress | None


MemberRecord: TypeAlias = GroupEpoch | MemberMetadata | TargetEpoch | TargetMember | CurrentAssignment


class RecordKind(NamedTuple):
    """One kind of record, with the names of Kafka's schemas (`name` and Key, `name` and Value)."""

    number: int
    name: str
    record: type[Any]
    value: str
    """The field that is None in a tombstone."""
    write: Callable[[Any], Fields]
    """Returns the fields of the value. `encode` leaves out those of the other type of groups."""
    read: Callable[[Message], Fields]
    """The fields of the record that are in the value."""
    key: Mapping[str, str] = {}
    """Fields of the record that are in the key, and Kafka's names of them."""


class RecordKinds(Generic[R]):
    """The records of one type of groups."""

    def __init__(self, *kinds: RecordKind) -> None:
        self._by_class = {kind.record: kind for kind in kinds}
        self._by_number = {kind.number: kind for kind in kinds}

    def is_tombstone(self, record: R) -> bool:
        return getattr(record, self._by_class[type(record)].value) is None

    def encode(self, group_id: str, record: R) -> CoordinatorRecord:
        kind = self._by_class[type(record)]
        key = {theirs: getattr(record, ours) for ours, theirs in kind.key.items()}
        encoded_key = codec.encode_record_value(f"{kind.name}Key", kind.number, {"group_id": group_id, **key})
        if self.is_tombstone(record):
            return CoordinatorRecord(encoded_key, None)
        known = {field.name for field in schemas.record(f"{kind.name}Value").struct.fields}
        written = kind.write(record).items()
        value = {name: field for name, field in written if name in known or name not in _OF_ONE_TYPE}
        return CoordinatorRecord(encoded_key, codec.encode_record_value(f"{kind.name}Value", 0, value))

    def decode(self, record: CoordinatorRecord) -> tuple[str, R] | None:
        """Return (group id, record), or None if it is about something else."""
        kind = self._by_number.get(codec.record_version(record.key))
        if kind is None:
            return None
        _, key = codec.decode_record_value(f"{kind.name}Key", record.key)
        fields: Fields = {kind.value: None}
        if record.value is not None:
            fields = kind.read(codec.decode_record_value(f"{kind.name}Value", record.value)[1])
        fields |= {ours: getattr(key, theirs) for ours, theirs in kind.key.items()}
        return key.group_id, kind.record(**fields)


def member_kinds(
    prefix: str, *, group: int, member: int, target_epoch: int, target: int, current: int
) -> tuple[RecordKind, ...]:
    """Return the kinds that both types of groups have. `prefix`: of the schemas' names."""
    of_member = {"member_id": "member_id"}
    return (
        RecordKind(
            group,
            f"{prefix}Metadata",
            GroupEpoch,
            "epoch",
            lambda record: {"epoch": record.epoch, "metadata_hash": record.metadata_hash},
            lambda value: {"epoch": value.epoch, "metadata_hash": value.metadata_hash},
        ),
        RecordKind(
            member,
            f"{prefix}MemberMetadata",
            MemberMetadata,
            "subscription",
            _subscription,
            _subscription_of,
            of_member,
        ),
        RecordKind(
            target_epoch,
            f"{prefix}TargetAssignmentMetadata",
            TargetEpoch,
            "epoch",
            lambda record: {"assignment_epoch": record.epoch, "assignment_timestamp": record.timestamp_ms},
            lambda value: {
                "epoch": value.assignment_epoch,
                "timestamp_ms": getattr(value, "assignment_timestamp", 0),
            },
        ),
        RecordKind(
            target,
            f"{prefix}TargetAssignmentMember",
            TargetMember,
            "assignment",
            lambda record: {"topic_partitions": to_message(record.assignment)},
            lambda value: {"assignment": of_message(value.topic_partitions)},
            of_member,
        ),
        RecordKind(
            current,
            f"{prefix}CurrentMemberAssignment",
            CurrentAssignment,
            "progress",
            _progress,
            _progress_of,
            of_member,
        ),
    )


def _subscription(record: MemberMetadata) -> Fields:
    subscription = record.subscription
    assert subscription is not None
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


def _subscription_of(value: Message) -> Fields:
    subscription = MemberSubscription(
        instance_id=getattr(value, "instance_id", None),
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=getattr(value, "subscribed_topic_regex", None) or None,
        rebalance_timeout_ms=getattr(value, "rebalance_timeout_ms", -1),
        server_assignor=getattr(value, "server_assignor", None),
    )
    return {"subscription": subscription}


def _progress(record: CurrentAssignment) -> Fields:
    progress = record.progress
    assert progress is not None
    return {
        "member_epoch": progress.epoch,
        "previous_member_epoch": progress.previous_epoch,
        "state": int(progress.state),
        "assigned_partitions": to_message(progress.assigned),
        "partitions_pending_revocation": to_message(progress.pending_revocation),
    }


def _progress_of(value: Message) -> Fields:
    progress = AssignmentProgress(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState.of(value.state),
        assigned=of_message(value.assigned_partitions),
        pending_revocation=of_message(getattr(value, "partitions_pending_revocation", ())),
    )
    return {"progress": progress}
