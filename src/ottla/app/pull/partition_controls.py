"""Methods of a pulled consumer that go to its group member: assignment, position, pause, resume, seek."""

from __future__ import annotations

from typing import Final

from ottla.app.member.member_core import MemberCore
from ottla.consumer.readiness.health import Health
from ottla.records import TopicPartition

SLICE_S: Final = 0.05
"""How long one wait for a run lasts, so that a revoked run, a close or an error is noticed meanwhile."""


class PartitionControls:
    """`_member` is the group member that carries them out."""

    _member: MemberCore

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions it has now."""
        return self._member.assignment()

    def position(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset up to which everything is done; None for a partition that it does not have."""
        return self._member.position(topic_partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""
        self._member.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""
        self._member.resume(*partitions)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._member.seek(topic_partition, offset)

    def health(self) -> Health:
        """Return whether the member is alive and ready, with the state of each partition."""
        return self._member.health()
