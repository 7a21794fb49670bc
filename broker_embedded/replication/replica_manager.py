"""The replicas on this broker: appends, waiting operations, and their wake-ups.

Responsible for: the produce path; waking what waits for an append, for a high watermark or for a leadership change.
What the metadata makes of the replicas is in `replica_roles`, what a leader does for its followers in
`in_sync_replicas`, what a follower does in `fetcher_manager`. Not responsible for request formats (`server.apis`) and
for elections (`controller`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import ControllerRequests, Peers
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.common.types import TopicPartition
from broker_embedded.metadata.cache import MetadataCache
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage
from broker_embedded.metadata.records import ResourceType
from broker_embedded.purgatory.purgatory import Purgatory
from broker_embedded.replication.delayed_produce import DelayedProduce
from broker_embedded.replication.fetcher_manager import ReplicaFetcherManager
from broker_embedded.replication.follower_wakeups import FollowerWakeups
from broker_embedded.replication.in_sync_replicas import InSyncReplicas
from broker_embedded.replication.leadership import AppendResult, LeadershipListener
from broker_embedded.replication.log_dir_moves import LogDirMoves
from broker_embedded.replication.log_settings import usable_topic_config
from broker_embedded.replication.own_broker import OwnBroker
from broker_embedded.replication.partition import Partition
from broker_embedded.replication.replica_roles import OPENED_AT_ONCE, OPENED_TOGETHER, ReplicaRoles
from broker_embedded.replication.throttle import ReplicationThrottle
from broker_embedded.storage.append import AppendInfo, AppendOrigin
from broker_embedded.storage.log import Log
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)

RETRY_MS = 1_000
"""How often the disk is asked again for a replica that it has refused."""

OPENING_S = 0.02
"""How long a broker opens new replicas before it lets others have their turn."""

LEADERSHIP_CHANGED = 1 << 62
"""An event amount that wakes every waiter, to check again."""


def replica_key(node: int) -> TopicPartition:
    """Return the key under which a follower's fetches also wait, to notice new partitions."""
    return TopicPartition("", node)


def session_key(session_id: int) -> TopicPartition:
    """Return the key under which a follower's session waits for its resting partitions."""
    return TopicPartition("/", session_id)


class ReplicaManager:
    """All partitions of one broker."""

    def __init__(
        self,
        *,
        node_id: int,
        config: BrokerConfig,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        metadata: MetadataCache,
        logs: LogManager,
        peers: Peers | None = None,
        controller: ControllerRequests | None = None,
        broker_epoch: Callable[[], int] = lambda: -1,
    ) -> None:
        """Without `peers` nothing is fetched from other leaders; without `controller` no ISR changes. `broker_epoch` is
        the epoch of this broker's registration, -1 before it. With `peers`, metadata is applied from the registration
        on: see `on_registered`."""
        self.node_id = node_id
        self.config = config
        self.clock = clock
        self.loop = loop
        self.logs = logs
        self.fetches: Purgatory[TopicPartition] = Purgatory(loop)
        self.produces: Purgatory[TopicPartition] = Purgatory(loop)
        self._metadata = metadata
        self._appended: dict[TopicPartition, int] = {}
        self._woken: dict[TopicPartition, list[int]] = {}
        """Sessions in which an appended partition had rested."""
        self.follower_wakeups = FollowerWakeups()
        own = OwnBroker(node_id=node_id, config=lambda: self.config, clock=clock, loop=loop, epoch=broker_epoch)
        self.in_sync = InSyncReplicas(
            own,
            metadata=metadata,
            controller=controller,
            led=lambda: [each for each in self._partitions.values() if each.leading is not None],
            on_advance=self._on_high_watermark,
        )
        self._broker_epoch = broker_epoch
        self._acts = peers is None
        self.moves = LogDirMoves(
            logs=logs,
            clock=clock,
            loop=loop,
            bytes_per_second=lambda: self.config.replica_alter_log_dirs_io_max_bytes_per_second,
            on_moved=self._report_moved,
        )
        self._move_listeners: list[Callable[[Partition], None]] = []
        self.leader_throttle = ReplicationThrottle(
            node_id=node_id,
            rate=lambda: self.config.leader_replication_throttled_rate,
            replicas_of=lambda topic: self.topic_config(topic).leader_replication_throttled_replicas,
            now_ms=clock.monotonic_ms,
        )
        self._fetchers: ReplicaFetcherManager | None = None
        if peers is not None:
            self._fetchers = ReplicaFetcherManager(
                own,
                peers=peers,
                on_high_watermark=self._wake_readers,
                throttle=ReplicationThrottle(
                    node_id=node_id,
                    rate=lambda: self.config.follower_replication_throttled_rate,
                    replicas_of=lambda topic: self.topic_config(topic).follower_replication_throttled_replicas,
                    now_ms=clock.monotonic_ms,
                ),
            )
        self._roles = ReplicaRoles(
            node_id=node_id,
            clock=clock,
            logs=logs,
            settings_of=self.topic_config,
            in_sync=self.in_sync,
            fetchers=self._fetchers,
            moves=self.moves,
            on_new_epoch=self._on_new_epoch,
            on_fewer_in_sync=self._wake_writers,
            on_led=self.follower_wakeups.wake,
        )
        self._partitions = self._roles.partitions
        self._retry: asyncio.TimerHandle | None = None
        self._opening: asyncio.Handle | None = None
        metadata.add_listener(self._on_metadata)
        logs.directories.add_listener(self._on_dir_offline)

    # --- looking up

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """Return the replica on this broker, leader or follower, or None."""
        found = self._partitions.get(topic_partition)
        if found is None and topic_partition in self._roles.pending:
            found = self._roles.open_now(topic_partition, self._metadata.image)
        return found

    def partitions(self) -> list[Partition]:
        return list(self._partitions.values())

    def leader_partition(self, topic_partition: TopicPartition) -> Partition:
        """Return the partition if this broker leads it. Raises the BrokerError for the client otherwise."""
        partition = self._partitions.get(topic_partition) or self.partition(topic_partition)
        if partition is None or not partition.is_leader:
            raise self._not_led(topic_partition)
        if partition.log.offline_reason is not None:
            partition.log.check_online()
        return partition

    def readable_partition(self, topic_partition: TopicPartition) -> Partition:
        """Return the partition if this broker leads or follows it: a consumer may read from either (KIP-392)."""
        partition = self.partition(topic_partition)
        if partition is not None:
            partition.log.check_online()
            return partition
        raise self._not_led(topic_partition)

    def _not_led(self, topic_partition: TopicPartition) -> BrokerError:
        if self._metadata.image.partition(topic_partition) is None:
            return BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition}: this cluster has no such partition"
            )
        return BrokerError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition}: broker {self.node_id} does not lead it"
        )

    def topic_config(self, topic: str) -> TopicConfig:
        """Return the settings of a topic as the metadata says, over this broker's defaults."""
        overrides = self._metadata.image.config_overrides(ResourceType.TOPIC, topic)
        return usable_topic_config(self.config, overrides)

    # --- writing

    def append_to_leader(
        self,
        topic_partition: TopicPartition,
        buffer: memoryview,
        *,
        acks: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> tuple[Partition, AppendInfo]:
        """Append now, or raise BrokerError. Waiting fetches are completed in the loop's next iteration, so that the ack
        is sent first."""
        partition = self._partitions.get(topic_partition)
        if partition is None or not partition.is_leader:
            partition = self.leader_partition(topic_partition)
        info = partition.append(buffer, acks=acks, origin=origin)
        if partition.leading is not None:
            self.in_sync.advance(partition)
        # Waking 200 waiting consumers before the ack delayed it by 5.7 ms in the prototype.
        self._wake_later(topic_partition, len(buffer))
        return partition, info

    def _wake_later(self, topic_partition: TopicPartition, size: int) -> None:
        """Wake waiters in the loop's next turn."""
        woken = self.follower_wakeups.wake(topic_partition)
        if not woken and not self.fetches.is_watched(topic_partition):
            return
        if not self._appended:
            self.loop.call_soon(self._wake_fetches)
        self._appended[topic_partition] = self._appended.get(topic_partition, 0) + size
        if woken:
            self._woken.setdefault(topic_partition, []).extend(woken)

    def append(
        self,
        topic_partition: TopicPartition,
        buffer: bytes | bytearray | memoryview,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        on_complete: Callable[[AppendResult], None],
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
    ) -> None:
        """Append for a coordinator. `on_complete` is called once, on the loop's thread; refusals arrive there too.

        It is called before this returns when nothing has to be waited for, else when the high watermark passes the
        batch.
        """
        writable = memoryview(bytearray(buffer) if isinstance(buffer, bytes) else buffer)
        try:
            partition, info = self.append_to_leader(topic_partition, writable, acks=acks, origin=origin)
        except BrokerError as error:
            on_complete(
                AppendResult(
                    topic_partition=topic_partition,
                    error=error.code,
                    message=error.message,
                    record_errors=tuple(error.record_errors),
                )
            )
            return
        result = AppendResult(
            topic_partition=topic_partition,
            base_offset=info.base_offset,
            last_offset=info.last_offset,
            log_append_time_ms=info.log_append_time_ms,
            log_start_offset=info.log_start_offset,
        )
        end_offset = info.last_offset + 1
        if acks != -1 or partition.high_watermark >= end_offset:
            on_complete(result)
            return

        def done(timed_out: bool) -> None:
            error = self.acknowledgement(partition, end_offset, timed_out=timed_out)
            on_complete(AppendResult(topic_partition=topic_partition, error=error) if error else result)

        self.wait_for_replication({topic_partition: (partition, end_offset)}, timeout_ms=timeout_ms, on_done=done)

    def wait_for_replication(
        self,
        waiting: dict[TopicPartition, tuple[Partition, int]],
        *,
        timeout_ms: int,
        on_done: Callable[[bool], None],
    ) -> DelayedProduce:
        """Call `on_done(timed_out)` once every high watermark has reached its end offset, or after the timeout."""
        operation = DelayedProduce(waiting, on_done)
        self.produces.watch(operation, list(waiting), timeout_ms=timeout_ms)
        return operation

    def acknowledgement(self, partition: Partition, end_offset: int, *, timed_out: bool) -> ErrorCode:
        """Return the response to an acks=all write after its wait. The record is in the log in any case."""
        is_replicated = partition.high_watermark >= end_offset
        if not is_replicated and not partition.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        in_sync = partition.isr if partition.leading is None else partition.leading.maximal_isr
        if len(in_sync) < partition.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        if is_replicated:
            return ErrorCode.NONE
        return ErrorCode.REQUEST_TIMED_OUT if timed_out else ErrorCode.NONE

    def _on_high_watermark(self, partition: Partition) -> None:
        """Answer writers at once, and wake readers in the loop's next turn."""
        self._wake_writers(partition)
        self._wake_readers(partition.topic_partition)

    def _wake_writers(self, partition: Partition) -> None:
        self.produces.notify(partition.topic_partition)

    def _wake_readers(self, topic_partition: TopicPartition) -> None:
        self._wake_later(topic_partition, 0)

    def _wake_fetches(self) -> None:
        appended, self._appended = self._appended, {}
        woken, self._woken = self._woken, {}
        for topic_partition, size in appended.items():
            self.fetches.notify(topic_partition, size)
            for session_id in woken.get(topic_partition, ()):
                self.fetches.notify(topic_partition, size, place=session_key(session_id))

    # --- metadata

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        """Call `listener` at every change from now on, and for partitions already led."""
        self._roles.add_listener(listener)

    def on_registered(self) -> None:
        """Handle this broker's registration. If its metadata has reached it, lead and follow from now on.

        Not earlier: older metadata may still name this broker as the leader of an epoch that ended with its last life,
        and what it would append then would stand beside other records of the same epoch. A registration ends what the
        broker led before (KIP-631).
        """
        image = self._metadata.image
        registered = image.brokers.get(self.node_id)
        if self._acts or registered is None or registered.epoch != self._broker_epoch():
            return
        self._acts = True
        self._roles.take_over_all(image)
        self._retry_refused()

    def _on_metadata(self, delta: MetadataDelta, image: ClusterImage) -> None:
        self._roles.removed_topic_ids |= delta.removed_topic_ids
        if not self._acts:
            self.on_registered()
            return
        self._roles.follow_changes(delta, image)
        self._open_pending_later()
        self._retry_refused()
        for resource_type, name in delta.changed_configs:
            if resource_type is ResourceType.TOPIC and name in image.topics:
                self._reconfigure(name)

    def _open_pending_later(self) -> None:
        if self._roles.pending and self._opening is None:
            self._opening = self.loop.call_soon(self._open_pending)

    def _open_pending(self) -> None:
        """Open pending partitions in slices, serving requests between two of them."""
        self._opening = None
        deadline = self.loop.time() + OPENING_S
        for _ in range(OPENED_AT_ONCE // OPENED_TOGETHER):
            self._roles.open_some(self._metadata.image)
            if self.loop.time() >= deadline:  # a slow disk: the nodes of a process must not take each other for dead
                break
        self._open_pending_later()
        self._retry_refused()

    def _retry_refused(self) -> None:
        """Open logs that a full disk had refused, once there is room."""
        if self._roles.refused and self._retry is None:
            self._retry = self.loop.call_later(RETRY_MS / 1000, self._try_refused)

    def _try_refused(self) -> None:
        self._retry = None
        self._roles.try_again(self._metadata.image)
        self._retry_refused()

    def _on_new_epoch(self, partition: Partition) -> None:
        """Wake waiters of a new epoch. A new leader's followers have to notice the partition: see `expect`."""
        self._wake_all(partition.topic_partition)
        if partition.leading is not None:
            self.in_sync.expect(partition)
            for node in partition.leading.followers:
                self.fetches.notify(replica_key(node), LEADERSHIP_CHANGED)

    def add_move_listener(self, listener: Callable[[Partition], None]) -> None:
        """Call `listener` for each replica that moves to another log directory."""
        self._move_listeners.append(listener)

    def _report_moved(self, partition: Partition) -> None:
        for listener in self._move_listeners:
            listener(partition)

    def _on_dir_offline(self, path: str, logs: Sequence[Log]) -> None:
        """Handle it in the loop's next turn: the failure may have occurred within an append or a read."""
        for failed in logs:
            self.loop.call_soon(self._went_offline, TopicPartition(failed.topic, failed.partition))

    def _went_offline(self, topic_partition: TopicPartition) -> None:
        """Stop following unreadable partitions, and wake their waiters with an error."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            self._roles.follow(partition)
        self._wake_all(topic_partition)

    def _wake_all(self, topic_partition: TopicPartition) -> None:
        woken = self.follower_wakeups.wake(topic_partition)
        self.fetches.notify(topic_partition, LEADERSHIP_CHANGED)
        for session_id in woken:
            self.fetches.notify(topic_partition, LEADERSHIP_CHANGED, place=session_key(session_id))
        self.produces.notify(topic_partition, LEADERSHIP_CHANGED)

    def reconfigure_all(self, config: BrokerConfig) -> None:
        """Apply the broker's changed defaults to all logs."""
        self.config = config
        for name in dict.fromkeys(topic_partition.topic for topic_partition in self._partitions):
            self._reconfigure(name)

    def _reconfigure(self, topic: str) -> None:
        config = self.topic_config(topic)
        for topic_partition, partition in self._partitions.items():
            if topic_partition.topic == topic:
                partition.config = config
                partition.log.update_config(config)
                if partition.leading is not None:  # min.insync.replicas decides whether the high watermark may move
                    self.in_sync.advance(partition)

    def follows(self, topic_partition: TopicPartition) -> bool:
        """Return whether this broker fetches a partition from its leader."""
        return self._fetchers is not None and self._fetchers.follows(topic_partition)

    def fetch_problem(self, partition: Partition) -> str | None:
        """Return the error of a follower's last fetch of a partition; None after a success or without one."""
        return None if self._fetchers is None else self._fetchers.problem_of(partition)

    # --- end

    def close(self) -> None:
        """Stop fetching and drop waiters. The logs are closed by their manager."""
        if self._retry is not None:
            self._retry.cancel()
        if self._opening is not None:
            self._opening.cancel()
        if self._fetchers is not None:
            self._fetchers.close()
        self.in_sync.close()
        self.moves.close()
        self.fetches.close()
        self.produces.close()
