"""Applies the metadata to a broker's replicas: opens them, makes them lead or follow, deletes them.

The metadata says what is; this makes it so, partition by partition. A partition whose disk refuses is logged and does
not keep the others from their roles.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.topic_settings import TopicConfig
from broker_embedded.common.types import INTERNAL_TOPICS, TopicPartition
from broker_embedded.metadata.delta import MetadataDelta
from broker_embedded.metadata.image import ClusterImage, PartitionImage
from broker_embedded.replication.fetcher_manager import ReplicaFetcherManager
from broker_embedded.replication.in_sync_replicas import InSyncReplicas
from broker_embedded.replication.leadership import LeadershipListener
from broker_embedded.replication.log_dir_moves import LogDirMoves
from broker_embedded.replication.partition import Partition
from broker_embedded.storage.log_manager import LogManager
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)

OPENED_AT_ONCE = 20
"""New replicas that are opened in one turn of the loop: each makes a directory with files, which takes up to 1 ms."""
OPENED_TOGETHER = 4


class ReplicaRoles:
    """See the module."""

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        logs: LogManager,
        settings_of: Callable[[str], TopicConfig],
        in_sync: InSyncReplicas,
        fetchers: ReplicaFetcherManager | None,
        moves: LogDirMoves,
        on_new_epoch: Callable[[Partition], None],
        on_fewer_in_sync: Callable[[Partition], None],
        on_led: Callable[[TopicPartition], object],
    ) -> None:
        """`on_new_epoch`: another leader, another epoch, or a deleted partition: waiters have to check again.
        `on_fewer_in_sync`: the ISR of a partition led here is below min.insync.replicas. `on_led`: the metadata changed
        for a partition led here.
        """
        self.partitions: dict[TopicPartition, Partition] = {}
        self.refused: set[TopicPartition] = set()
        """Replicas that could not be opened."""
        self.pending: dict[TopicPartition, None] = {}
        """Replicas to open in one of the loop's next turns, or on request."""
        self.removed_topic_ids: set[bytes] = set()
        """Topics deleted according to the metadata log: their remains may be deleted."""
        self._node_id = node_id
        self._clock = clock
        self._logs = logs
        self._settings_of = settings_of
        self._in_sync = in_sync
        self._fetchers = fetchers
        self._moves = moves
        self._on_new_epoch = on_new_epoch
        self._on_fewer_in_sync = on_fewer_in_sync
        self._on_led = on_led
        self._listeners: list[LeadershipListener] = []

    def add_listener(self, listener: LeadershipListener) -> None:
        """Call `listener` at every change from now on, and for partitions already led."""
        self._listeners.append(listener)
        for topic_partition, partition in list(self.partitions.items()):
            if partition.is_leader:
                listener.on_leader(topic_partition, partition.leader_epoch)

    def take_over_all(self, image: ClusterImage) -> None:
        """Take every role that the metadata gives to this broker."""
        every = {
            TopicPartition(topic.name, number): state
            for topic in image.topics.values()
            for number, state in topic.partitions.items()
        }
        self._take_over_each(every, image)
        self._find_strays(image)

    def follow_changes(self, delta: MetadataDelta, image: ClusterImage) -> None:
        """Apply changes in the same way."""
        for topic in delta.removed_topics.values():
            for topic_partition in topic.topic_partitions():
                try:
                    self._delete(topic_partition)
                except BrokerError as error:
                    log.error("%s is not deleted: %s", topic_partition, error.message)
        self._take_over_each(delta.changed_partitions, image, at_once=OPENED_AT_ONCE)
        if delta.brokers_changed:
            for partition in self.partitions.values():
                if partition.leading is not None:
                    self._in_sync.advance(partition)

    def try_again(self, image: ClusterImage) -> None:
        """Open refused replicas again, so that freeing disk space needs no restart."""
        wanted = {each: state for each in self.refused if (state := image.partition(each)) is not None}
        self.refused.intersection_update(wanted)
        self._take_over_each(wanted, image)

    def open_some(self, image: ClusterImage) -> None:
        """Open the next few pending replicas."""
        some = list(islice(self.pending, OPENED_TOGETHER))
        self._open_pending(some, image)

    def open_now(self, topic_partition: TopicPartition, image: ClusterImage) -> Partition | None:
        """Open a pending replica on request."""
        self._open_pending([topic_partition], image)
        return self.partitions.get(topic_partition)

    def _open_pending(self, some: Sequence[TopicPartition], image: ClusterImage) -> None:
        for each in some:
            self.pending.pop(each, None)
        wanted = {each: state for each in some if (state := image.partition(each)) is not None}
        self._take_over_each(wanted, image)

    def _is_new(self, topic_partition: TopicPartition, state: PartitionImage) -> bool:
        return self._node_id in state.replicas and topic_partition not in self.partitions

    def _take_over_each(
        self, changed: Mapping[TopicPartition, PartitionImage], image: ClusterImage, *, at_once: int = sys.maxsize
    ) -> None:
        """Apply roles. `at_once`: number of new replicas opened before the others are left pending. Internal topics are
        never left: coordinators wait for them.
        """
        settings: dict[str, TopicConfig] = {}
        opened = 0
        for topic_partition, state in changed.items():
            name = topic_partition.topic
            if topic_partition in self.pending:
                continue  # it takes the role that it has when its turn comes
            if name not in INTERNAL_TOPICS and self._is_new(topic_partition, state):
                if opened >= at_once or (self.pending and at_once < sys.maxsize):
                    self.pending[topic_partition] = None
                    continue
                opened += 1
            topic_id = image.topics[name].topic_id
            was_refused = topic_partition in self.refused
            self.refused.discard(topic_partition)
            try:
                if self._node_id not in state.replicas:
                    self._delete(topic_partition)
                    self._delete_stray(topic_partition, topic_id)
                    continue
                partition = self.partitions.get(topic_partition)
                if partition is None:
                    if name not in settings:
                        settings[name] = self._settings_of(name)
                    partition = self._open(topic_partition, topic_id, settings[name])
                self._take_over(partition, state)
            except BrokerError as error:
                if not was_refused:  # said once, tried again until it works
                    log.error("%s is not served as it should be: %s", topic_partition, error.message)
                if self._node_id in state.replicas and topic_partition not in self.partitions:
                    self.refused.add(topic_partition)

    def _take_over(self, partition: Partition, state: PartitionImage) -> None:
        """Lead, follow or resign, as the metadata says, also if the disk refuses to note that an epoch begins."""
        was_leader, old_epoch = partition.is_leader, partition.leader_epoch
        topic_partition = partition.topic_partition
        try:
            partition.apply(state, now_ms=self._clock.monotonic_ms())
        except BrokerError as error:
            log.error("%s: %s", topic_partition, error.message)
        self.follow(partition)
        if partition.leading is not None:
            self._on_led(topic_partition)
            self._in_sync.advance(partition)
            if partition.is_under_min_isr:
                self._on_fewer_in_sync(partition)
        elif was_leader:
            self._in_sync.forget(topic_partition)
        self._notify_listeners(partition, was_leader=was_leader, old_epoch=old_epoch)

    def follow(self, partition: Partition) -> None:
        """Fetch it from its leader, unless this broker leads it or cannot write it.

        A fetch says that everything before its offset is here. From a log in a directory that failed that is a false
        promise: the leader would take it for caught up and let acks=all wait for it.
        """
        if self._fetchers is None:
            return
        if partition.is_leader or partition.log.offline_reason is not None:
            self._fetchers.unfollow(partition)
        else:
            self._fetchers.follow(partition)

    def _open(self, topic_partition: TopicPartition, topic_id: bytes, config: TopicConfig) -> Partition:
        topic, number = topic_partition
        try:
            partition_log = self._logs.get_or_create(topic, number, topic_id, config)
        except BrokerError as error:
            if error.code != ErrorCode.INCONSISTENT_TOPIC_ID:
                raise
            self._make_way(topic_partition)
            partition_log = self._logs.get_or_create(topic, number, topic_id, config)
        partition_log.is_stray = False
        partition_log.update_config(config)
        partition = Partition(topic_partition, topic_id, node_id=self._node_id, log=partition_log, config=config)
        self.partitions[topic_partition] = partition
        return partition

    def _make_way(self, topic_partition: TopicPartition) -> None:
        """Free a directory that belongs to another topic of the same name.

        The topic may have been deleted and made again while this broker was down. But if the metadata knows nothing of
        that topic, it is the metadata that was lost, and the records are all that is left.
        """
        found = self._logs.get(*topic_partition)
        if found is None or found.topic_id not in self.removed_topic_ids:
            self._logs.set_aside(*topic_partition)
            return
        log.info("%s: the directory belongs to a deleted topic of the same name, it is removed", topic_partition)
        self._logs.delete(*topic_partition)

    def _find_strays(self, image: ClusterImage) -> None:
        """Delete the remains of deleted topics, and keep directories unknown to the metadata."""
        strays = []
        for found in self._logs.logs:
            topic_partition = TopicPartition(found.topic, found.partition)
            topic = image.topic(found.topic)
            is_its_topic = topic is not None and found.topic_id in (None, topic.topic_id)
            if topic is not None and is_its_topic and found.partition in topic.partitions:
                continue
            if found.topic_id in self.removed_topic_ids:
                try:
                    self._logs.delete(*topic_partition)
                except BrokerError as error:
                    log.error("%s is not deleted: %s", topic_partition, error.message)
            else:
                found.is_stray = True
                strays.append(found.directory)
        if strays:
            log.error(
                "%d partition directories are not in the metadata, %s%s: they are kept as they are and not served. If "
                "the metadata log was lost, restore it (controller-N) before topics of these names are created again",
                len(strays),
                ", ".join(strays[:3]),
                ", ..." if len(strays) > 3 else "",
            )

    def _delete(self, topic_partition: TopicPartition) -> None:
        self.pending.pop(topic_partition, None)
        partition = self.partitions.pop(topic_partition, None)
        if partition is None:
            return
        was_leader, partition.is_leader = partition.is_leader, False
        partition.leading = None
        if self._fetchers is not None:
            self._fetchers.unfollow(partition)
        self._in_sync.forget(topic_partition)
        self._moves.cancel(partition)
        if was_leader:
            for listener in self._listeners:
                listener.on_follower(topic_partition, partition.leader_epoch)
        self._on_new_epoch(partition)
        self._logs.delete(topic_partition.topic, topic_partition.partition)

    def _delete_stray(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        """Delete a replica that was moved away while this broker was down."""
        stray = self._logs.get(*topic_partition)
        if stray is not None and stray.topic_id == topic_id:
            self._logs.delete(*topic_partition)

    def _notify_listeners(self, partition: Partition, *, was_leader: bool, old_epoch: int) -> None:
        topic_partition = partition.topic_partition
        if partition.is_leader and (not was_leader or partition.leader_epoch != old_epoch):
            for listener in self._listeners:
                listener.on_leader(topic_partition, partition.leader_epoch)
        elif was_leader and not partition.is_leader:
            for listener in self._listeners:
                listener.on_follower(topic_partition, partition.leader_epoch)
        if partition.leader_epoch != old_epoch:
            self._on_new_epoch(partition)
