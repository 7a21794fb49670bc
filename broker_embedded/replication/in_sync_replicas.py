"""A leader's work for its followers: records their fetches, advances high watermarks, maintains the ISRs.

The decisions are `leader_state`'s; here they meet the clock, the metadata and the controller. Partitions with a single
replica never come here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import ControllerRequests
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.replication.alter_partition_manager import AlterPartitionManager
from broker_embedded.replication.own_broker import OwnBroker
from broker_embedded.replication.partition import Partition
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)

AWAITED_MS = 1_000
"""How long a new leader expects its followers to ask for the partition for the first time."""


class InSyncReplicas:
    """See the module."""

    def __init__(
        self,
        broker: OwnBroker,
        *,
        metadata: MetadataCache,
        controller: ControllerRequests | None,
        led: Callable[[], Iterable[Partition]],
        on_advance: Callable[[Partition], None],
    ) -> None:
        """`led`: the partitions led here that have followers. `on_advance`: a high watermark has moved."""
        self._broker = broker
        self._metadata = metadata
        self._led = led
        self._on_advance = on_advance
        self._awaited: dict[int, dict[TopicPartition, int]] = {}
        self._changes: AlterPartitionManager | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self.shrinks = 0
        """Number of ISR shrink requests."""
        self.expansions = 0
        if controller is not None:
            self._changes = AlterPartitionManager(broker, controller=controller, on_settled=self.advance)
            self._schedule()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._changes is not None:
            self._changes.close()

    # --- the high watermark

    def advance(self, partition: Partition) -> None:
        """Move the high watermark as far as the in-sync replicas allow. It never moves back."""
        leading = partition.leading
        if leading is None:
            return
        own = partition.log
        reached = leading.high_watermark(
            log_end_offset=own.log_end_offset,
            min_isr=partition.min_isr,
            now_ms=self._broker.clock.monotonic_ms(),
            max_lag_ms=self._broker.config().replica_lag_time_max_ms,
            is_eligible=self._is_eligible,
        )
        if reached is not None and reached > own.high_watermark and own.update_high_watermark(reached):
            self._on_advance(partition)

    # --- followers' fetches

    def check_follower(self, partition: Partition, node: int, broker_epoch: int, *, says_epoch: bool) -> None:
        """Refuse the fetch of a broker that holds no replica, or that has registered again since (KIP-903).

        A follower that sent our own leader epoch and is no replica here has newer metadata than we have.
        """
        if partition.leading is None or node not in partition.leading.followers:
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if says_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise BrokerError(code, f"{partition.topic_partition}: broker {node} is no replica of it")
        if broker_epoch >= 0:
            registered = self._metadata.image.brokers.get(node)
            if registered is not None and registered.epoch > broker_epoch:
                raise BrokerError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"{partition.topic_partition}: broker {node} fetches with broker epoch {broker_epoch}, it has"
                    f" registered with {registered.epoch} since",
                )

    def follower_fetched(
        self, partition: Partition, node: int, *, fetch_offset: int, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Record a fetch at `fetch_offset`, and wake operations that waited for it."""
        leading = partition.leading
        assert leading is not None
        follower = leading.followers[node]
        own = partition.log
        before = follower.log_end_offset
        follower.on_fetch(
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            broker_epoch=broker_epoch,
            leader_end_offset=own.log_end_offset,
            now_ms=self._broker.clock.monotonic_ms(),
        )
        if self._awaited:
            self._answered_for(partition.topic_partition, node)
        if before != fetch_offset or own.high_watermark < own.log_end_offset:
            self.advance(partition)
        if node not in leading.isr and self._changes is not None:
            change = leading.expansion(
                node,
                high_watermark=own.high_watermark,
                broker_epoch=self._broker.epoch(),
                is_eligible=self._is_eligible,
            )
            if change is not None:
                self.expansions += 1
                log.info("%s: broker %d has caught up, ISR %s wanted", partition.topic_partition, node, change.nodes)
                self._changes.submit(partition, change)

    def _is_eligible(self, node: int, broker_epoch: int) -> bool:
        image = self._metadata.image
        return image.is_active(node) and (broker_epoch < 0 or image.brokers[node].epoch == broker_epoch)

    # --- followers that have not asked yet

    def expect(self, partition: Partition) -> None:
        """Shorten the polls of the followers of a new leader, so that they fetch this partition soon.

        A follower's long poll may be waiting while a partition is created. Without this the first acks=all would wait
        for the end of the poll (`replica.fetch.wait.max.ms`).
        """
        if partition.leading is None:
            return
        until_ms = self._broker.clock.monotonic_ms() + AWAITED_MS
        for node in partition.leading.followers:
            self._awaited.setdefault(node, {})[partition.topic_partition] = until_ms

    def awaits(self, node: int) -> bool:
        """Return whether `node` follows a partition led here that it has not fetched yet: then its polls are short."""
        awaited = self._awaited.get(node)
        if not awaited:
            return False
        now_ms = self._broker.clock.monotonic_ms()
        for topic_partition in [each for each, until_ms in awaited.items() if until_ms < now_ms]:
            self._answered_for(topic_partition, node)
        return node in self._awaited

    def forget(self, topic_partition: TopicPartition) -> None:
        """Forget a partition that this broker no longer leads."""
        for node in list(self._awaited):
            self._answered_for(topic_partition, node)

    def _answered_for(self, topic_partition: TopicPartition, node: int) -> None:
        awaited = self._awaited.get(node)
        if awaited is not None:
            awaited.pop(topic_partition, None)
            if not awaited:
                del self._awaited[node]

    # --- who lags

    def _schedule(self) -> None:
        interval_ms = max(1, self._broker.config().replica_lag_time_max_ms // 2)
        self._due_ms = self._broker.clock.monotonic_ms() + interval_ms
        self._timer = self._broker.loop.call_later(interval_ms / 1000, self._check)

    def _check(self) -> None:
        # A loop that stood still kept the followers' fetches waiting as well: they get another round.
        late_ms = self._broker.clock.monotonic_ms() - self._due_ms
        if late_ms < self._broker.config().replica_lag_time_max_ms // 4:
            self.shrink_lagging()
        self._schedule()

    def shrink_lagging(self) -> None:
        """Ask for an ISR without the followers that have been behind for `replica.lag.time.max.ms`."""
        if self._changes is None:
            return
        now_ms = self._broker.clock.monotonic_ms()
        for partition in self._led():
            leading = partition.leading
            if leading is None:
                continue
            change = leading.shrinking(
                log_end_offset=partition.log.log_end_offset,
                now_ms=now_ms,
                max_lag_ms=self._broker.config().replica_lag_time_max_ms,
                broker_epoch=self._broker.epoch(),
            )
            if change is not None:
                self.shrinks += 1
                log.info("%s: ISR %s wanted instead of %s", partition.topic_partition, change.nodes, leading.isr)
                self._changes.submit(partition, change)
            self.advance(partition)  # who was about to join may have gone
