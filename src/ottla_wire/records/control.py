"""Control records: how a transaction ended, told to readers inside the log."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct, error
from typing import NamedTuple

from ottla_wire.protocol.exceptions import ProtocolError

_KEY = Struct(">hh")  # version, type
_END_TXN_VALUE = Struct(">hi")  # version, coordinator epoch


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class AbortedTransaction(NamedTuple):
    """One aborted transaction as Fetch lists it: records of `producer_id` from `first_offset` to its marker are to be
    skipped by a read_committed reader."""

    producer_id: int
    first_offset: int


class EndTxnMarker(NamedTuple):
    control_type: ControlType  # ABORT or COMMIT
    coordinator_epoch: int


def encode_end_txn_marker(control_type: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of the one record in a transaction's last batch."""
    return _KEY.pack(0, control_type), _END_TXN_VALUE.pack(0, coordinator_epoch)


def decode_control_type(key: bytes | None) -> ControlType | None:
    """Return None for a type that this version does not know: a reader skips it."""
    try:
        _, kind = _KEY.unpack_from(key or b"")
    except error:
        raise ProtocolError(f"its key has {len(key or b'')} bytes, wanted 4", message="control record") from None
    try:
        return ControlType(kind)
    except ValueError:
        return None


def decode_end_txn_marker(key: bytes | None, value: bytes | None) -> EndTxnMarker:
    kind = decode_control_type(key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        raise ProtocolError(f"type {kind} ends no transaction", message="control record")
    try:
        _, coordinator_epoch = _END_TXN_VALUE.unpack_from(value or b"")
    except error:
        raise ProtocolError("its value is too short", message="control record") from None
    return EndTxnMarker(kind, coordinator_epoch)
