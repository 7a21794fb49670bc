"""The coordinators' view of their topics' partitions: leadership, and results of appends."""

from __future__ import annotations

from typing import Protocol

from broker_embedded.common.types import TopicPartition
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode


@fact
class AppendResult:
    """Result of an append. The offsets are valid if `error` is NONE."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[object, ...] = ()


class LeadershipListener(Protocol):
    """Called when this broker starts or stops leading a partition (the coordinators). The log is open by then."""

    def on_leader(self, topic_partition: TopicPartition, leader_epoch: int) -> None: ...

    def on_follower(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """Handle the end of leadership: resigned, or the partition was deleted."""
        ...
