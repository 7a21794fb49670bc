"""The state that KIP-848 groups and share groups have in common: a function of its records.

group epoch         moves when subscriptions, members or topics change
assignment epoch    the group epoch for which the target was computed
member epoch        how far a member has come towards it
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Generic, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.metadata.image import ClusterImage
from ottla_wire.protocol import ErrorCode

from .consumer.assignment import NOTHING, Assignment
from .consumer.member import AssignmentProgress, ConsumerMember, MemberSubscription
from .member_records import CurrentAssignment, GroupEpoch, MemberMetadata, MemberRecord, TargetEpoch, TargetMember

R = TypeVar("R")


class TimedGroup(ABC, Generic[R]):
    """Changed by `replay` alone, except for deadlines and the time of the assignment, which are not kept."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.session_deadlines_ms: dict[str, int] = {}
        self.assigned_at_ms: int | None = None
        """When the target was computed, if on this broker."""
        self.checked_image: ClusterImage | None = None
        """The metadata image whose topics are reflected in the group epoch."""

    @property
    @abstractmethod
    def state(self) -> Enum:
        """The value is the name that clients see."""

    @abstractmethod
    def replay(self, record: R) -> None:
        """Apply a record. Compaction may have dropped earlier records of the group; defaults replace them."""

    @abstractmethod
    def tombstones(self) -> Iterator[R]:
        """Return tombstones for all records of the group; the group's own record last."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def check_room(self, max_size: int) -> None:
        """Raise BrokerError if no member may join."""
        if len(self.members) >= max_size:
            found = f"the group has {len(self.members)} members, its maximum"
            raise BrokerError(ErrorCode.GROUP_MAX_SIZE_REACHED, found)

    def unknown_member(self, member_id: str) -> BrokerError:
        return BrokerError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {self.group_id}")

    def must_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Return whether the target is older than the group, and old enough for the next one."""
        may_assign = self.assigned_at_ms is None or now_ms - self.assigned_at_ms >= interval_ms
        return self.epoch > self.assignment_epoch and may_assign

    def silent_members(self, now_ms: int) -> list[str]:
        """Return the members whose session has expired."""
        return [member_id for member_id, deadline_ms in self.session_deadlines_ms.items() if deadline_ms <= now_ms]

    def earliest_deadline_ms(self) -> int | None:
        return min(self.session_deadlines_ms.values(), default=None)

    def start_deadlines(self, *, now_ms: int, session_timeout_ms: int) -> None:
        """Give every member a whole session: the group was read from the log."""
        self.session_deadlines_ms = dict.fromkeys(self.members, now_ms + session_timeout_ms)

    def replay_member(self, record: MemberRecord) -> None:
        """Apply a record of a member or of the whole group. Compaction may have left a member's metadata behind its
        assignment."""
        match record:
            case GroupEpoch(epoch=epoch):
                self.epoch = epoch or 0
            case MemberMetadata(member_id=member_id, subscription=None):
                self.remove_member(member_id)
            case MemberMetadata(member_id=member_id, subscription=subscription):
                assert subscription is not None
                self.set_subscription(member_id, subscription)
            case TargetEpoch(epoch=epoch):
                self.assignment_epoch = -1 if epoch is None else epoch
            case TargetMember(member_id=member_id, assignment=None):
                self.targets.pop(member_id, None)
            case TargetMember(member_id=member_id, assignment=assignment):
                self.targets[member_id] = assignment or NOTHING
            case CurrentAssignment(member_id=member_id, progress=progress):
                if progress is not None or member_id in self.members:
                    self.set_progress(member_id, progress or AssignmentProgress())

    def remove_member(self, member_id: str) -> ConsumerMember | None:
        self.session_deadlines_ms.pop(member_id, None)
        return self.members.pop(member_id, None)

    def set_subscription(self, member_id: str, subscription: MemberSubscription) -> None:
        known = self.members.get(member_id)
        progress = AssignmentProgress() if known is None else known.progress
        self.members[member_id] = ConsumerMember(member_id=member_id, subscription=subscription, progress=progress)

    def set_progress(self, member_id: str, progress: AssignmentProgress) -> None:
        known = self.members.get(member_id)
        subscription = MemberSubscription() if known is None else known.subscription
        self.members[member_id] = ConsumerMember(member_id=member_id, subscription=subscription, progress=progress)

    def member_tombstones(self) -> Iterator[MemberRecord]:
        """Return tombstones for the records of members and targets."""
        for member_id in self.members:
            yield CurrentAssignment(member_id=member_id, progress=None)
        for member_id in self.targets:
            yield TargetMember(member_id=member_id, assignment=None)
        yield TargetEpoch(epoch=None)
        for member_id in self.members:
            yield MemberMetadata(member_id=member_id, subscription=None)
