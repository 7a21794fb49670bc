"""A member of the metadata quorum, voter or observer: the state machine with its log, timers and peers.

Whatever the machine wants done is done in its order and on the loop's thread; what was committed is given to this
node's subscribers afterwards. A disk that fails ends the membership, as Kafka ends the process: a vote or an
acknowledgement that is not on the disk must never have been given.

Not done: snapshots (the log is kept whole and read from its start at each start), changes of the voters.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from broker_embedded.common.clock import Clock
from broker_embedded.common.errors import BrokerError
from broker_embedded.common.filesystem import FileSystem
from broker_embedded.common.peers import Peers
from broker_embedded.controller.commits import CommitFeed, CommittedBatch, Subscriber
from broker_embedded.controller.quorum import LeadershipListener, OnDone, QuorumView
from broker_embedded.controller.raft import wire
from broker_embedded.controller.raft.deadline_timer import DeadlineTimer
from broker_embedded.controller.raft.description import describe
from broker_embedded.controller.raft.disk import QuorumDisk
from broker_embedded.controller.raft.effects import PeerReply, Send, TruncateTo
from broker_embedded.controller.raft.events import (
    Event,
    LogChanged,
    Requested,
    ResignRequested,
    Started,
    TimerFired,
)
from broker_embedded.controller.raft.fetches import Answer, MetadataFetches, decode_fetch
from broker_embedded.controller.raft.machine import next_deadline_ms, step
from broker_embedded.controller.raft.member import Member, Timeouts
from broker_embedded.controller.raft.messages import (
    BeginQuorumEpochRequest,
    ElectionRequest,
    EndQuorumEpochRequest,
    FetchAnswer,
    Response,
    VoteRequest,
)
from broker_embedded.controller.raft.peer_requests import PeerRequests
from broker_embedded.controller.raft.pending_appends import PendingAppends
from broker_embedded.controller.raft.replication import fetch_answer
from broker_embedded.metadata.records import MetadataRecord
from broker_embedded.storage.log import Log
from ottla_wire.protocol import ErrorCode
from ottla_wire.protocol.message import Message

logger = logging.getLogger(__name__)

FATE_S = 10.0
"""Longest wait of an append for the next leader's decision. A node that is cut off never learns it."""


class RaftQuorum:
    """`MetadataQuorum` of several voters, seen from one node. A node that is not in `voters` observes."""

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        metadata_log: Log,
        fs: FileSystem,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        peers: Peers,
        cluster_id: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        """`fs` is the file system of `metadata_log`, whose directory gets the quorum-state file. Raises StartupError if
        that file exists and cannot be read."""
        self._node_id = node_id
        self._disk = QuorumDisk(metadata_log, fs, node_id=node_id, voters=voters, clock=clock)
        unusable = self._disk.view.unusable_record()
        if unusable is not None:  # found now, and not when it is replayed: then the others would wait for this node
            raise unusable
        self._clock = clock
        self._loop = loop
        self._cluster_id = cluster_id
        self._timeouts = timeouts or Timeouts()
        self._member = Member(
            node_id=node_id,
            voters=voters,
            log=self._disk.view,
            state=self._disk.state_file.read(),
            random=random,
            timeouts=self._timeouts,
        )
        self._feed = CommitFeed()
        self._fetches = MetadataFetches(loop=loop, log=metadata_log, answer=partial(fetch_answer, self._member))
        self._appends = PendingAppends(self._feed)
        self._fate_timer: asyncio.TimerHandle | None = None
        self._listeners: list[LeadershipListener] = []
        self._reported: tuple[bool, int, int] = (False, self._member.epoch, -1)
        self._timer = DeadlineTimer(loop, on_due=lambda late_ms: self._step_alone(TimerFired(late_ms=late_ms)))
        self._mail = PeerRequests(
            node_id=node_id,
            cluster_id=cluster_id,
            peers=peers,
            timeouts=self._timeouts,
            on_outcome=self._step_alone,
        )
        self._is_running = False

    # --- what the controller and the brokers see

    @property
    def leader_id(self) -> int:
        return self._member.leader_id

    @property
    def epoch(self) -> int:
        return self._member.epoch

    @property
    def is_leader(self) -> bool:
        return self._reported[0]

    def silence_of(self, node: int) -> int:
        return self._member.silence_of(node, self._timer.now_ms())

    def append(self, records: Sequence[MetadataRecord], on_done: OnDone) -> None:
        if not (self._is_running and self.is_leader and self._member.is_active_leader):
            self._feed.call(partial(on_done, self._not_controller()))
        elif not records:
            self._feed.call(partial(on_done, None))
        else:
            try:
                last_offset = self._disk.append(records, epoch=self._member.epoch)
            except BrokerError as error:
                if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                    self._fail(error)
                raise
            self._appends.add(last_offset, on_done)
            self._step_alone(LogChanged())

    def subscribe(self, subscriber: Subscriber) -> None:
        self._feed.subscribe(subscriber)

    def add_leadership_listener(self, listener: LeadershipListener) -> None:
        self._listeners.append(listener)
        if self.is_leader:
            listener(True, self.epoch)

    def start(self) -> None:
        if not self._is_running:
            self._is_running = True
            self._step(Started())

    def pause(self) -> None:
        self._timer.pause()
        self._stop_waiting()

    def resume(self) -> None:
        self._timer.resume()
        self._wait_for_their_fate()

    async def resign(self) -> None:
        """Give up leadership; returns when the others know, or after the election timeout."""
        if not self._is_running:
            return
        self._step(ResignRequested())
        await self._mail.farewells()

    def close(self) -> None:
        if not self._is_running:
            return
        self._is_running = False
        self._timer.set(None)
        self._mail.close()
        self._fetches.close()
        self._stop_waiting()
        self._appends.refuse(self._not_controller())
        self._report((False, self.epoch, -1))

    def describe(self) -> QuorumView:
        progress = self._member.progress
        if progress is None or not self._is_running:
            raise BrokerError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self._node_id} does not lead the metadata quorum"
            )
        return describe(self._member, progress, now_ms=self._timer.now_ms(), wall_ms=self._clock.now_ms())

    # --- requests of other nodes

    def handle_fetch(self, request: Message) -> Answer:
        incoming = decode_fetch(request, cluster_id=self._cluster_id)
        if isinstance(incoming, dict):
            return incoming
        if not self._is_running:
            return {"error_code": int(ErrorCode.BROKER_NOT_AVAILABLE), "responses": []}
        answer = self._step(Requested(request=incoming.fetch))
        assert isinstance(answer, FetchAnswer)
        return self._fetches.serve(incoming, answer)

    def handle_vote(self, request: Message) -> dict[str, Any]:
        return self._handle(VoteRequest, request)

    def handle_begin_quorum_epoch(self, request: Message) -> dict[str, Any]:
        return self._handle(BeginQuorumEpochRequest, request)

    def handle_end_quorum_epoch(self, request: Message) -> dict[str, Any]:
        return self._handle(EndQuorumEpochRequest, request)

    def _handle(self, kind: type[ElectionRequest], request: Message) -> dict[str, Any]:
        decoded = wire.decode_request(kind, request, node_id=self._node_id, cluster_id=self._cluster_id)
        if isinstance(decoded, ErrorCode):
            return wire.refuse(decoded)
        if not self._is_running:
            return wire.refuse(ErrorCode.BROKER_NOT_AVAILABLE)
        response = self._step(Requested(request=decoded))
        assert response is not None
        assert not isinstance(response, FetchAnswer)
        return wire.encode_response(response)

    # --- the machine

    def _step(self, event: Event) -> Response | None:
        """Run the machine, carry out its effects, then notify subscribers and listeners."""
        reply: Response | None = None
        pending: list[Event] = [event]
        try:
            while pending:
                for effect in step(self._member, pending.pop(), self._timer.now_ms()):
                    if isinstance(effect, PeerReply):
                        reply = effect.response
                    elif isinstance(effect, Send):
                        self._mail.send(effect.to, effect.request)
                    elif self._disk.perform(effect):
                        if isinstance(effect, TruncateTo):
                            self._appends.truncated(effect.offset, self._not_controller())
                        pending.append(LogChanged())
            committed = self._newly_committed()
        except (OSError, BrokerError) as error:
            self._fail(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._timer.set(next_deadline_ms(self._member))
        self._fetches.wake()
        if committed is not None:
            self._feed.publish(committed)
        self._appends.committed(self._feed.end_offset)
        self._wait_for_their_fate()
        self._report((self._member.is_active_leader, self.epoch, self.leader_id))
        return reply

    def _wait_for_their_fate(self) -> None:
        """Limit the wait of appends after a lost leadership; a leader's own appends wait without limit."""
        has_no_leader_here = self._member.progress is None and bool(self._appends)
        if not has_no_leader_here:
            self._stop_waiting()
        elif self._fate_timer is None:
            self._fate_timer = self._loop.call_later(FATE_S, self._give_them_up)

    def _give_them_up(self) -> None:
        self._fate_timer = None
        self._appends.refuse(self._not_controller())

    def _stop_waiting(self) -> None:
        if self._fate_timer is not None:
            self._fate_timer.cancel()
            self._fate_timer = None

    def _step_alone(self, event: Event) -> None:
        """Run a step without a caller: a disk failure is logged and ends the membership."""
        if not self._is_running:
            return
        try:
            self._step(event)
        except BrokerError as error:
            if error.code != ErrorCode.KAFKA_STORAGE_ERROR:
                raise

    def _fail(self, error: Exception) -> None:
        logger.error("node %d leaves the metadata quorum: %s", self._node_id, error)
        self.close()

    # --- what comes of it

    def _newly_committed(self) -> CommittedBatch | None:
        start_offset, end_offset = self._feed.end_offset, self._member.high_watermark
        return self._disk.committed(start_offset, end_offset) if start_offset < end_offset else None

    def _not_controller(self) -> BrokerError:
        return BrokerError(
            ErrorCode.NOT_CONTROLLER, f"node {self._node_id} is not the active controller, node {self.leader_id} is"
        )

    def _report(self, present: tuple[bool, int, int]) -> None:
        """Call the listeners once all subscribers have seen what was committed before."""
        if present == self._reported:
            return
        self._reported = present
        is_leader, epoch, _ = present
        for listener in list(self._listeners):
            self._feed.call(partial(listener, is_leader, epoch))
