"""Questions and verbs that a consumer which is pulled from passes on to its member, whatever it gives."""

from __future__ import annotations

from typing import Final

from ottla.app.member.member_core import MemberCore
from ottla.consumer.readiness.health import Health
from ottla.records import TopicPartition

SLICE_S: Final = 0.05
"""How long one wait for a run lasts, so that a revoked run, a close or an error is noticed meanwhile."""


class PartitionControls:
    """`_engine` is the member."""

    _engine: MemberCore

    def assignment(self) -> list[TopicPartition]:
        """The partitions it has now."""
        return self._engine.assignment()

    def position(self, topic_partition: TopicPartition) -> int | None:
        """The offset up to which everything is done; None for a partition that it does not have."""
        return self._engine.position(topic_partition)

    def pause(self, *partitions: TopicPartition) -> None:
        """Take no more records of these partitions (none named: of all)."""
        self._engine.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with these partitions (none named: with all), also with those that stopped at a failure."""
        self._engine.resume(*partitions)

    def seek(self, topic_partition: TopicPartition, offset: int) -> None:
        """Go on from `offset`."""
        self._engine.seek(topic_partition, offset)

    def health(self) -> Health:
        """Whether it is alive and ready, and of each partition how it stands."""
        return self._engine.health()
