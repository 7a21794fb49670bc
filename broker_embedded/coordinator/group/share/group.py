"""The state of one share group: a function of its records, and the questions one can ask it.

group epoch         moves when subscriptions, members or topics change
assignment epoch    the group epoch for which the target was computed
member epoch        the assignment epoch that a member has reached
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from broker_embedded.metadata.image import ClusterImage
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode

from ..consumer.assignment import NOTHING, Assignment, TopicIdPartition
from .records import (
    CurrentRecord,
    GroupRecord,
    MemberRecord,
    PartitionsRecord,
    Progress,
    ShareRecord,
    StatePartitions,
    Subscription,
    TargetEpochRecord,
    TargetRecord,
)


class ShareGroupState(Enum):
    """The value is the name that ShareGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    STABLE = "Stable"


@fact
class ShareMember:
    member_id: str
    subscription: Subscription = Subscription()
    progress: Progress = Progress()


class ShareGroup:
    """Changed by `replay` alone, except for deadlines and the time of the assignment, which are not kept."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.partitions = StatePartitions()
        self.session_deadlines_ms: dict[str, int] = {}
        self.assigned_at_ms: int | None = None
        """When the target was computed, if on this broker."""
        self.checked_image: ClusterImage | None = None
        """The metadata image whose topics are reflected in the group epoch."""

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def check_delete(self) -> ErrorCode:
        return ErrorCode.NONE if self.is_empty else ErrorCode.NON_EMPTY_GROUP

    def may_assign(self, now_ms: int, interval_ms: int) -> bool:
        """Return whether the last target is old enough for the next one."""
        return self.assigned_at_ms is None or now_ms - self.assigned_at_ms >= interval_ms

    def earliest_deadline_ms(self) -> int | None:
        return min(self.session_deadlines_ms.values(), default=None)

    def subscribed_topics(self, image: ClusterImage) -> dict[bytes, int]:
        """Return topic id → partitions, of the topics that members subscribe to and that exist."""
        names = {name for member in self.members.values() for name in member.subscription.topic_names}
        found = [image.topic(name) for name in sorted(names)]
        return {topic.topic_id: len(topic.partitions) for topic in found if topic is not None}

    def subscriptions(self, image: ClusterImage) -> dict[str, frozenset[bytes]]:
        """Return member id → ids of the topics that it subscribes to."""
        return {
            member_id: frozenset(
                topic.topic_id for name in member.subscription.topic_names if (topic := image.topic(name)) is not None
            )
            for member_id, member in self.members.items()
        }

    def uninitialized(self, topics: Mapping[bytes, int]) -> list[TopicIdPartition]:
        """Return the partitions of `topics` whose state was not initialized."""
        known = self.partitions.initialized
        return [
            TopicIdPartition(topic_id, number)
            for topic_id, count in topics.items()
            for number in range(count)
            if TopicIdPartition(topic_id, number) not in known
        ]

    # --- changes

    def replay(self, record: ShareRecord) -> None:
        """Apply a record. Compaction may have dropped earlier records of the group; defaults replace them."""
        match record:
            case GroupRecord(epoch=epoch):
                self.epoch = epoch or 0
                self.metadata_hash = record.metadata_hash
            case MemberRecord(member_id=member_id, subscription=None):
                self.members.pop(member_id, None)
                self.session_deadlines_ms.pop(member_id, None)
            case MemberRecord(member_id=member_id, subscription=subscription):
                assert subscription is not None
                known = self.members.get(member_id)
                progress = Progress() if known is None else known.progress
                self.members[member_id] = ShareMember(member_id=member_id, subscription=subscription, progress=progress)
            case TargetEpochRecord(epoch=epoch):
                self.assignment_epoch = -1 if epoch is None else epoch
            case TargetRecord(member_id=member_id, assignment=None):
                self.targets.pop(member_id, None)
            case TargetRecord(member_id=member_id, assignment=assignment):
                self.targets[member_id] = assignment or NOTHING
            case CurrentRecord(member_id=member_id, progress=progress):
                member = self.members.get(member_id)
                if member is not None:
                    self.members[member_id] = ShareMember(
                        member_id=member_id, subscription=member.subscription, progress=progress or Progress()
                    )
            case PartitionsRecord(partitions=partitions):
                self.partitions = partitions or StatePartitions()

    def tombstones(self) -> Iterator[ShareRecord]:
        """Return tombstones for all records of the group; the group's own record last."""
        for member_id in self.members:
            yield CurrentRecord(member_id=member_id, progress=None)
        for member_id in self.targets:
            yield TargetRecord(member_id=member_id, assignment=None)
        yield TargetEpochRecord(epoch=None)
        for member_id in self.members:
            yield MemberRecord(member_id=member_id, subscription=None)
        yield PartitionsRecord(partitions=None)
        yield GroupRecord(epoch=None)
