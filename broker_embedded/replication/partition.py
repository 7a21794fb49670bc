"""One partition as this broker sees it: its log, who leads it, who is in sync, and how far everybody may read.

Invariant: high watermark <= log end offset, and the high watermark is the smallest log end offset of the in-sync
replicas. Only the replica manager calls in here, on the loop's thread.
"""

from __future__ import annotations

from enum import Enum

from broker_embedded.common.config import TopicConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.image import PartitionImage
from broker_embedded.storage.log import AppendInfo, AppendOrigin, Log
from ottla_wire.protocol import ErrorCode


class Isolation(Enum):
    """Up to where a reader sees the log."""

    LOG_END = "log_end"
    """A follower: everything the leader has."""
    HIGH_WATERMARK = "read_uncommitted"
    """A consumer: what all in-sync replicas have."""
    READ_COMMITTED = "read_committed"
    """A consumer of transactions: what is decided as well."""


class Partition:
    """A replica of a partition on this broker."""

    __slots__ = (
        "config",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "node_id",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: bytes, *, node_id: int, log: Log, config: TopicConfig
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.node_id = node_id
        self.log = log
        self.config = config
        self.is_leader = False
        self.leader = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    def apply(self, image: PartitionImage) -> None:
        """Take over what the controller decided."""
        self.isr = image.isr
        self.leader = image.leader
        starts_leading = image.leader == self.node_id and (
            not self.is_leader or image.leader_epoch != self.leader_epoch
        )
        self.is_leader = image.leader == self.node_id
        self.leader_epoch = image.leader_epoch
        if starts_leading:
            self.log.assign_leader_epoch_start(image.leader_epoch, self.log.log_end_offset)
        if self.is_leader:
            self.advance_high_watermark()

    def check_leader_epoch(self, epoch: int) -> None:
        """Fence a client whose metadata is older (KIP-320) or newer than ours. -1 means the client does not say."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic_partition}: the client has leader epoch {epoch}, the leader is at {self.leader_epoch}",
            )
        raise BrokerError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic_partition}: the client has leader epoch {epoch}, this broker only knows {self.leader_epoch}",
        )

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at `offset` was, or would be, written; -1 if the log does not know."""
        epoch = self.log.latest_leader_epoch
        if epoch is None:
            return -1
        while epoch > 0:
            before = self.log.leader_epoch_end_offset(epoch - 1)
            if before.leader_epoch < 0 or before.end_offset <= offset:
                break
            epoch = before.leader_epoch
        return epoch

    def append(self, buffer: memoryview, *, acks: int, origin: AppendOrigin) -> AppendInfo:
        """Append as the leader. With acks=all too few in-sync replicas refuse the write before anything is appended."""
        if acks == -1 and len(self.isr) < self.config.min_insync_replicas:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(self.isr)} in-sync replicas {list(self.isr)},"
                f" min.insync.replicas wants {self.config.min_insync_replicas}",
            )
        info = self.log.append_as_leader(buffer, leader_epoch=self.leader_epoch, origin=origin)
        self.advance_high_watermark()
        return info

    def advance_high_watermark(self) -> None:
        """Move the high watermark to the smallest log end offset of the ISR. A leader alone in it decides alone."""
        if self.isr == (self.node_id,):
            self.log.update_high_watermark(self.log.log_end_offset)

    def read_limit(self, isolation: Isolation) -> int:
        """The first offset that a reader of this kind may not see."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is Isolation.READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset
