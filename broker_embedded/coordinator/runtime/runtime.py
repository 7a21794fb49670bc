"""Runs one shard per partition of an internal topic that this broker leads.

    starts leading   replay the partition from its start, a slice per turn of the loop; until then LOAD_IN_PROGRESS
    stops leading    everybody who waits on the shard is told NOT_COORDINATOR
    append           one batch, answered when the high watermark has passed it
    append failed    a shard whose memory is ahead of the log asks to be replayed

Everything happens on the broker's event loop; there are no locks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.replication.broker_parts import BrokerParts
from broker_embedded.replication.leadership import AppendResult
from ottla_wire.protocol import ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

from .loader import SLICE_BYTES, LogReader
from .partitioner import partition_for
from .shard import CoordinatorRecord, Shard, ShardContext, Timer

log = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)

REPLICATION_WAIT_MS = 30_000
"""Interval of the checks while a shard waits for replicas; it waits as long as it takes."""


class _Phase(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class CoordinatorRuntime(Generic[S]):
    """The shards of one internal topic on one broker. Register it with `ReplicaManager.add_leadership_listener`."""

    def __init__(
        self,
        topic: str,
        parts: BrokerParts,
        *,
        make_shard: Callable[[int, ShardContext], S],
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        self.slice_bytes = slice_bytes
        self.topic = topic
        self.make_shard = make_shard
        self.parts = parts
        self._hosts: dict[int, _Host[S]] = {}

    def partition_of(self, key: str) -> int:
        """Return the partition that keeps `key`, which is a group or a transactional id."""
        topic = self.parts.metadata.image.topic(self.topic)
        if topic is None:
            raise BrokerError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} does not exist; FindCoordinator creates it"
            )
        return partition_for(key, len(topic.partitions))

    def shard(self, partition: int) -> S:
        """Return the shard if it is loaded here. Raises the BrokerError for the client otherwise."""
        host = self._hosts.get(partition)
        if host is None or host.phase is _Phase.CLOSED:
            raise BrokerError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{partition} is not led by this broker")
        if host.phase is _Phase.LOADING:
            raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{partition} is being replayed")
        return host.shard

    def active_shards(self) -> list[S]:
        return [host.shard for host in self._hosts.values() if host.phase is _Phase.ACTIVE]

    @property
    def is_loading(self) -> bool:
        return any(host.phase is _Phase.LOADING for host in self._hosts.values())

    # -- leadership (called by the replica manager)

    def on_leader(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        if topic_partition.topic != self.topic:
            return
        if topic_partition.partition in self._hosts:
            # Elected again: the log and our memory of it did not change.
            self._hosts[topic_partition.partition].epoch = leader_epoch
            return
        self._load(topic_partition.partition, leader_epoch)

    def on_follower(self, topic_partition: TopicPartition, leader_epoch: int) -> None:
        if topic_partition.topic == self.topic:
            self._drop(topic_partition.partition, ErrorCode.NOT_COORDINATOR)

    def close(self) -> None:
        """Stop the broker's shards: members look for another coordinator."""
        for partition in list(self._hosts):
            self._drop(partition, ErrorCode.NOT_COORDINATOR)

    def _load(self, partition: int, leader_epoch: int) -> None:
        host = _Host(self, partition, leader_epoch)
        self._hosts[partition] = host
        host.load_some()

    def _drop(self, partition: int, error: ErrorCode) -> None:
        host = self._hosts.pop(partition, None)
        if host is not None:
            host.close(error)

    def reload(self, partition: int, reason: str) -> None:
        """Replay the partition again. Waiting clients get a retriable error."""
        log.warning("%s-%d is replayed: %s", self.topic, partition, reason)
        epoch = self._hosts[partition].epoch
        self._drop(partition, ErrorCode.NOT_COORDINATOR)
        if self._leads(partition):
            self._load(partition, epoch)

    def _leads(self, partition: int) -> bool:
        replica = self.parts.replicas.partition(TopicPartition(self.topic, partition))
        return replica is not None and replica.is_leader


class _Host(Generic[S]):
    """A shard in its place: its phase, its partition, and the context it sees."""

    def __init__(self, runtime: CoordinatorRuntime[S], partition: int, leader_epoch: int) -> None:
        self.runtime = runtime
        self.epoch = leader_epoch
        self.topic_partition = TopicPartition(runtime.topic, partition)
        self.phase = _Phase.LOADING
        self.shard = runtime.make_shard(partition, self)
        self._reader: LogReader | None = None
        self._is_reload_asked = False

    # -- life

    def load_some(self) -> None:
        """Replay a slice; the rest in later turns of the loop, so that a long log does not stop the broker."""
        if self.phase is not _Phase.LOADING:
            return
        try:
            if self._reader is None:
                partition = self.runtime.parts.replicas.leader_partition(self.topic_partition)
                self._reader = LogReader(partition.log, slice_bytes=self.runtime.slice_bytes)
            is_done = self._reader.replay_some(self.shard)
        except Exception:
            # A log that cannot be read means a coordinator that cannot answer. It must not look like one that is
            # loading.
            log.exception("%s cannot be replayed; its groups are not served", self.topic_partition)
            self.phase = _Phase.CLOSED
            return
        if not is_done:
            self.runtime.parts.loop.call_soon(self.load_some)
            return
        self._reader = None
        self.phase = _Phase.ACTIVE
        self.shard.on_loaded()

    def close(self, error: ErrorCode) -> None:
        was_active = self.phase is _Phase.ACTIVE
        self.phase = _Phase.CLOSED
        if was_active:
            self.shard.unload(error)

    # -- ShardContext

    def now_ms(self) -> int:
        return self.runtime.parts.clock.now_ms()

    def monotonic_ms(self) -> int:
        return self.runtime.parts.clock.monotonic_ms()

    def metadata(self) -> ClusterImage:
        return self.runtime.parts.metadata.image

    def append(self, records: Sequence[CoordinatorRecord], on_done: Callable[[ErrorCode], None]) -> None:
        self._append(encode_batch(self._record_data(records)), on_done)

    def append_in_transaction(
        self,
        records: Sequence[CoordinatorRecord],
        on_done: Callable[[ErrorCode], None],
        *,
        producer_id: int,
        producer_epoch: int,
    ) -> None:
        batch = encode_batch(
            self._record_data(records), producer_id=producer_id, producer_epoch=producer_epoch, is_transactional=True
        )
        self._append(batch, on_done)

    def _record_data(self, records: Sequence[CoordinatorRecord]) -> list[RecordData]:
        timestamp_ms = self.now_ms()
        return [
            RecordData(offset=position, timestamp_ms=timestamp_ms, key=key, value=value, headers=[])
            for position, (key, value) in enumerate(records)
        ]

    def _append(self, batch: bytes, on_done: Callable[[ErrorCode], None]) -> None:
        def done(result: AppendResult) -> None:
            # A shard that was closed, or replayed anew, no longer knows what this append was for; its client still
            # waits.
            is_active = self.phase is _Phase.ACTIVE
            on_done(result.error if is_active else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self.runtime.parts.replicas.append(self.topic_partition, batch, acks=-1, on_complete=done)

    def when_replicated(self, callback: Callable[[], None]) -> None:
        replicas = self.runtime.parts.replicas
        partition = replicas.leader_partition(self.topic_partition)
        end_offset = partition.log.log_end_offset

        def look(timed_out: bool = False) -> None:
            if self.phase is not _Phase.ACTIVE:
                return
            if partition.high_watermark >= end_offset:
                callback()
            elif partition.is_leader:
                replicas.wait_for_replication(
                    {self.topic_partition: (partition, end_offset)}, timeout_ms=REPLICATION_WAIT_MS, on_done=look
                )

        look()

    def log_range(self) -> tuple[int, int]:
        kept = self.runtime.parts.replicas.leader_partition(self.topic_partition).log
        return kept.log_start_offset, kept.log_end_offset

    def delete_before(self, offset: int) -> None:
        self.runtime.parts.replicas.leader_partition(self.topic_partition).log.delete_records(offset)

    def leader_epoch(self) -> int:
        return self.epoch

    def call_at(self, deadline_ms: int, callback: Callable[[], None]) -> Timer:
        delay_ms = max(0, deadline_ms - self.monotonic_ms())

        def run() -> None:
            if self.phase is _Phase.ACTIVE:
                callback()

        return self.runtime.parts.loop.call_later(delay_ms / 1000, run)

    def reload(self, reason: str) -> None:
        if self._is_reload_asked or self.phase is not _Phase.ACTIVE:
            return
        self._is_reload_asked = True
        # Not in the middle of the shard's own step.
        self.runtime.parts.loop.call_soon(self._reload_now, reason)

    def _reload_now(self, reason: str) -> None:
        if self.phase is _Phase.ACTIVE:
            self.runtime.reload(self.topic_partition.partition, reason)
