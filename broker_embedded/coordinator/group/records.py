"""Records of `__consumer_offsets` about classic groups and offsets, to and from Kafka's schemas.

The version of a key tells what the record is about. The records of KIP-848 stand in `consumer/records.py`.
"""

from __future__ import annotations

from functools import lru_cache

from ottla_wire.facts import fact
from ottla_wire.protocol import codec

from ..runtime.shard import CoordinatorRecord
from .classic import GroupSnapshot, MemberSnapshot
from .offsets.committed import OffsetAndMetadata, OffsetKey

OFFSET_KEYS = (0, 1)
GROUP_METADATA_KEY = 2

OFFSET_KEY_VERSION = 1
OFFSET_VALUE_VERSION = 3
OFFSET_VALUE_VERSION_WITH_EXPIRY = 1
"""The only version that carries an expiry of its own (OffsetCommit 2 to 4, retention_time_ms)."""
GROUP_VALUE_VERSION = 3


@fact
class OffsetRecord:
    """An offset, or None for a tombstone."""

    group_id: str
    key: OffsetKey
    committed: OffsetAndMetadata | None


@fact
class ClassicGroupRecord:
    """A classic group, or None for a tombstone. `state_since_ms` is -1 in old records."""

    group_id: str
    snapshot: GroupSnapshot | None
    state_since_ms: int = -1


# -- encoding


def offset_record(group_id: str, key: OffsetKey, committed: OffsetAndMetadata | None) -> CoordinatorRecord:
    """Return the record; `committed` None makes a tombstone."""
    encoded_key = _offset_key(group_id, key.topic, key.partition)
    if committed is None:
        return CoordinatorRecord(encoded_key, None)
    body = {
        "offset": committed.offset,
        "metadata": committed.metadata,
        "commit_timestamp": committed.commit_timestamp_ms,
    }
    if committed.expire_timestamp_ms is None:
        version = OFFSET_VALUE_VERSION
        body["leader_epoch"] = committed.leader_epoch
    else:
        version = OFFSET_VALUE_VERSION_WITH_EXPIRY
        body["expire_timestamp"] = committed.expire_timestamp_ms
    return CoordinatorRecord(encoded_key, codec.encode_record_value("OffsetCommitValue", version, body))


@lru_cache(maxsize=16_384)
def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key of an offset record. Cached: a consumer commits the same few partitions again and again."""
    return codec.encode_record_value(
        "OffsetCommitKey", OFFSET_KEY_VERSION, {"group": group_id, "topic": topic, "partition": partition}
    )


def group_record(group_id: str, snapshot: GroupSnapshot | None, *, state_since_ms: int = -1) -> CoordinatorRecord:
    """Return the record; `snapshot` None makes a tombstone."""
    key = codec.encode_record_value("GroupMetadataKey", GROUP_METADATA_KEY, {"group": group_id})
    if snapshot is None:
        return CoordinatorRecord(key, None)
    body = {
        "protocol_type": snapshot.protocol_type,
        "generation": snapshot.generation,
        "protocol": snapshot.protocol,
        "leader": snapshot.leader,
        "current_state_timestamp": state_since_ms,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout": member.rebalance_timeout_ms,
                "session_timeout": member.session_timeout_ms,
                "subscription": member.subscription,
                "assignment": member.assignment,
            }
            for member in snapshot.members
        ],
    }
    return CoordinatorRecord(key, codec.encode_record_value("GroupMetadataValue", GROUP_VALUE_VERSION, body))


# -- decoding


def decode(record: CoordinatorRecord) -> OffsetRecord | ClassicGroupRecord | None:
    """Decode a record; None for other record types."""
    kind = codec.record_version(record.key)
    if kind in OFFSET_KEYS:
        return _decode_offset(record)
    if kind == GROUP_METADATA_KEY:
        return _decode_group(record)
    return None


def _decode_offset(record: CoordinatorRecord) -> OffsetRecord:
    _, key = codec.decode_record_value("OffsetCommitKey", record.key)
    committed = None
    if record.value is not None:
        _, value = codec.decode_record_value("OffsetCommitValue", record.value)
        committed = OffsetAndMetadata(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            commit_timestamp_ms=value.commit_timestamp,
            expire_timestamp_ms=None if value.expire_timestamp == -1 else value.expire_timestamp,
        )
    return OffsetRecord(group_id=key.group, key=OffsetKey(key.topic, key.partition), committed=committed)


def _decode_group(record: CoordinatorRecord) -> ClassicGroupRecord:
    _, key = codec.decode_record_value("GroupMetadataKey", record.key)
    if record.value is None:
        return ClassicGroupRecord(group_id=key.group, snapshot=None)
    _, value = codec.decode_record_value("GroupMetadataValue", record.value)
    snapshot = GroupSnapshot(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        members=tuple(
            MemberSnapshot(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=bytes(member.subscription),
                assignment=bytes(member.assignment),
            )
            for member in value.members
        ),
    )
    return ClassicGroupRecord(group_id=key.group, snapshot=snapshot, state_since_ms=value.current_state_timestamp)
