"""The state of one share group: a function of its records, and the questions one can ask it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum

from broker_embedded.metadata.image import ClusterImage

from ..consumer.assignment import TopicIdPartition
from ..member_records import GroupEpoch
from ..timed_group import TimedGroup
from .records import PartitionsRecord, ShareRecord, StatePartitions


class ShareGroupState(Enum):
    """The value is the name that ShareGroupDescribe and ListGroups show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup(TimedGroup[ShareRecord]):
    """See the module."""

    protocol_type = "share"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.metadata_hash = 0
        self.partitions = StatePartitions()

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

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
        if isinstance(record, PartitionsRecord):
            self.partitions = record.partitions or StatePartitions()
            return
        if isinstance(record, GroupEpoch):
            self.metadata_hash = record.metadata_hash
        self.replay_member(record)

    def tombstones(self) -> Iterator[ShareRecord]:
        yield from self.member_tombstones()
        yield PartitionsRecord(partitions=None)
        yield GroupEpoch(epoch=None)
