"""Encodes and decodes metadata records in Kafka's own format, readable by `kafka-dump-log
--cluster-metadata-decoder`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from broker_embedded.metadata.records import (
    AccessControlEntry,
    BrokerRegistrationChange,
    ChangePartition,
    CreatePartition,
    CreateTopic,
    LeaderRecoveryState,
    MetadataRecord,
    RegisterBroker,
    RemoveAccessControlEntry,
    RemoveTopic,
    RemoveUserScramCredential,
    ReserveProducerIds,
    ResourceType,
    ScramMechanism,
    SetClientQuota,
    SetConfig,
    SetFeatureLevel,
    SupportedFeature,
    UnregisterBroker,
    UserScramCredential,
    quota_entity,
)
from ottla_wire.protocol import codec
from ottla_wire.protocol.message import Message

_NO_LEADER_CHANGE = -2
_NO_RECOVERY_CHANGE = -1
_FENCE, _UNFENCE = 1, -1
_UNKNOWN_DIRECTORY = bytes(16)
_PLAINTEXT = 0


def encode(record: MetadataRecord) -> bytes:
    """Return the value of a record of the metadata log."""
    name, version, body = _TO_WIRE[type(record)](record)
    return codec.encode_metadata_record(name, version, body)


def decode(value: bytes | bytearray | memoryview) -> MetadataRecord | None:
    """Decode a record; None for a kind without state in this broker (NoOpRecord)."""
    name, _, message = codec.decode_metadata_record(value)
    reader = _FROM_WIRE.get(name)
    return None if reader is None else reader(message)


Encoded = tuple[str, int, dict[str, Any]]


def _write_register(record: RegisterBroker) -> Encoded:
    endpoint = {"name": "PLAINTEXT", "host": record.host, "port": record.port, "security_protocol": _PLAINTEXT}
    return (
        "RegisterBrokerRecord",
        3 if record.cordoned_log_dirs is None else 4,  # 4 since metadata.version 4.3-IV0
        {
            "broker_id": record.broker_id,
            "incarnation_id": record.incarnation_id,
            "broker_epoch": record.broker_epoch,
            "end_points": [endpoint],
            "features": [
                {
                    "name": feature.name,
                    "min_supported_version": feature.min_level,
                    "max_supported_version": feature.max_level,
                }
                for feature in record.features
            ],
            "rack": record.rack,
            "fenced": record.fenced,
            "in_controlled_shutdown": record.in_controlled_shutdown,
            "log_dirs": list(record.log_dirs),
            "cordoned_log_dirs": None if record.cordoned_log_dirs is None else list(record.cordoned_log_dirs),
        },
    )


def _read_register(message: Message) -> RegisterBroker:
    endpoint = message.end_points[0]
    return RegisterBroker(
        broker_id=message.broker_id,
        incarnation_id=message.incarnation_id,
        broker_epoch=message.broker_epoch,
        host=endpoint.host,
        port=endpoint.port,
        rack=message.rack,
        features=tuple(
            SupportedFeature(name=each.name, min_level=each.min_supported_version, max_level=each.max_supported_version)
            for each in message.features
        ),
        fenced=message.fenced,
        in_controlled_shutdown=message.in_controlled_shutdown,
        log_dirs=tuple(message.log_dirs),
        cordoned_log_dirs=_cordoned(message),
    )


def _cordoned(message: Message) -> tuple[bytes, ...] | None:
    """Return None also for older versions of the records, whose field decodes as an empty tuple instead of a list."""
    found = message.cordoned_log_dirs
    return tuple(found) if isinstance(found, list) else None


def _write_registration_change(record: BrokerRegistrationChange) -> Encoded:
    body: dict[str, Any] = {
        "broker_id": record.broker_id,
        "broker_epoch": record.broker_epoch,
        "fenced": 0 if record.fenced is None else _FENCE if record.fenced else _UNFENCE,
        "in_controlled_shutdown": int(record.in_controlled_shutdown),
    }
    if record.log_dirs is not None:
        body["log_dirs"] = list(record.log_dirs)
    if record.cordoned_log_dirs is None:
        return "BrokerRegistrationChangeRecord", 2, body
    body["cordoned_log_dirs"] = list(record.cordoned_log_dirs)
    return "BrokerRegistrationChangeRecord", 3, body


def _read_registration_change(message: Message) -> BrokerRegistrationChange:
    return BrokerRegistrationChange(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        fenced=None if message.fenced == 0 else message.fenced == _FENCE,
        in_controlled_shutdown=message.in_controlled_shutdown > 0,
        # As in Kafka, no directories and no change of them look the same: a broker always has one.
        log_dirs=tuple(message.log_dirs) or None,
        cordoned_log_dirs=_cordoned(message),
    )


def _write_partition(record: CreatePartition) -> Encoded:
    return (
        "PartitionRecord",
        1,
        {
            "partition_id": record.partition,
            "topic_id": record.topic_id,
            "replicas": list(record.replicas),
            "isr": list(record.isr),
            "adding_replicas": list(record.adding_replicas),
            "removing_replicas": list(record.removing_replicas),
            "leader": record.leader,
            "leader_epoch": record.leader_epoch,
            "leader_recovery_state": int(record.leader_recovery_state),
            "partition_epoch": record.partition_epoch,
            "directories": list(record.directories) or [_UNKNOWN_DIRECTORY] * len(record.replicas),
        },
    )


def _read_partition(message: Message) -> CreatePartition:
    return CreatePartition(
        topic_id=message.topic_id,
        partition=message.partition_id,
        replicas=tuple(message.replicas),
        isr=tuple(message.isr),
        leader=message.leader,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        adding_replicas=tuple(message.adding_replicas),
        removing_replicas=tuple(message.removing_replicas),
        leader_recovery_state=LeaderRecoveryState(message.leader_recovery_state),
        directories=_known(message.directories),
    )


def _known(directories: list[bytes]) -> tuple[bytes, ...]:
    """Return the directories as partitions keep them: empty if none is known."""
    return tuple(directories) if any(each != _UNKNOWN_DIRECTORY for each in directories) else ()


def _write_partition_change(record: ChangePartition) -> Encoded:
    return (
        "PartitionChangeRecord",
        1,
        {
            "partition_id": record.partition,
            "topic_id": record.topic_id,
            "isr": _optional_list(record.isr),
            "leader": _NO_LEADER_CHANGE if record.leader is None else record.leader,
            "replicas": _optional_list(record.replicas),
            "adding_replicas": _optional_list(record.adding_replicas),
            "removing_replicas": _optional_list(record.removing_replicas),
            "leader_recovery_state": (
                _NO_RECOVERY_CHANGE if record.leader_recovery_state is None else int(record.leader_recovery_state)
            ),
            "directories": None if record.directories is None else list(record.directories),
        },
    )


def _read_partition_change(message: Message) -> ChangePartition:
    return ChangePartition(
        topic_id=message.topic_id,
        partition=message.partition_id,
        isr=_optional_tuple(message.isr),
        leader=None if message.leader == _NO_LEADER_CHANGE else message.leader,
        replicas=_optional_tuple(message.replicas),
        adding_replicas=_optional_tuple(message.adding_replicas),
        removing_replicas=_optional_tuple(message.removing_replicas),
        leader_recovery_state=(
            None
            if message.leader_recovery_state == _NO_RECOVERY_CHANGE
            else LeaderRecoveryState(message.leader_recovery_state)
        ),
        directories=None if message.directories is None else tuple(message.directories),
    )


def _write_acl(record: AccessControlEntry) -> Encoded:
    return "AccessControlEntryRecord", 0, {"id": record.acl_id, **record.acl.fields()}


def _read_acl(message: Message) -> AccessControlEntry:
    from broker_embedded.metadata.acls import AclBinding, AclOperation, AclResource, PatternType, Permission

    return AccessControlEntry(
        acl_id=bytes(message.id),
        acl=AclBinding(
            resource=AclResource(message.resource_type),
            name=message.resource_name,
            pattern=PatternType(message.pattern_type),
            principal=message.principal,
            host=message.host,
            operation=AclOperation(message.operation),
            permission=Permission(message.permission_type),
        ),
    )


def _optional_list(values: tuple[int, ...] | None) -> list[int] | None:
    return None if values is None else list(values)


def _optional_tuple(values: list[int] | None) -> tuple[int, ...] | None:
    return None if values is None else tuple(values)


def _write_client_quota(record: SetClientQuota) -> Encoded:
    return (
        "ClientQuotaRecord",
        0,
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in record.entity],
            "key": record.key,
            "value": record.value or 0.0,
            "remove": record.value is None,
        },
    )


def _read_client_quota(message: Message) -> SetClientQuota:
    return SetClientQuota(
        entity=quota_entity((each.entity_type, each.entity_name) for each in message.entity),
        key=message.key,
        value=None if message.remove else message.value,
    )


class _Plain(NamedTuple):
    """How a record with the fields of Kafka's record is written and read, in one version of it.

    Some fields may have another name or type than Kafka's. Records of topics and partitions have functions of their
    own, because a cluster may have thousands of them and this table takes some microseconds more for each.
    """

    record: type[Any]
    name: str
    renamed: Mapping[str, str] = {}
    """Kafka's name of a field, where it differs from ours."""
    readers: Mapping[str, Callable[[Any], Any]] = {}
    """How a field is read: numbers of an enum, bytes that a buffer holds."""

    def write(self, record: Any) -> Encoded:
        names = self.record.__annotations__
        return self.name, 0, {self.renamed.get(name, name): getattr(record, name) for name in names}

    def read(self, message: Message) -> Any:
        values = {name: getattr(message, self.renamed.get(name, name)) for name in self.record.__annotations__}
        return self.record(**values | {name: read(values[name]) for name, read in self.readers.items()})


_CREDENTIAL = {"mechanism": ScramMechanism, "salt": bytes, "stored_key": bytes, "server_key": bytes}
_PLAIN = (
    _Plain(UnregisterBroker, "UnregisterBrokerRecord"),
    _Plain(RemoveTopic, "RemoveTopicRecord"),
    _Plain(SetConfig, "ConfigRecord", readers={"resource_type": ResourceType}),
    _Plain(ReserveProducerIds, "ProducerIdsRecord"),
    _Plain(SetFeatureLevel, "FeatureLevelRecord", renamed={"level": "feature_level"}),
    _Plain(UserScramCredential, "UserScramCredentialRecord", readers=_CREDENTIAL),
    _Plain(RemoveUserScramCredential, "RemoveUserScramCredentialRecord", readers={"mechanism": ScramMechanism}),
    _Plain(RemoveAccessControlEntry, "RemoveAccessControlEntryRecord", {"acl_id": "id"}, {"acl_id": bytes}),
)

_TO_WIRE: dict[type, Callable[[Any], Encoded]] = {
    RegisterBroker: _write_register,
    BrokerRegistrationChange: _write_registration_change,
    CreateTopic: lambda record: ("TopicRecord", 0, {"name": record.name, "topic_id": record.topic_id}),
    CreatePartition: _write_partition,
    ChangePartition: _write_partition_change,
    SetClientQuota: _write_client_quota,
    AccessControlEntry: _write_acl,
    **{plain.record: plain.write for plain in _PLAIN},
}

_FROM_WIRE: dict[str, Callable[[Message], MetadataRecord]] = {
    "RegisterBrokerRecord": _read_register,
    "BrokerRegistrationChangeRecord": _read_registration_change,
    "TopicRecord": lambda message: CreateTopic(name=message.name, topic_id=message.topic_id),
    "PartitionRecord": _read_partition,
    "PartitionChangeRecord": _read_partition_change,
    "ClientQuotaRecord": _read_client_quota,
    "AccessControlEntryRecord": _read_acl,
    **{plain.name: plain.read for plain in _PLAIN},
}
