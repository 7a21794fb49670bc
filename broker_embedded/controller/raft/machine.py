"""The decisions of one member of the metadata quorum, `step(member, event, now_ms)`: KRaft (KIP-595, KIP-996).

No socket, no file, no clock: time is an argument, chance is the injected `Random`, the log is a view that changes only
by the effects returned here (and by a leader's own appends, reported by `LogChanged`).

What holds, and why: an epoch has at most one leader, because a voter votes once per epoch and saves that before it
answers. A leader has every committed batch, because a voter refuses a candidate whose log is behind its own. A batch is
committed when a majority of voters has fetched past it and the leader's own epoch has a batch there: batches of earlier
epochs are committed by that one (raft's figure 8). Followers pull: a fetch reports where the follower's log
ends, durably, and the leader's response has the point of divergence of a follower's log.

Beyond Kafka: a follower's fetch timeout has up to a quarter of chance on top, because here one loop wakes all
followers of a dead leader in the same millisecond, and their votes would split. The first voter of the list asks for
pre-votes as soon as it starts: a fresh cluster need not wait for a timeout, and a living leader is not disturbed by it.
A follower whose leader's process has ended, shown by refused connections, waits for no timeout; the voters that are
left stand one after the other, in the order of the list, so that their votes do not split.
A timer that itself ran late waits a little longer, once: a stalled loop says nothing about the others, and what they
said meanwhile may be next in its queue.
"""

from __future__ import annotations

from broker_embedded.controller.raft import elections, replication
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
from broker_embedded.controller.raft.member import Member
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
from broker_embedded.controller.raft.roles import RaftRole


def step(member: Member, event: Event, now_ms: int) -> list[Effect]:
    """Return the effects of `event`, in order."""
    member.now_ms = now_ms
    match event:
        case Requested():
            _on_request(member, event.request)
        case Answered():
            _on_response(member, event.sender, event.request, event.response)
        case NotAnswered():
            _on_no_response(member, event.peer, event.request)
            if event.is_dead and event.peer == member.leader_id:
                elections.on_leader_dead(member)
        case LogChanged():
            replication.on_log_changed(member)
        case TimerFired():
            _on_timer(member, event.late_ms)
        case Started():
            _on_start(member)
        case ResignRequested():
            if member.progress is not None:
                member.resign(member.progress.successors())
    replication.send_fetch(member)
    _send_due(member)
    effects, member.effects = member.effects, []
    return effects


def next_deadline_ms(member: Member) -> int | None:
    """Return when the member needs a `TimerFired`. Call it again after each step."""
    fetch_due_ms = member.fetch_due_ms if member.fetch_in_flight is None else None
    dues = (member.deadline_ms, member.outbox.next_due_ms, fetch_due_ms)
    return min((due for due in dues if due is not None), default=None)


# --- events


def _on_start(member: Member) -> None:
    led_last = member.leader_id == member.node_id
    if member.voters == (member.node_id,):
        member.become_prospective()  # and, with its own vote, candidate and leader at once
    elif led_last:
        member.resign(member.other_voters)
    elif member.is_voter and member.voters[0] == member.node_id:
        member.become_prospective()
    elif member.leader_id in member.voters:
        member.become_follower(member.epoch, member.leader_id)
    else:
        member.become_unattached(member.epoch)


def _on_request(member: Member, request: Request) -> None:
    match request:
        case FetchRequest():
            replication.on_fetch_request(member, request)
        case VoteRequest():
            elections.on_vote_request(member, request)
        case BeginQuorumEpochRequest():
            elections.on_begin_request(member, request)
        case EndQuorumEpochRequest():
            elections.on_end_request(member, request)


def _on_response(
    member: Member, sender: int, request: Request, response: VoteResponse | EpochResponse | FetchResponse
) -> None:
    if isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
        replication.on_fetch_response(member, sender, request, response)
    elif isinstance(request, VoteRequest) and isinstance(response, VoteResponse):
        elections.on_vote_response(member, request, response)
    elif isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest) and isinstance(response, EpochResponse):
        elections.on_epoch_response(member, request, response)


def _on_no_response(member: Member, peer: int, request: Request) -> None:
    if isinstance(request, FetchRequest):
        replication.on_no_fetch_response(member, request)
    elif request == _owed(member):
        member.outbox.failed(peer, now_ms=member.now_ms)


def _on_timer(member: Member, late_ms: int) -> None:
    if member.deadline_ms is None or member.deadline_ms > member.now_ms:
        return
    if late_ms * 10 > member.timeouts.fetch_ms and not member.is_forgiven:
        member.deadline_ms = member.now_ms + min(late_ms, member.timeouts.fetch_ms // 2)
        member.is_forgiven = True
    else:
        elections.on_deadline(member)


# --- requests that are due


def _send_due(member: Member) -> None:
    request = _owed(member)
    for peer in member.outbox.take_due(member.now_ms):
        if request is None:
            continue
        if member.progress is not None:
            fetched_ms = member.progress.last_fetch_ms(peer)
            due_ms = fetched_ms + member.timeouts.begin_interval_ms
            if fetched_ms >= 0 and due_ms > member.now_ms:  # it knows who leads
                member.outbox.again(peer, due_ms)
                continue
        member.effects.append(Send(to=peer, request=request))


def _owed(member: Member) -> ElectionRequest | None:
    """Return the requests that the current role sends to the other voters."""
    match member.role:
        case RaftRole.PROSPECTIVE | RaftRole.CANDIDATE:
            return VoteRequest(
                candidate_id=member.node_id,
                epoch=member.epoch,
                last_epoch=last_epoch(member.log),
                end_offset=member.log.end_offset,
                pre_vote=member.role is RaftRole.PROSPECTIVE,
            )
        case RaftRole.LEADER:
            return BeginQuorumEpochRequest(leader_id=member.node_id, epoch=member.epoch)
        case RaftRole.RESIGNED:
            return EndQuorumEpochRequest(leader_id=member.node_id, epoch=member.epoch, successors=member.successors)
    return None
