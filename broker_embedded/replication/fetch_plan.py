"""A follower's fetches from one leader, and its handling of the responses.

Pure but for the logs it appends to: no connection, no timer, time is an argument. `replica_fetcher` is the shell. Costs
are per batch and per partition asked for; records are never looked into.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

from broker_embedded.common.broker_settings import BrokerConfig
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.types import TopicPartition
from broker_embedded.replication.follower_fetch_session import (
    SESSION_ERRORS,
    FetchKey,
    FetchPosition,
    FollowerFetchSession,
)
from broker_embedded.replication.partition import LostByLeader, Partition
from broker_embedded.replication.throttle import ReplicationThrottle
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

log = logging.getLogger(__name__)

FIRST_BACKOFF_MS = 10
"""First backoff: a leader may learn of its leadership a moment later. It doubles up to `replica.fetch.backoff.ms`."""

ASK_STARTS_MS = 2_000
"""Interval of fetches that only report log start offsets advanced by retention here."""

_EXPECTED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""One of the two brokers is behind in its metadata: nothing to worry about, asking again helps."""


class Followed:
    """One partition that this broker follows, within one leader epoch."""

    __slots__ = (
        "asked_at",
        "failures",
        "has_lost_leader",
        "is_looking_up",
        "leader_epoch",
        "partition",
        "problem",
        "retry_at_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.asked_at = -1
        """The offset of the request in flight."""
        self.retry_at_ms = 0
        self.failures = 0
        self.is_looking_up = False
        self.has_lost_leader = False
        self.problem: str | None = None
        """Error of its last fetch; None after a success or without one."""

    @property
    def key(self) -> FetchKey:
        return self.partition.topic_id, self.partition.topic_partition.partition

    def position(self, max_bytes: int) -> FetchPosition:
        own = self.partition.log
        last_epoch = own.latest_leader_epoch
        return FetchPosition(
            own.log_end_offset,
            self.leader_epoch,
            -1 if last_epoch is None else last_epoch,
            own.log_start_offset,
            max_bytes,
        )


class FetchPlan:
    """All partitions that one fetcher follows. See the module."""

    def __init__(
        self,
        *,
        config: Callable[[], BrokerConfig],
        on_high_watermark: Callable[[TopicPartition], None],
        throttle: ReplicationThrottle,
    ) -> None:
        self._config = config
        self._on_high_watermark = on_high_watermark
        self._throttle = throttle
        self._followed: dict[FetchKey, Followed] = {}
        self._moved: dict[FetchKey, Followed] = {}
        """Partitions whose entry may differ from the last request, paused ones included."""
        self._session = FollowerFetchSession()
        self._failures = 0
        self._retry_at_ms = 0
        self._asked_starts_ms = -ASK_STARTS_MS
        self._problem: str | None = None
        """Error of the last request as a whole."""

    # --- what is followed

    def follow(self, partition: Partition) -> None:
        """Fetch it from now on. Nothing changes if it is followed in this leader epoch already."""
        followed = Followed(partition)
        known = self._followed.get(followed.key)
        if known is not None and known.partition is partition and known.leader_epoch == partition.leader_epoch:
            return
        own = partition.log
        if own.latest_leader_epoch is None and own.log_end_offset > own.high_watermark:
            own.truncate_to(own.high_watermark)  # without epochs nothing above is known to be the leader's
        self._followed[followed.key] = followed
        self._moved[followed.key] = followed

    def unfollow(self, partition: Partition) -> bool:
        """Stop fetching a partition. Returns True if none is left."""
        key = partition.topic_id, partition.topic_partition.partition
        self._followed.pop(key, None)
        self._moved.pop(key, None)
        self._session.drop(key)
        return not self._followed

    def problem_of(self, partition: Partition) -> str | None:
        """Return the error of the last fetch; None after a success or without one."""
        followed = self._followed.get((partition.topic_id, partition.topic_partition.partition))
        return None if followed is None else followed.problem or self._problem

    def __len__(self) -> int:
        return len(self._followed)

    def __iter__(self) -> Iterator[Followed]:
        return iter(self._followed.values())

    # --- asking

    def next_attempt_ms(self, now_ms: int) -> int | None:
        """Return when the next fetch is due: now, later, or None while nothing is followed."""
        if now_ms < self._retry_at_ms:
            return self._retry_at_ms
        if len(self._session):
            return now_ms
        times = [each.retry_at_ms for each in self._moved.values() if _may_be_asked_for(each)]
        return max(now_ms, min(times)) if times else None

    def request(self, now_ms: int) -> dict[str, Any]:
        """Return the next Fetch request, without the replica's identity. Paused partitions are left out."""
        config = self._config()
        wait_ms = config.replica_fetch_wait_max_ms
        paused: dict[FetchKey, Followed] = {}
        for key, followed in self._moved.items():
            followed.asked_at = -1
            if self._throttle.holds(followed.partition, followed.partition.node_id):
                followed.retry_at_ms = max(followed.retry_at_ms, now_ms + self._throttle.wait_ms())
            if _may_be_asked_for(followed):
                if followed.retry_at_ms <= now_ms:
                    position = followed.position(config.replica_fetch_max_bytes)
                    followed.asked_at = position.fetch_offset
                    self._session.want(key, position)
                    continue
                wait_ms = min(wait_ms, followed.retry_at_ms - now_ms)  # the long poll must not hold this one up
            paused[key] = followed
            self._session.drop(key)
        self._moved = paused
        return {
            "max_wait_ms": wait_ms,
            "min_bytes": config.replica_fetch_min_bytes,
            "max_bytes": config.replica_fetch_response_max_bytes,
            "isolation_level": 0,
            "cluster_id": None,
            "rack_id": "",
            **self._session.request(),
        }

    # --- answers

    def on_failure(self, now_ms: int, problem: str) -> None:
        """Handle a missing response."""
        self._problem = problem
        self._session.interrupted()
        self._retry_at_ms = now_ms + self._pause_ms(self._failures)
        self._failures += 1

    def on_answer(self, response: Message, now_ms: int) -> list[Followed]:
        """Append the fetched batches. Returns the partitions whose position in the leader's log must be looked up."""
        error = ErrorCode.of(response.error_code)
        if error in SESSION_ERRORS:
            self._session.reset()
            return []
        if error:
            log.warning("the leader refused a fetch: %s", error.name)
            self.on_failure(now_ms, error.name)
            return []
        self._failures = 0
        self._problem = None
        self._session.on_answer(response.session_id)
        if not response.responses and now_ms - self._asked_starts_ms >= ASK_STARTS_MS:
            self._asked_starts_ms = now_ms  # time for what this broker's own retention has changed
            self._moved.update(self._followed)
        out_of_range = []
        for topic in response.responses:
            for answer in topic.partitions:
                followed = self._followed.get((topic.topic_id, answer.partition_index))
                if followed is None or followed.asked_at != followed.partition.log.log_end_offset:
                    continue  # it moved, or began another epoch, while this answer was under way
                self._moved[followed.key] = followed
                if self._take(followed, answer, now_ms):
                    followed.is_looking_up = True
                    out_of_range.append(followed)
                if followed.retry_at_ms > now_ms or not _may_be_asked_for(followed):
                    self._session.drop(followed.key)
        return out_of_range

    def _take(self, followed: Followed, answer: Message, now_ms: int) -> bool:
        """Apply one partition's response. Returns True if the requested offset is out of the leader's range."""
        error = ErrorCode.of(answer.error_code)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return True
        if error:
            if error not in _EXPECTED:
                log.warning("%s: the leader answers %s", followed.partition.topic_partition, error.name)
            self._pause(followed, now_ms, error.name)
            return False
        partition = followed.partition
        try:
            if answer.diverging_epoch.end_offset >= 0:
                partition.truncate_to_divergence(answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset)
                moved = False
            else:
                moved = partition.append_as_follower(
                    answer.records or b"",
                    high_watermark=answer.high_watermark,
                    log_start_offset=answer.log_start_offset,
                )
        except LostByLeader as lost:
            self._keep(followed, lost)
        except (BrokerError, OSError) as failure:
            refused = _refusal(partition, failure)
            if not followed.failures:  # said once, tried again until it works
                log.error("%s: what the leader sent was not appended: %s", partition.topic_partition, refused.message)
            self._pause(followed, now_ms, refused.message)
        else:
            followed.failures = 0
            followed.problem = None
            if answer.records:
                self._throttle.record(partition, partition.node_id, len(answer.records))
            if moved:
                self._on_high_watermark(partition.topic_partition)
        return False

    def on_leader_offsets(self, followed: Followed, offsets: tuple[int, int] | None, now_ms: int) -> None:
        """Take (start, end) of the leader's log, or None without a response. Continue where both logs can.

        A leader that ends before us was elected without what we have: that goes. A leader that starts after our end has
        dropped the records between: restart there.
        """
        followed.is_looking_up = False
        if self._followed.get(followed.key) is not followed:
            return
        self._pause(followed, now_ms, ErrorCode.OFFSET_OUT_OF_RANGE.name)
        if offsets is None:
            return
        start, end = offsets
        partition = followed.partition
        try:
            if end < partition.log.log_end_offset:
                partition.truncate_to(end)
            elif start > partition.log.log_end_offset:
                partition.restart_at(start)
            else:
                return
        except LostByLeader as lost:
            self._keep(followed, lost)
        except (BrokerError, OSError) as failure:
            log.error("%s: %s", partition.topic_partition, _refusal(partition, failure).message)
        else:
            followed.retry_at_ms = now_ms

    def _keep(self, followed: Followed, lost: LostByLeader) -> None:
        followed.has_lost_leader = True
        followed.problem = str(lost)
        log.error("%s", lost)

    def _pause(self, followed: Followed, now_ms: int, problem: str) -> None:
        followed.problem = problem
        followed.retry_at_ms = now_ms + self._pause_ms(followed.failures)
        followed.failures += 1

    def _pause_ms(self, failures: int) -> int:
        longest = self._config().replica_fetch_backoff_ms
        return min(longest, FIRST_BACKOFF_MS << min(failures, 20))


def _refusal(partition: Partition, failure: BrokerError | OSError) -> BrokerError:
    """Return why one partition stops. Errors of its disk do not stop the others."""
    if isinstance(failure, BrokerError):
        return failure
    return partition.log.failed(failure, path=partition.log.directory, doing="following")


def _may_be_asked_for(followed: Followed) -> bool:
    return not (followed.is_looking_up or followed.has_lost_leader)
