"""One member of a KIP-848 group or of a share group: its subscription and its progress."""

from __future__ import annotations

from enum import IntEnum

from ottla_wire.facts import fact

from .assignment import NOTHING, Assignment

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member that leaves for a while: its partitions are kept for it until its session expires."""


class MemberState(IntEnum):
    """A member's progress towards its target assignment. The values are those in the group's records."""

    STABLE = 0
    """Has reached the target of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """Has to give partitions back before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """Waits for partitions that other members have not given back."""
    UNKNOWN = 127
    """Written by a newer broker."""

    @classmethod
    def of(cls, value: int) -> MemberState:
        return cls(value) if value in (0, 1, 2) else cls.UNKNOWN


@fact
class MemberSubscription:
    """A member's own metadata (ConsumerGroupMemberMetadataValue)."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None


@fact
class AssignmentProgress:
    """Assignment state of a member (ConsumerGroupCurrentMemberAssignmentValue)."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch


@fact
class ConsumerMember:
    member_id: str
    subscription: MemberSubscription = MemberSubscription()
    progress: AssignmentProgress = AssignmentProgress()
