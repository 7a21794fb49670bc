"""The decisions of one member of the metadata quorum, `step(event, now_ms)`: KRaft (KIP-595) with KIP-996's pre-vote.

No socket, no file, no clock: time is an argument, chance is the injected `Random`, the log is a view that changes only
by the effects returned here (and by a leader's own appends, which are told with `LogChanged`).

What holds, and why: an epoch has at most one leader, because a voter votes once per epoch and saves that before it
answers. A leader has every committed batch, because a voter refuses a candidate whose log is behind its own. A batch is
committed when a majority of voters has fetched past it and the leader's own epoch has a batch there: batches of earlier
epochs are committed by that one (raft's figure 8). Followers pull: a fetch tells the leader where the follower's log
ends, durably, and the leader tells a follower whose log does not agree where they part.

Beyond Kafka: a follower's fetch timeout has up to a quarter of chance on top, because here one loop wakes all
followers of a dead leader in the same millisecond, and their votes would split. The first voter of the list asks for
pre-votes as soon as it starts: a fresh cluster need not wait for a timeout, and a living leader is not disturbed by it.
A follower whose leader's process has ended, which refused connections tell, waits for no timeout; the voters that are
left stand one after the other, in the order of the list, so that their votes do not split.
A timer that itself ran late waits a little longer, once: a stalled loop says nothing about the others, and what they
said meanwhile may be next in its queue.
"""

from __future__ import annotations

from broker_embedded.controller.raft.effects import Effect, Send
from broker_embedded.controller.raft.events import (
    Answered,
    Event,
    LogChanged,
    NotAnswered,
    Requested,
    ResignRequested,
    Started,
    TimerFired,
)
from broker_embedded.controller.raft.log_view import last_epoch
from broker_embedded.controller.raft.messages import (
    BeginQuorumEpochRequest,
    ElectionRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchRequest,
    FetchResponse,
    Request,
    VoteRequest,
    VoteResponse,
)
from broker_embedded.controller.raft.replication import Replication
from broker_embedded.controller.raft.roles import Role


class RaftMachine(Replication):
    """See the module. `next_deadline_ms` says when it wants a `TimerFired`; look again after each step."""

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """What is to be done about `event`, in this order."""
        self._now_ms = now_ms
        match event:
            case Requested():
                self._on_request(event.request)
            case Answered():
                self._on_response(event.sender, event.request, event.response)
            case NotAnswered():
                self._on_no_response(event.peer, event.request)
                if event.is_dead and event.peer == self.leader_id:
                    self._on_leader_dead()
            case LogChanged():
                self._on_log_changed()
            case TimerFired():
                self._on_timer(event.late_ms)
            case Started():
                self._on_start()
            case ResignRequested():
                if self.progress is not None:
                    self._resign(self.progress.successors())
        self._send_fetch()
        self._send_due()
        effects, self._effects = self._effects, []
        return effects

    @property
    def next_deadline_ms(self) -> int | None:
        fetch_due_ms = self._fetch_due_ms if self._fetch_in_flight is None else None
        dues = (self._deadline_ms, self._outbox.next_due_ms, fetch_due_ms)
        return min((due for due in dues if due is not None), default=None)

    # --- events

    def _on_start(self) -> None:
        led_last = self.leader_id == self.node_id
        if self.voters == (self.node_id,):
            self._become_prospective()  # and, with its own vote, candidate and leader at once
        elif led_last:
            self._resign(self.other_voters)
        elif self.is_voter and self.voters[0] == self.node_id:
            self._become_prospective()
        elif self.leader_id in self.voters:
            self._become_follower(self.epoch, self.leader_id)
        else:
            self._become_unattached(self.epoch)

    def _on_request(self, request: Request) -> None:
        match request:
            case FetchRequest():
                self._on_fetch_request(request)
            case VoteRequest():
                self._on_vote_request(request)
            case BeginQuorumEpochRequest():
                self._on_begin_request(request)
            case EndQuorumEpochRequest():
                self._on_end_request(request)

    def _on_response(
        self, sender: int, request: Request, response: VoteResponse | EpochResponse | FetchResponse
    ) -> None:
        if isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
            self._on_fetch_response(sender, request, response)
        elif isinstance(request, VoteRequest) and isinstance(response, VoteResponse):
            self._on_vote_response(request, response)
        elif isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest) and isinstance(
            response, EpochResponse
        ):
            self._on_epoch_response(request, response)

    def _on_no_response(self, peer: int, request: Request) -> None:
        if isinstance(request, FetchRequest):
            self._on_no_fetch_response(request)
        elif request == self._owed():
            self._outbox.failed(peer, now_ms=self._now_ms)

    def _on_timer(self, late_ms: int) -> None:
        if self._deadline_ms is None or self._deadline_ms > self._now_ms:
            return
        if late_ms * 10 > self.timeouts.fetch_ms and not self._is_forgiven:
            self._deadline_ms = self._now_ms + min(late_ms, self.timeouts.fetch_ms // 2)
            self._is_forgiven = True
        else:
            self._on_deadline()

    # --- requests that are due

    def _send_due(self) -> None:
        request = self._owed()
        for peer in self._outbox.take_due(self._now_ms):
            if request is None:
                continue
            if self.progress is not None:
                fetched_ms = self.progress.last_fetch_ms(peer)
                due_ms = fetched_ms + self.timeouts.begin_interval_ms
                if fetched_ms >= 0 and due_ms > self._now_ms:  # it knows who leads
                    self._outbox.again(peer, due_ms)
                    continue
            self._effects.append(Send(to=peer, request=request))

    def _owed(self) -> ElectionRequest | None:
        """What the present role asks or tells every other voter."""
        match self.role:
            case Role.PROSPECTIVE | Role.CANDIDATE:
                return VoteRequest(
                    candidate_id=self.node_id,
                    epoch=self.epoch,
                    last_epoch=last_epoch(self.log),
                    end_offset=self.log.end_offset,
                    pre_vote=self.role is Role.PROSPECTIVE,
                )
            case Role.LEADER:
                return BeginQuorumEpochRequest(leader_id=self.node_id, epoch=self.epoch)
            case Role.RESIGNED:
                return EndQuorumEpochRequest(leader_id=self.node_id, epoch=self.epoch, successors=self._successors)
        return None
