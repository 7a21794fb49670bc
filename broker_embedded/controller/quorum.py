"""Interface of the metadata quorum, and the quorum of one voter. `raft.raft_quorum` has several voters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.controller.commits import CommitFeed, CommittedBatch, Subscriber
from broker_embedded.controller.raft import wire
from broker_embedded.controller.raft.answers import answer_fetch, refuse_request
from broker_embedded.controller.raft.fetches import Answer, MetadataFetches, decode_fetch
from broker_embedded.controller.raft.messages import (
    BeginQuorumEpochRequest,
    ElectionRequest,
    EndQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    VoteRequest,
)
from broker_embedded.controller.raft.stored_log import UNREADABLE, StoredLog, encode_records
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.log import Log
from ottla_wire.facts import fact
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

OnDone = Callable[[BrokerError | None], None]
"""None: committed by this or the next leader, and published to every subscriber of this node. NOT_CONTROLLER: the next
leader lacks the records, or is unknown; then they may still be committed.
"""

LeadershipListener = Callable[[bool, int], None]
"""(whether this node may act as the controller, epoch). Called when either or the known leader changes."""


@fact
class QuorumReplica:
    """A voter or an observer as the leader sees it; times are milliseconds since 1970, -1 unknown."""

    replica_id: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@fact
class QuorumView:
    """DescribeQuorum."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: Sequence[QuorumReplica]
    observers: Sequence[QuorumReplica]


class MetadataQuorum(Protocol):
    """The metadata log as the controller and the brokers see it, and the requests of other nodes that concern it."""

    @property
    def leader_id(self) -> int:
        """Return -1 while unknown."""
        ...

    @property
    def epoch(self) -> int: ...

    @property
    def is_leader(self) -> bool:
        """Return whether this node leads and may act: everything before its epoch is committed and published."""
        ...

    def silence_of(self, node: int) -> int:
        """Return for how many ms this node received nothing from the previous leader; 0 for any other node."""
        ...

    def append(self, records: Sequence[MetadataRecord], on_done: OnDone) -> None:
        """Append as the leader, atomically. `on_done` is called once, at the latest when the quorum is closed."""
        ...

    def subscribe(self, subscriber: Subscriber) -> None:
        """Give `subscriber` everything committed so far, then each batch as it commits; on every node."""
        ...

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        """Call `listener` at each change; at once if this node is already the active controller."""
        ...

    def start(self) -> None:
        """Take part. Until then nothing is sent and no timer runs."""
        ...

    def pause(self) -> None:
        """Stop all timers, like a stopped process. The network holds back incoming requests."""
        ...

    def resume(self) -> None:
        """Go on: timers that should have ended meanwhile find that they are late."""
        ...

    async def resign(self) -> None:
        """Give up leadership before a clean stop, and notify the others so that they need not wait for a timeout."""
        ...

    def close(self) -> None:
        """Stop at once, like a killed node. Waiting appends fail with NOT_CONTROLLER. The log stays open."""
        ...

    def handle_fetch(self, request: Message) -> Answer: ...

    def handle_vote(self, request: Message) -> dict[str, Any]: ...

    def handle_begin_quorum_epoch(self, request: Message) -> dict[str, Any]: ...

    def handle_end_quorum_epoch(self, request: Message) -> dict[str, Any]: ...

    def describe(self) -> QuorumView:
        """Return the leader's view of the replicas. Raises NOT_LEADER_OR_FOLLOWER on any other node."""
        ...


class SingleVoterQuorum:
    """A quorum of one: an append is committed. Each start is a new epoch, which fences writes of an earlier start.

    Observers fetch its log over the wire as they would from any leader. It leads from its construction on.
    """

    def __init__(
        self,
        *,
        voter_id: int,
        metadata_log: Log,
        clock: Clock,
        loop: asyncio.AbstractEventLoop | None = None,
        cluster_id: str | None = None,
    ) -> None:
        self._voter_id = voter_id
        self._log = metadata_log
        self._stored = StoredLog(metadata_log)
        self._clock = clock
        self._loop = loop
        self._cluster_id = cluster_id
        self._feed = CommitFeed()
        try:
            batches = list(self._stored.committed(metadata_log.log_start_offset, metadata_log.log_end_offset))
        except BrokerError as error:
            raise self._stored.unusable_record() or error from None
        self._feed.restore(batches)
        self._epoch = self._feed.last_epoch + 1
        self._log.update_high_watermark(self._log.log_end_offset)
        self._fetches: MetadataFetches | None = None
        self._replicas: dict[int, QuorumReplica] = {}
        self._is_closed = False

    @property
    def leader_id(self) -> int:
        return self._voter_id

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def is_leader(self) -> bool:
        return not self._is_closed

    def silence_of(self, node: int) -> int:
        return 0  # no node led before

    def append(self, records: Sequence[MetadataRecord], on_done: OnDone) -> None:
        if self._is_closed:
            on_done(BrokerError(ErrorCode.NOT_CONTROLLER, "the controller has stopped"))
            return
        if records:
            data = encode_records(records, now_ms=self._clock.now_ms())
            # A quorum of one has committed when its disk has: no other voter has a copy.
            info = self._stored.append(data, epoch=self._epoch)
            self._log.update_high_watermark(self._log.log_end_offset)
            self._feed.publish(CommittedBatch(tuple(records), info.last_offset, self._epoch))
            if self._fetches is not None:
                self._fetches.wake()
        self._feed.call(partial(on_done, None))

    def subscribe(self, subscriber: Subscriber) -> None:
        try:
            self._feed.subscribe(subscriber)
        except UNREADABLE as error:
            raise self._stored.unusable_record() or error from None

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        listener(True, self._epoch)

    def start(self) -> None:
        """Do nothing: it already leads."""

    def pause(self) -> None:
        """Do nothing: it has no timers."""

    def resume(self) -> None:
        """Do nothing: nothing waits."""

    async def resign(self) -> None:
        """Do nothing: a single voter cannot resign."""

    def close(self) -> None:
        self._is_closed = True
        if self._fetches is not None:
            self._fetches.close()

    # --- requests of observers

    def handle_fetch(self, request: Message) -> Answer:
        incoming = decode_fetch(request, cluster_id=self._cluster_id)
        if isinstance(incoming, dict):
            return incoming
        if self._fetches is None:
            loop = self._loop or asyncio.get_running_loop()
            self._fetches = MetadataFetches(loop=loop, log=self._log, answer=self._answer)
        answer = self._answer(incoming.fetch)
        if answer.may_have_batches and incoming.fetch.replica_id >= 0:
            self._note(incoming.fetch)
        return self._fetches.serve(incoming, answer)

    def handle_vote(self, request: Message) -> dict[str, Any]:
        return self._already_decided(VoteRequest, request)

    def handle_begin_quorum_epoch(self, request: Message) -> dict[str, Any]:
        return self._already_decided(BeginQuorumEpochRequest, request)

    def handle_end_quorum_epoch(self, request: Message) -> dict[str, Any]:
        return self._already_decided(EndQuorumEpochRequest, request)

    def describe(self) -> QuorumView:
        end_offset, now_ms = self._log.log_end_offset, self._clock.now_ms()
        own = QuorumReplica(
            replica_id=self._voter_id, log_end_offset=end_offset, last_fetch_ms=now_ms, last_caught_up_ms=now_ms
        )
        return QuorumView(
            leader_id=self._voter_id,
            epoch=self._epoch,
            high_watermark=self._log.high_watermark,
            voters=[own],
            observers=[self._replicas[node] for node in sorted(self._replicas)],
        )

    def _answer(self, fetch: FetchRequest) -> FetchAnswer:
        return answer_fetch(
            fetch,
            log=self._stored,
            epoch=self._epoch,
            leader_id=self._voter_id,
            is_leader=not self._is_closed,
            high_watermark=self._log.high_watermark,
        )

    def _note(self, fetch: FetchRequest) -> None:
        now_ms = self._clock.now_ms()
        known = self._replicas.get(fetch.replica_id)
        is_caught_up = fetch.fetch_offset >= self._log.log_end_offset
        self._replicas[fetch.replica_id] = QuorumReplica(
            replica_id=fetch.replica_id,
            log_end_offset=fetch.fetch_offset,
            last_fetch_ms=now_ms,
            last_caught_up_ms=now_ms if is_caught_up else -1 if known is None else known.last_caught_up_ms,
        )

    def _already_decided(self, kind: type[ElectionRequest], request: Message) -> dict[str, Any]:
        """Refuse any other candidate or leader: this node is the only voter."""
        decoded = wire.decode_request(kind, request, node_id=self._voter_id, cluster_id=self._cluster_id)
        if isinstance(decoded, ErrorCode):
            return wire.refuse(decoded)
        node = self._voter_id
        return wire.encode_response(refuse_request(decoded, node_id=node, epoch=self._epoch, leader_id=node))
