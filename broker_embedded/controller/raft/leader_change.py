"""The control batch with which a leader begins its epoch: Kafka's LeaderChangeMessage, version 0."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from broker_embedded.controller.raft.effects import AppendLeaderChange
from ottla_wire.protocol.primitives import encode_uvarint
from ottla_wire.records import record
from ottla_wire.records.control import ControlType

_KEY = Struct(">hh")  # version, type
_HEAD = Struct(">hi")  # version, leader id
_VOTER = Struct(">ib")  # voter id, no tagged fields


def encode_leader_change(change: AppendLeaderChange, *, now_ms: int) -> bytes:
    """Encode one batch at offset 0 without an epoch: the log sets both."""
    value = (
        _HEAD.pack(0, change.leader_id) + _voters(change.voters) + _voters(change.granting_voters) + encode_uvarint(0)
    )
    key = _KEY.pack(0, ControlType.LEADER_CHANGE)
    message = record.RecordData(offset=0, timestamp_ms=now_ms, key=key, value=value, headers=())
    return record.encode_batch([message], is_control=True)


def _voters(voters: Sequence[int]) -> bytes:
    """A compact array: its length and one."""
    return encode_uvarint(len(voters) + 1) + b"".join(_VOTER.pack(voter, 0) for voter in voters)
