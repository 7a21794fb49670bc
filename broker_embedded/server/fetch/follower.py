"""One Fetch request of a follower, which reads up to the log end; its fetch offsets acknowledge the records before
them.

A follower fetches all its partitions of this leader again and again, mostly without new data. So within a session a
partition that has not changed rests, and is not read before something happens to it (`follower_wakeups`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.fetch_session import FetchSession, SessionKey, SessionPartition
from broker_embedded.replication.partition import Isolation, Partition
from broker_embedded.replication.replica_manager import LEADERSHIP_CHANGED, replica_key, session_key
from broker_embedded.replication.replica_selector import RACK_AWARE_SELECTOR
from broker_embedded.server.fetch.operation import Fetch, PartitionRead
from broker_embedded.server.requests.context import Body, RequestContext
from ottla_wire.protocol.message import Message

if TYPE_CHECKING:
    from broker_embedded.server.fetch.operation import FetchNeeds

AWAITED_POLL_MS = 5
"""Longest wait of a follower's fetch while it is expected to fetch a partition that it does not know yet."""

LOOK_AT_ALL_MS = 2_000
"""How often a session's fetch looks at all of its partitions, unless a quarter of replica.lag.time.max.ms is less: it
notes that the follower has kept up."""


class FollowerFetch(Fetch):
    """See the module."""

    __slots__ = (
        "_broker_epoch",
        "_has_advanced",
        "_is_first_read",
        "_is_throttled",
        "_kept_awake",
        "_leader_epoch",
        "_looks_at_all",
        "_may_pass_over",
        "_now_ms",
        "_replica",
        "_selects_replicas",
    )

    def __init__(
        self,
        ctx: RequestContext[FetchNeeds],
        request: Message,
        session: FetchSession | None,
        partitions: list[SessionPartition],
        *,
        replica: int,
        broker_epoch: int,
    ) -> None:
        super().__init__(ctx, request, session, partitions)
        services = ctx.services
        registered = services.metadata.image.brokers.get(replica)
        is_stale = registered is not None and registered.epoch > broker_epoch
        self._replica = replica
        self._broker_epoch = broker_epoch
        self._isolation = Isolation.LOG_END
        self._find = self._find_for_follower
        self._leader_epoch = -1
        self._selects_replicas = services.config.replica_selector_class == RACK_AWARE_SELECTOR
        self._is_first_read = True
        self._has_advanced = False
        self._is_throttled = False
        self._may_pass_over = not (session is None or session.is_full_answer or is_stale or services.faults.is_armed)
        self._now_ms = services.clock.monotonic_ms()
        self._looks_at_all = not self._may_pass_over or self._is_due(session)
        self._kept_awake: set[SessionKey] = set()
        if session is not None:
            session.broker_epoch = broker_epoch
            if session.is_full_answer:
                services.replicas.follower_wakeups.forget_ended()

    def _is_due(self, session: FetchSession | None) -> bool:
        if session is None or session.broker_epoch != self._broker_epoch:
            return True
        interval_ms = min(LOOK_AT_ALL_MS, self.ctx.services.config.replica_lag_time_max_ms // 4)
        return self._now_ms - session.looked_at_all_ms >= interval_ms

    @property
    def reads_nothing(self) -> bool:
        return not (self.partitions if self._session is None else self._session.partitions)

    # --- reading

    def read(self) -> None:
        self._is_throttled = False
        session = self._session
        if session is not None:
            looked_at = session.partitions if self._looks_at_all else session.awake
            self.partitions = list(looked_at.values())
            self._kept_awake = set(looked_at)
            if self._looks_at_all:
                session.looked_at_all_ms = self._now_ms
                self._looks_at_all = not self._may_pass_over
        super().read()
        if self._has_advanced and self._is_first_read and not self.must_answer_now:
            self.must_answer_now = self._has_news()
        self._is_first_read = False

    def _has_news(self) -> bool:
        """Complete the fetch if it moved a high watermark itself: that may have caused an append to a partition read
        before, which would not wake this fetch.
        """
        if self._session is not None and not self._kept_awake.issuperset(self._session.awake):
            return True
        return any(
            partition.log.log_end_offset > wanted.fetch_offset for partition, wanted, _ in self._readers.values()
        )

    def _read_one(
        self, name: str | None, wanted: SessionPartition, budget: int, *, at_least_one: bool
    ) -> PartitionRead | None:
        if wanted.is_checked and self._may_pass_over and name is not None:
            topic_partition = TopicPartition(name, wanted.partition)
            partition = self.ctx.services.replicas.partition(topic_partition)
            if partition is not None and self._is_unchanged(partition, wanted):
                assert self._session is not None  # else nothing is passed over
                self._kept_awake.discard((wanted.topic, wanted.partition))
                self.ctx.services.replicas.follower_wakeups.rest(topic_partition, self._session, wanted)
                return None
        if self._session is not None:
            self._session.awake[wanted.topic, wanted.partition] = wanted
        self._leader_epoch = wanted.current_leader_epoch
        return super()._read_one(name, wanted, budget, at_least_one=at_least_one)

    def _is_unchanged(self, partition: Partition, wanted: SessionPartition) -> bool:
        """Return whether the request is unchanged, with no new records and no unreported state."""
        leading = partition.leading
        if leading is None or partition.leader_epoch != wanted.current_leader_epoch:
            return False
        follower = leading.followers.get(self._replica)
        own = partition.log
        end_offset = own.log_end_offset
        if follower is None or not (wanted.fetch_offset == follower.log_end_offset == end_offset):
            return False
        if (
            wanted.high_watermark != own.high_watermark
            or wanted.log_start_offset != own.log_start_offset
            or wanted.last_stable_offset != own.last_stable_offset
            or follower.broker_epoch != self._broker_epoch
            or self._replica not in leading.isr
            or own.offline_reason is not None
        ):
            return False
        if self._is_first_read:
            follower.on_fetch(
                fetch_offset=end_offset,
                log_start_offset=wanted.reader_log_start_offset,
                broker_epoch=self._broker_epoch,
                leader_end_offset=end_offset,
                now_ms=self._now_ms,
            )
        return True

    def _find_for_follower(self, topic_partition: TopicPartition) -> Partition:
        replicas = self.ctx.services.replicas
        partition = replicas.leader_partition(topic_partition)
        partition.check_leader_epoch(self._leader_epoch)
        says_epoch = self._leader_epoch >= 0
        replicas.in_sync.check_follower(partition, self._replica, self._broker_epoch, says_epoch=says_epoch)
        return partition

    def _is_answered_without_records(self, partition: Partition, wanted: SessionPartition, read: PartitionRead) -> bool:
        """Respond without records to a follower that has everything. Where consumers read from followers, it gets the
        new high watermark at once (otherwise with the next records, as in Kafka).
        """
        if self._is_first_read:
            high_watermark = partition.high_watermark
            self.ctx.services.replicas.in_sync.follower_fetched(
                partition,
                self._replica,
                fetch_offset=wanted.fetch_offset,
                log_start_offset=wanted.reader_log_start_offset,
                broker_epoch=self._broker_epoch,
            )
            wanted.is_checked = True
            self._has_advanced = self._has_advanced or partition.high_watermark > high_watermark
        read.body["high_watermark"] = partition.high_watermark
        read.body["last_stable_offset"] = partition.log.last_stable_offset
        read.must_answer = self._selects_replicas and self._is_behind(partition)
        is_held_up = self._is_held_up(partition)
        self._is_throttled = self._is_throttled or is_held_up
        return is_held_up

    def _is_held_up(self, partition: Partition) -> bool:
        return self.ctx.services.replicas.leader_throttle.holds(partition, self._replica)

    def _is_behind(self, partition: Partition) -> bool:
        """Return whether the follower lacks the current high watermark."""
        leading = partition.leading
        if leading is None or self._replica not in leading.followers:
            return True
        return leading.followers[self._replica].sent_high_watermark < partition.high_watermark

    # --- waiting

    def _watch(self) -> None:
        replicas = self.ctx.services.replicas
        keys = (*self._readers, replica_key(self._replica))
        if self._session is not None:
            keys += (session_key(self._session.session_id),)
        if replicas.in_sync.awaits(self._replica):  # in real time: also while a test's clock stands still
            replicas.fetches.watch(self, keys, timeout_ms=min(self.request.max_wait_ms, AWAITED_POLL_MS))
        else:
            timeout_ms: int = self.request.max_wait_ms
            if self._is_throttled:  # nobody tells when there is something to spend again
                timeout_ms = min(timeout_ms, max(replicas.leader_throttle.wait_ms(), 1))
            replicas.fetches.watch_for_node(self, keys, timeout_ms=timeout_ms)

    def is_satisfied(self, key: TopicPartition, amount: int) -> bool:
        if amount >= LEADERSHIP_CHANGED:
            return True
        if key not in self._readers and not self._looks_at(key):
            return False
        partition, wanted, _ = self._readers[key]
        if self._selects_replicas and self._is_behind(partition):
            return True
        if partition.log.log_end_offset <= wanted.fetch_offset or self._is_held_up(partition):
            return False
        self._waited_bytes += amount
        min_bytes: int = self.request.min_bytes
        return self._available + self._waited_bytes >= min_bytes

    def _looks_at(self, topic_partition: TopicPartition) -> bool:
        """Return whether it waits for a partition that rested when the wait began: from now on it is woken for it."""
        session, partition = self._session, self.ctx.services.replicas.partition(topic_partition)
        if session is None or partition is None:
            return False
        topic = partition.topic_id if session.uses_topic_ids else topic_partition.topic
        wanted = session.awake.get((topic, topic_partition.partition))
        if wanted is None:
            return False
        self._readers[topic_partition] = (partition, wanted, 0)
        self.ctx.services.replicas.fetches.watch_also(self, topic_partition)
        return True

    # --- answering

    def body(self) -> Body:
        """Return the response; the follower learns the high watermarks from it."""
        response = super().body()
        throttle = self.ctx.services.replicas.leader_throttle
        for read in self._reads:
            if read is not None and read.partition is not None and read.partition.leading is not None:
                follower = read.partition.leading.followers.get(self._replica)
                if follower is not None:
                    follower.sent_high_watermark = read.body["high_watermark"]
                if read.slice is not None and read.slice.size:
                    throttle.record(read.partition, self._replica, read.slice.size)
        return response
