"""The state of one KIP-848 group: a function of its records, and the questions one can ask it.

    group epoch         moves when subscriptions, members or topics change
    assignment epoch    the group epoch for which the target was computed
    member epoch        how far a member has come towards it

A partition has one owner at most (`is_owned`), from the moment its record says so until its record says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from ottla_wire.protocol import ErrorCode

from .assignment import NOTHING, Assignment, TopicIdPartition
from .member import AssignmentProgress, ConsumerMember, MemberSubscription
from .records import (
    ConsumerRecord,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    PartitionMetadata,
    Regex,
    ResolvedRegex,
    SubscribedTopicMetadata,
    TargetEpoch,
    TargetMember,
)


class ConsumerGroupState(Enum):
    """The value is the name that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target is older than the group."""
    RECONCILING = "Reconciling"
    """Members are moving to the target."""
    STABLE = "Stable"


class ConsumerGroup:
    """Changed by `replay` alone, except for deadlines and the time of the assignment, which are not kept."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        """instance id -> member id."""
        self.targets: dict[str, Assignment] = {}
        self.topics: dict[str, SubscribedTopicMetadata] = {}
        """The subscribed topics as they were when the group epoch last moved."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[TopicIdPartition, str] = {}

        self.session_deadlines_ms: dict[str, int] = {}
        self.rebalance_deadlines_ms: dict[str, tuple[int, int]] = {}
        """member id -> (deadline, member epoch): give partitions back by then."""
        self.assigned_at_ms: int | None = None
        """When the target was computed, if on this broker."""
        self.checked_image: object = None
        """The metadata image that `topics` and `regexes` were last compared with."""

    # -- questions

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        are_reconciled = all(
            member.progress.is_reconciled_to(self.assignment_epoch) for member in self.members.values()
        )
        return ConsumerGroupState.STABLE if are_reconciled else ConsumerGroupState.RECONCILING

    def static_member(self, instance_id: str) -> ConsumerMember | None:
        return self.members.get(self.static_members.get(instance_id, ""))

    def target_of(self, member: ConsumerMember) -> Assignment:
        """Return the member's target assignment. A static member that returned under a new id has its predecessor's
        until a new target is computed."""
        if member.member_id in self.targets:
            return self.targets[member.member_id]
        instance_id = member.subscription.instance_id
        previous = self.static_members.get(instance_id) if instance_id is not None else None
        return self.targets.get(previous, NOTHING) if previous is not None else NOTHING

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Return whether the last target is old enough for the next one."""
        return self.assigned_at_ms is None or now_ms - self.assigned_at_ms >= interval_ms

    def is_owned(self, partition: TopicIdPartition) -> bool:
        return partition in self._owners

    def topics_of(self, subscription: MemberSubscription) -> frozenset[str]:
        """Return the names subscribed to, by name or by pattern; they need not exist."""
        if subscription.topic_regex is None:
            return subscription.topic_names
        resolved = self.regexes.get(subscription.topic_regex)
        return subscription.topic_names | (resolved.topics if resolved is not None else frozenset())

    def assignor(self, default: str, members: Mapping[str, ConsumerMember] | None = None) -> str:
        """Return the assignor that most members request; the default without requests."""
        votes: dict[str, int] = {}
        for member in (self.members if members is None else members).values():
            name = member.subscription.server_assignor
            if name is not None:
                votes[name] = votes.get(name, 0) + 1
        return max(votes, key=lambda name: votes[name]) if votes else default

    # -- what offsets and operators ask (as of a classic group)

    def check_offset_commit(
        self, member_id: str, member_epoch: int, *, knows_member_epochs: bool, is_transactional: bool = False
    ) -> ErrorCode:
        """Check that a commit is of the member's current epoch: an older one could overwrite a later owner's commit."""
        if member_epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        if is_transactional and member_epoch < 0 and not member_id:
            return ErrorCode.NONE  # before TxnOffsetCommit 3 nobody says who commits
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not knows_member_epochs and not is_transactional:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE if member_epoch == member.progress.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        if member_id is None and member_epoch < 0:
            return ErrorCode.NONE
        member = self.members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.progress.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member.subscription) for member in self.members.values())

    # -- changes

    def replay(self, record: ConsumerRecord) -> None:
        """Apply a record. Compaction may have dropped earlier records of the group; defaults replace them."""
        match record:
            case GroupEpoch(epoch=epoch):
                self.epoch = epoch or 0
            case PartitionMetadata(topics=topics):
                self.topics = dict(topics or {})
            case MemberMetadata(member_id=member_id, subscription=None):
                self._remove(member_id)
            case MemberMetadata(member_id=member_id, subscription=subscription):
                assert subscription is not None
                self._subscribe(member_id, subscription)
            case TargetEpoch(epoch=epoch):
                self.assignment_epoch = -1 if epoch is None else epoch
            case TargetMember(member_id=member_id, assignment=None):
                self.targets.pop(member_id, None)
            case TargetMember(member_id=member_id, assignment=assignment):
                self.targets[member_id] = assignment or NOTHING
            case CurrentAssignment(member_id=member_id, progress=None):
                self._move(member_id, AssignmentProgress())
            case CurrentAssignment(member_id=member_id, progress=progress):
                assert progress is not None
                self._move(member_id, progress)
            case Regex(pattern=pattern, resolved=None):
                self.regexes.pop(pattern, None)
            case Regex(pattern=pattern, resolved=resolved):
                assert resolved is not None
                self.regexes[pattern] = resolved

    def tombstones(self) -> Iterator[ConsumerRecord]:
        """Return tombstones for all records of the group; the group's own record last."""
        for member_id in self.members:
            yield CurrentAssignment(member_id=member_id, progress=None)
        for member_id in self.targets:
            yield TargetMember(member_id=member_id, assignment=None)
        yield TargetEpoch(epoch=None)
        for member_id in self.members:
            yield MemberMetadata(member_id=member_id, subscription=None)
        for pattern in self.regexes:
            yield Regex(pattern=pattern, resolved=None)
        yield PartitionMetadata(topics=None)
        yield GroupEpoch(epoch=None)

    def _subscribe(self, member_id: str, subscription: MemberSubscription) -> None:
        known = self.members.get(member_id)
        progress = AssignmentProgress() if known is None else known.progress
        self.members[member_id] = ConsumerMember(member_id=member_id, subscription=subscription, progress=progress)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def _move(self, member_id: str, progress: AssignmentProgress) -> None:
        member = self.members.get(member_id)
        if member is None:
            # Only its tombstone can be here without the member, after compaction.
            return
        self._release(member)
        self.members[member_id] = ConsumerMember(
            member_id=member_id, subscription=member.subscription, progress=progress
        )
        for partition in progress.assigned | progress.pending_revocation:
            self._owners[partition] = member_id

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        self.session_deadlines_ms.pop(member_id, None)
        self.rebalance_deadlines_ms.pop(member_id, None)
        if member is None:
            return
        self._release(member)
        instance_id = member.subscription.instance_id
        if instance_id is not None and self.static_members.get(instance_id) == member_id:
            del self.static_members[instance_id]

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.progress.assigned | member.progress.pending_revocation:
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    # -- deadlines

    def earliest_deadline_ms(self) -> int | None:
        deadlines = list(self.session_deadlines_ms.values())
        deadlines += [deadline_ms for deadline_ms, _ in self.rebalance_deadlines_ms.values()]
        return min(deadlines, default=None)
