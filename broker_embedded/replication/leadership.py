"""How the coordinators see the partitions of their topics: who leads, and how an append of theirs ended."""

from __future__ import annotations

from typing import Protocol

from broker_embedded.common.types import TopicPartition
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode


@fact
class AppendResult:
    """How an append ended. `error` is NONE when it succeeded; the offsets are then valid."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: tuple[object, ...] = ()


class LeadershipListener(Protocol):
    """Who acts when this broker starts or stops leading a partition (the coordinators). The log is open when called."""

    def on_leader(self, topic_partition: TopicPartition, leader_epoch: int) -> None: ...

    def on_follower(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        """This broker no longer leads it: resigned, or the partition is gone."""
        ...
