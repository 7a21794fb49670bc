"""One partition on this broker: its log, leader, in-sync replicas, and readable offsets.

Invariant: high watermark <= log end offset, and the leader's high watermark is the smallest log end offset of the
in-sync replicas. The leader's view of its followers is in `leader_state`; a partition with one replica has none, and
pays for none. Only the replica manager and the replica fetchers call in here, on the loop's thread.
"""

from __future__ import annotations

import logging
from enum import Enum

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.image import PartitionImage
from broker_embedded.replication.leader_state import LeaderState
from broker_embedded.storage.append import AppendInfo, AppendOrigin
from broker_embedded.storage.log import Log
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)


class Isolation(Enum):
    """Up to where a reader sees the log."""

    LOG_END = "log_end"
    """A follower: everything the leader has."""
    HIGH_WATERMARK = "read_uncommitted"
    """A consumer: records that all in-sync replicas have."""
    READ_COMMITTED = "read_committed"
    """A read_committed consumer: also of a finished transaction."""


def effective_min_isr(config: TopicConfig, replicas: int) -> int:
    """Return how many replicas acks=all needs: min.insync.replicas, but never more than exist."""
    return min(config.min_insync_replicas, replicas)


class LostByLeader(Exception):
    """The leader lacks acknowledged records. Keep this copy, and stop following until the next epoch."""


def divergence(own: Log, epoch: int, end_offset: int) -> int:
    """Return where `own` has to be truncated if `epoch` ended at `end_offset` in the leader's log."""
    if epoch < 0 or end_offset < 0:
        return own.high_watermark
    ours = own.leader_epoch_end_offset(epoch)
    if ours.leader_epoch < 0:
        target = end_offset
    elif ours.leader_epoch == epoch:
        target = min(ours.end_offset, end_offset)
    else:
        target = ours.end_offset
    return min(target, own.log_end_offset)


class Partition:
    """A replica of a partition on this broker."""

    __slots__ = (
        "config",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leading",
        "log",
        "node_id",
        "partition_epoch",
        "replica_count",
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
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replica_count = 0
        self.leading: LeaderState | None = None
        """The followers; None on a follower, and on the leader of a partition with one replica."""

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def min_isr(self) -> int:
        return effective_min_isr(self.config, self.replica_count)

    @property
    def is_under_min_isr(self) -> bool:
        """Return whether fewer replicas are in sync than acks=all needs."""
        in_sync = len(self.isr)
        return in_sync < self.config.min_insync_replicas and in_sync < self.replica_count

    @property
    def has_unfinished_election(self) -> bool:
        """Return whether a new leader does not know yet how far its predecessor had acknowledged (KIP-207)."""
        leading = self.leading
        return leading is not None and self.log.high_watermark < leading.epoch_start_offset

    # --- metadata

    def apply(self, image: PartitionImage, *, now_ms: int) -> None:
        """Apply the controller's state. A leader still has to advance the high watermark."""
        leads = image.leader == self.node_id
        starts_epoch = leads and (not self.is_leader or image.leader_epoch != self.leader_epoch)
        self.isr = image.isr
        self.replica_count = len(image.replicas)
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.is_leader = leads
        if not leads or len(image.replicas) == 1:
            self.leading = None
        else:
            if self.leading is None:
                self.leading = LeaderState(self.node_id)
            self.leading.apply(image, log_end_offset=self.log.log_end_offset, now_ms=now_ms)
        if leads and self.leading is None:
            self.log.update_high_watermark(self.log.log_end_offset)
        if starts_epoch:
            self.log.note_leader_epoch(image.leader_epoch)

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
        """Return the leader epoch of the record at `offset`, present or next; -1 if unknown."""
        epoch = self.log.latest_leader_epoch
        if epoch is None:
            return -1
        while epoch > 0:
            before = self.log.leader_epoch_end_offset(epoch - 1)
            if before.leader_epoch < 0 or before.end_offset <= offset:
                break
            epoch = before.leader_epoch
        return epoch

    def read_limit(self, isolation: Isolation) -> int:
        """Return the first offset that a reader of this kind may not see."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is Isolation.READ_COMMITTED:
            return self.log.last_stable_offset
        return self.log.log_end_offset

    # --- as the leader

    def append(self, buffer: memoryview, *, acks: int, origin: AppendOrigin) -> AppendInfo:
        """Append as the leader. With acks=all too few in-sync replicas refuse the write before anything is appended.

        With one replica the high watermark follows at once; with several the caller advances it.
        """
        if acks == -1 and self.is_under_min_isr:
            raise BrokerError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition}: {len(self.isr)} in-sync replicas {list(self.isr)},"
                f" min.insync.replicas wants {self.min_isr}",
            )
        info = self.log.append_as_leader(buffer, leader_epoch=self.leader_epoch, origin=origin)
        if self.leading is None:
            self.log.update_high_watermark(self.log.log_end_offset)
        return info

    # --- as a follower

    def append_as_follower(self, records: memoryview | bytes, *, high_watermark: int, log_start_offset: int) -> bool:
        """Append the leader's batches unchanged, with its offsets. Returns True if the high watermark moved."""
        own = self.log
        if len(records):
            own.append_as_follower(records)
        moved = high_watermark > own.high_watermark and own.update_high_watermark(high_watermark)
        if log_start_offset > own.log_start_offset:
            own.increase_log_start_offset(min(log_start_offset, own.high_watermark))
        return moved

    def truncate_to_divergence(self, epoch: int, end_offset: int) -> None:
        """Truncate after a response that the last batch is not in the leader's log, and that `epoch` ended at
        `end_offset` in it (KIP-595).

        Where both know the epoch the logs part at the smaller of its two ends. If we do not know it, everything we
        wrote after the largest older epoch goes; the next fetch then asks again with that one.
        """
        self.truncate_to(divergence(self.log, epoch, end_offset))

    def truncate_to(self, offset: int) -> None:
        """Drop records that the leader lacks. Raises LostByLeader if that cannot be right.

        Below our high watermark is what was acknowledged. A leader that was elected from the ISR has it. If it does
        not, and we are in the ISR ourselves, its disk lost it and ours is a copy worth keeping (KAFKA-3410). After an
        unclean election the ISR is the leader alone, and what it has is what counts.
        """
        own = self.log
        if offset < own.high_watermark:
            if self.node_id in self.isr:
                raise LostByLeader(
                    f"{self.topic_partition}: leader {self.leader} (epoch {self.leader_epoch}) ends at {offset}, but "
                    f"everything up to {own.high_watermark} was acknowledged and is here. It is kept, and this replica "
                    "no longer follows: elect another leader, or allow an unclean election to give the records up"
                )
            log.warning(
                "%s: cut to offset %d, below the high watermark %d: leader %d was elected without it",
                self.topic_partition,
                offset,
                own.high_watermark,
                self.leader,
            )
        own.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """Drop everything and restart at the leader's log start: the records between were deleted there."""
        log.info(
            "%s: the leader's log starts at %d, ours ends at %d: started anew",
            self.topic_partition,
            offset,
            self.log.log_end_offset,
        )
        self.log.truncate_fully_and_start_at(offset)
