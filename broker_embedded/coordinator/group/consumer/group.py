"""The state of one KIP-848 group: a function of its records, and the questions one can ask it.

A partition has one owner at most (`is_owned`), from the moment its record says so until its record says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from ottla_wire.protocol import ErrorCode

from ..member_records import GroupEpoch
from ..subscription import PROTOCOL_TYPE
from ..timed_group import TimedGroup
from .assignment import NOTHING, Assignment, TopicIdPartition
from .member import AssignmentProgress, ConsumerMember, MemberState, MemberSubscription
from .records import ConsumerRecord, PartitionMetadata, Regex, ResolvedRegex, SubscribedTopicMetadata


class ConsumerGroupState(Enum):
    """The value is the name that ConsumerGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target is older than the group."""
    RECONCILING = "Reconciling"
    """Members are moving to the target."""
    STABLE = "Stable"


class ConsumerGroup(TimedGroup[ConsumerRecord]):
    """See the module."""

    protocol_type = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.static_members: dict[str, str] = {}
        """instance id -> member id."""
        self.topics: dict[str, SubscribedTopicMetadata] = {}
        """The subscribed topics as they were when the group epoch last moved."""
        self.regexes: dict[str, ResolvedRegex] = {}
        self._owners: dict[TopicIdPartition, str] = {}
        self.rebalance_deadlines_ms: dict[str, tuple[int, int]] = {}
        """member id -> (deadline, member epoch): give partitions back by then."""

    # -- questions

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

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.topics_of(member.subscription) for member in self.members.values())

    # -- changes

    def replay(self, record: ConsumerRecord) -> None:
        match record:
            case PartitionMetadata(topics=topics):
                self.topics = dict(topics or {})
            case Regex(pattern=pattern, resolved=None):
                self.regexes.pop(pattern, None)
            case Regex(pattern=pattern, resolved=resolved):
                assert resolved is not None
                self.regexes[pattern] = resolved
            case _:
                self.replay_member(record)

    def tombstones(self) -> Iterator[ConsumerRecord]:
        yield from self.member_tombstones()
        for pattern in self.regexes:
            yield Regex(pattern=pattern, resolved=None)
        yield PartitionMetadata(topics=None)
        yield GroupEpoch(epoch=None)

    def set_subscription(self, member_id: str, subscription: MemberSubscription) -> None:
        super().set_subscription(member_id, subscription)
        if subscription.instance_id is not None:
            self.static_members[subscription.instance_id] = member_id

    def set_progress(self, member_id: str, progress: AssignmentProgress) -> None:
        if member_id in self.members:
            self._release(self.members[member_id])
        super().set_progress(member_id, progress)
        for partition in progress.assigned | progress.pending_revocation:
            self._owners[partition] = member_id

    def remove_member(self, member_id: str) -> ConsumerMember | None:
        self.rebalance_deadlines_ms.pop(member_id, None)
        member = super().remove_member(member_id)
        if member is not None:
            self._release(member)
            instance_id = member.subscription.instance_id
            if instance_id is not None and self.static_members.get(instance_id) == member_id:
                del self.static_members[instance_id]
        return member

    def _release(self, member: ConsumerMember) -> None:
        for partition in member.progress.assigned | member.progress.pending_revocation:
            if self._owners.get(partition) == member.member_id:
                del self._owners[partition]

    # -- deadlines

    def earliest_deadline_ms(self) -> int | None:
        deadlines = list(self.session_deadlines_ms.values())
        deadlines += [deadline_ms for deadline_ms, _ in self.rebalance_deadlines_ms.values()]
        return min(deadlines, default=None)

    def start_deadlines(self, *, now_ms: int, session_timeout_ms: int) -> None:
        """Give members with revocations a whole rebalance timeout, too."""
        super().start_deadlines(now_ms=now_ms, session_timeout_ms=session_timeout_ms)
        for member_id, member in self.members.items():
            if member.progress.state is MemberState.UNREVOKED_PARTITIONS:
                deadline_ms = now_ms + member.subscription.rebalance_timeout_ms
                self.rebalance_deadlines_ms[member_id] = (deadline_ms, member.progress.epoch)
