"""Records of `__share_group_state`, to and from Kafka's schemas. A snapshot without a value is a tombstone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from broker_embedded.share.events import StateBatch
from broker_embedded.share.persister import ShareKey
from broker_embedded.share.states import RecordState
from ottla_wire.protocol import codec

from ..runtime.shard import CoordinatorRecord
from .state import ShareState, StateUpdate

SNAPSHOT_KEY, UPDATE_KEY = 0, 1


def snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    body = {
        "snapshot_epoch": state.snapshot_epoch,
        "state_epoch": state.state_epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start_offset,
        "delivery_complete_count": state.complete_count,
        "create_timestamp": state.created_ms,
        "write_timestamp": state.written_ms,
        "state_batches": batches_to_message(state.batches),
    }
    return CoordinatorRecord(_key("ShareSnapshotKey", SNAPSHOT_KEY, key), _value("ShareSnapshotValue", body))


def update_record(key: ShareKey, update: StateUpdate, *, snapshot_epoch: int) -> CoordinatorRecord:
    body = {
        "snapshot_epoch": snapshot_epoch,
        "leader_epoch": update.leader_epoch,
        "start_offset": update.start_offset,
        "delivery_complete_count": update.complete_count,
        "state_batches": batches_to_message(update.batches),
    }
    return CoordinatorRecord(_key("ShareUpdateKey", UPDATE_KEY, key), _value("ShareUpdateValue", body))


def tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(_key("ShareSnapshotKey", SNAPSHOT_KEY, key), None)


def decode(record: CoordinatorRecord) -> tuple[ShareKey, ShareState | StateUpdate | None] | None:
    """Return the share partition and its state, update, or None if it was deleted; None for another kind of record."""
    kind = codec.record_version(record.key)
    if kind not in (SNAPSHOT_KEY, UPDATE_KEY):
        return None
    name = "ShareSnapshot" if kind == SNAPSHOT_KEY else "ShareUpdate"
    _, key = codec.decode_record_value(f"{name}Key", record.key)
    share_key = ShareKey(key.group_id, bytes(key.topic_id), key.partition)
    if record.value is None:
        return share_key, None
    _, value = codec.decode_record_value(f"{name}Value", record.value)
    if kind == UPDATE_KEY:
        return share_key, StateUpdate(
            leader_epoch=value.leader_epoch,
            start_offset=value.start_offset,
            batches=batches_of(value.state_batches),
            complete_count=value.delivery_complete_count,
        )
    return share_key, ShareState(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        batches=batches_of(value.state_batches),
        complete_count=value.delivery_complete_count,
        created_ms=value.create_timestamp,
        written_ms=value.write_timestamp,
    )


def batches_to_message(batches: Iterable[StateBatch]) -> list[dict[str, Any]]:
    """Return the StateBatch of records and of requests."""
    return [
        {"first_offset": first, "last_offset": last, "delivery_state": int(state), "delivery_count": count}
        for first, last, state, count in batches
    ]


def batches_of(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
        for each in batches
    )


def _key(name: str, version: int, key: ShareKey) -> bytes:
    return codec.encode_record_value(name, version, key._asdict())


def _value(name: str, body: dict[str, Any]) -> bytes:
    return codec.encode_record_value(name, 0, body)
