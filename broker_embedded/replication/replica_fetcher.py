"""Keeps one connection to one leader busy with fetches, for the partitions followed there.

The shell around `fetch_plan`: it sends, waits and hands over answers. One request is under way at a time; the next one
leaves in the same turn of the loop that brought the answer, because it reports to the leader that the last one
arrived.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from broker_embedded.common.clock import client_monotonic_ms, client_timer
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.peers import Peers
from broker_embedded.replication.fetch_plan import FetchPlan, Followed
from broker_embedded.replication.own_broker import OwnBroker
from broker_embedded.replication.partition import Partition
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

log = logging.getLogger(__name__)

FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 7
_LATEST, _EARLIEST = -1, -2


class ReplicaFetcher:
    """Fetches from one leader. See the module."""

    def __init__(
        self,
        own: OwnBroker,
        *,
        leader: int,
        channel: str,
        plan: FetchPlan,
        peers: Peers,
    ) -> None:
        self.plan = plan
        self._own = own
        self._leader = leader
        self._channel = channel
        self._peers = peers
        # Pauses after errors pass in real time: replication goes on while a test's clock stands still.
        self._now_ms = client_monotonic_ms(own.clock)
        self._call_later = client_timer(own.loop)
        self._timeout_ms = own.config().replica_socket_timeout_ms
        self._is_busy = False
        self._is_closed = False
        self._timer: asyncio.Handle | None = None

    def follow(self, partition: Partition) -> None:
        """Fetch this partition too."""
        self.plan.follow(partition)
        if not self._is_busy:  # else the next request names it; all of a metadata change go into one
            self._schedule(0)

    def close(self) -> None:
        """Stop fetching; a late response is dropped."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if delay_ms:
            self._timer = self._call_later(delay_ms / 1000, self._fetch)
        else:
            self._timer = self._own.loop.call_soon(self._fetch)

    def _fetch(self) -> None:
        if self._is_closed or self._is_busy:
            return
        now_ms = self._now_ms()
        attempt_ms = self.plan.next_attempt_ms(now_ms)
        if attempt_ms is None:
            return
        if attempt_ms > now_ms:
            self._schedule(attempt_ms - now_ms)
            return
        request = self.plan.request(now_ms)
        request["replica_state"] = {"replica_id": self._own.node_id, "replica_epoch": self._own.epoch()}
        self._is_busy = True
        self._send(ApiKey.FETCH, FETCH_VERSION, request, self._on_fetched)

    def _send(
        self, api: ApiKey, version: int, body: dict[str, object], on_done: Callable[[Message | BrokerError], None]
    ) -> None:
        def done(answered: asyncio.Future[Message]) -> None:
            response = _result_of(answered)
            if not self._is_closed:
                on_done(response)

        self._peers.send(
            self._leader, api, version, body, channel=self._channel, timeout_ms=self._timeout_ms
        ).add_done_callback(done)

    def _on_fetched(self, response: Message | BrokerError) -> None:
        self._is_busy = False
        now_ms = self._now_ms()
        if isinstance(response, BrokerError):
            self.plan.on_failure(now_ms, response.message)
        else:
            out_of_range = self.plan.on_answer(response, now_ms)
            if out_of_range:
                self._look_up(out_of_range)
                return
        self._fetch()

    # --- offsets out of range

    def _look_up(self, partitions: Sequence[Followed]) -> None:
        """Look up the ends and then the starts of the leader's logs; fetching continues after that."""
        self._is_busy = True
        ends: dict[tuple[str, int], int] = {}

        def with_starts(response: Message | BrokerError) -> None:
            starts = _offsets(response)
            now_ms = self._now_ms()
            for followed in partitions:
                name = followed.partition.topic_partition
                known = name in starts and name in ends
                self.plan.on_leader_offsets(followed, (starts[name], ends[name]) if known else None, now_ms)
            self._is_busy = False
            self._fetch()

        def with_ends(response: Message | BrokerError) -> None:
            ends.update(_offsets(response))
            self._list_offsets(partitions, _EARLIEST, with_starts)

        self._list_offsets(partitions, _LATEST, with_ends)

    def _list_offsets(
        self, partitions: Sequence[Followed], timestamp: int, on_done: Callable[[Message | BrokerError], None]
    ) -> None:
        topics: dict[str, list[dict[str, int]]] = {}
        for followed in partitions:
            name, number = followed.partition.topic_partition
            topics.setdefault(name, []).append(
                {
                    "partition_index": number,
                    "current_leader_epoch": followed.leader_epoch,
                    "timestamp": timestamp,
                }
            )
        body: dict[str, object] = {
            "replica_id": self._own.node_id,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": wanted} for name, wanted in topics.items()],
        }
        self._send(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, body, on_done)


def _result_of(answered: asyncio.Future[Message]) -> Message | BrokerError:
    if answered.cancelled():
        return BrokerError(ErrorCode.NETWORK_EXCEPTION, "the request was cancelled")
    error = answered.exception()
    if error is None:
        return answered.result()
    if isinstance(error, BrokerError):
        return error
    log.error("a request to another broker failed", exc_info=error)
    return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))


def _offsets(response: Message | BrokerError) -> dict[tuple[str, int], int]:
    if isinstance(response, BrokerError):
        return {}
    return {
        (topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }
