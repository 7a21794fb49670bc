"""The states of a record in a share group and their transitions: read by the code, the docs and the tests. Kafka's
records and messages use the same values (KIP-932, and KIP-1191 for ARCHIVING)."""

from __future__ import annotations

from enum import IntEnum


class RecordState(IntEnum):
    """The state of a record between the start offset of a share partition and its end offset."""

    AVAILABLE = 0
    """May be leased to any member."""
    ACQUIRED = 1
    """Leased to one member. Never written: after a failover the record is available again."""
    ACKNOWLEDGED = 2
    """Accepted by a member: final."""
    ARCHIVING = 3
    """Given up, and its dead letter is not written yet."""
    ARCHIVED = 4
    """Given up: final."""


class AcknowledgeType(IntEnum):
    """What a member says of a record that it holds."""

    GAP = 0
    """The member found no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Still at work: the lock begins again (KIP-1222)."""


_AVAILABLE, _ACQUIRED, _ACKNOWLEDGED, _ARCHIVING, _ARCHIVED = RecordState

TRANSITIONS: dict[RecordState, dict[RecordState, str]] = {
    _AVAILABLE: {
        _ACQUIRED: "a member acquires it: its delivery count rises, and its lock begins",
        _ARCHIVED: "the log start passed it, its transaction was aborted, or there is no record at its offset",
    },
    _ACQUIRED: {
        _AVAILABLE: "released, lock expired, or session ended, below the delivery count limit",
        _ACQUIRED: "renewed: its lock begins again, its delivery count stays",
        _ACKNOWLEDGED: "accepted",
        _ARCHIVING: "rejected, or given back at the delivery count limit, with a dead letter topic",
        _ARCHIVED: "rejected, or given back at the delivery count limit, without one; or a gap",
    },
    _ACKNOWLEDGED: {},
    _ARCHIVING: {_ARCHIVED: "its dead letter is written, or cannot be"},
    _ARCHIVED: {},
}
"""State → the states that may follow it, and why they do. A state without any is final."""

FINAL = frozenset(state for state, following in TRANSITIONS.items() if not following)
PERSISTED = frozenset(RecordState) - {_ACQUIRED}

AFTER_ACKNOWLEDGE: dict[AcknowledgeType, RecordState] = {
    AcknowledgeType.GAP: _ARCHIVED,
    AcknowledgeType.ACCEPT: _ACKNOWLEDGED,
    AcknowledgeType.RELEASE: _AVAILABLE,
    AcknowledgeType.REJECT: _ARCHIVED,
    AcknowledgeType.RENEW: _ACQUIRED,
}
"""The state of an acquired record after an acknowledgement. At the delivery count limit a release archives; where there
is a dead letter topic, what is rejected or given up is ARCHIVING first."""
