"""Which fetcher follows which partition: one per leader and fetcher number (`num.replica.fetchers`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from broker_embedded.common.peers import Peers
from broker_embedded.common.types import NO_LEADER, TopicPartition
from broker_embedded.replication.fetch_plan import FetchPlan
from broker_embedded.replication.own_broker import OwnBroker
from broker_embedded.replication.partition import Partition
from broker_embedded.replication.replica_fetcher import ReplicaFetcher
from broker_embedded.replication.throttle import ReplicationThrottle

FetcherKey = tuple[int, int]
"""(leader, fetcher number)."""


class ReplicaFetcherManager:
    """All fetchers of one broker."""

    def __init__(
        self,
        own: OwnBroker,
        *,
        peers: Peers,
        on_high_watermark: Callable[[TopicPartition], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._own = own
        self._peers = peers
        self._on_high_watermark = on_high_watermark
        self._throttle = throttle
        self._fetchers: dict[FetcherKey, ReplicaFetcher] = {}
        self._fetcher_of: dict[TopicPartition, FetcherKey] = {}

    def follow(self, partition: Partition) -> None:
        """Fetch `partition` from its leader, as the metadata has it now."""
        topic_partition = partition.topic_partition
        key = partition.leader, self._number_of(topic_partition)
        if self._fetcher_of.get(topic_partition) != key:
            self.unfollow(partition)
        if partition.leader == NO_LEADER:
            return
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._open(*key)
        self._fetcher_of[topic_partition] = key
        fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Fetch `partition` no more: this broker leads it, or holds it no longer. A fetcher without work ends."""
        key = self._fetcher_of.pop(partition.topic_partition, None)
        if key is not None and self._fetchers[key].plan.unfollow(partition):
            self._fetchers.pop(key).close()

    def follows(self, topic_partition: TopicPartition) -> bool:
        """Return whether it is fetched from its leader."""
        return topic_partition in self._fetcher_of

    def problem_of(self, partition: Partition) -> str | None:
        """Return the error of the last fetch of a partition; None after a success or without one."""
        key = self._fetcher_of.get(partition.topic_partition)
        return None if key is None else self._fetchers[key].plan.problem_of(partition)

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._fetcher_of.clear()

    def __len__(self) -> int:
        return len(self._fetchers)

    def _open(self, leader: int, number: int) -> ReplicaFetcher:
        return ReplicaFetcher(
            self._own,
            leader=leader,
            channel=f"replica-fetch-{number}",
            plan=FetchPlan(config=self._own.config, on_high_watermark=self._on_high_watermark, throttle=self._throttle),
            peers=self._peers,
        )

    def _number_of(self, topic_partition: TopicPartition) -> int:
        name, number = topic_partition
        return (zlib.crc32(name.encode()) + number) % self._own.config().num_replica_fetchers
