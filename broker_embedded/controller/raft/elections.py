"""Elections: the requests Vote, BeginQuorumEpoch and EndQuorumEpoch, and timeouts."""

from __future__ import annotations

from broker_embedded.controller.raft import log_view
from broker_embedded.controller.raft.effects import ElectionState, PeerReply
from broker_embedded.controller.raft.member import NOBODY, Member
from broker_embedded.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    VoteRequest,
    VoteResponse,
)
from broker_embedded.controller.raft.roles import RaftRole
from ottla_wire.protocol import ErrorCode

WITHOUT_LEADER = frozenset({RaftRole.UNATTACHED, RaftRole.PROSPECTIVE, RaftRole.CANDIDATE, RaftRole.RESIGNED})


# --- requests


def on_vote_request(member: Member, request: VoteRequest) -> None:
    error = _problem_with(member, request.candidate_id, request.epoch)
    last_possible_epoch = request.epoch if request.pre_vote else request.epoch - 1
    if error is ErrorCode.NONE and request.last_epoch > last_possible_epoch:
        error = ErrorCode.INVALID_REQUEST
    granted = False
    if error is ErrorCode.NONE:
        if request.epoch > member.epoch:
            member.become_unattached(request.epoch)
        granted = _grants_pre_vote(member, request) if request.pre_vote else _grants_vote(member, request)
        if granted and not request.pre_vote:
            _vote_for(member, request.candidate_id)
    member.effects.append(
        PeerReply(
            response=VoteResponse(
                voter_id=member.node_id, epoch=member.epoch, leader_id=member.leader_id, granted=granted, error=error
            )
        )
    )


def _grants_vote(member: Member, request: VoteRequest) -> bool:
    if member.state.voted_id != NOBODY:
        return member.state.voted_id == request.candidate_id
    return member.leader_id == NO_LEADER and _is_up_to_date(member, request)


def _grants_pre_vote(member: Member, request: VoteRequest) -> bool:
    """Return whether to grant a pre-vote, which binds no voter. Refused while the leader is known to live, even if the
    candidate cannot reach it.
    """
    follows_a_live_leader = member.role is RaftRole.LEADER or (member.role is RaftRole.FOLLOWER and member.has_fetched)
    return not follows_a_live_leader and _is_up_to_date(member, request)


def _is_up_to_date(member: Member, request: VoteRequest) -> bool:
    return log_view.is_up_to_date(member.log, epoch=request.last_epoch, end_offset=request.end_offset)


def _vote_for(member: Member, candidate_id: int) -> None:
    if member.role is not RaftRole.UNATTACHED:
        member.become_unattached(member.epoch)
    member.remember(ElectionState(epoch=member.epoch, voted_id=candidate_id))
    member.set_deadline(member.election_timeout_ms())  # time for it to win and say so


def on_begin_request(member: Member, request: BeginQuorumEpochRequest) -> None:
    error = _problem_with(member, request.leader_id, request.epoch)
    is_contradiction = request.epoch == member.epoch and member.leader_id not in (NO_LEADER, request.leader_id)
    if error is ErrorCode.NONE and (is_contradiction or request.leader_id == member.node_id):
        error = ErrorCode.INVALID_REQUEST
    if error is ErrorCode.NONE and request.epoch != member.ended_epoch:
        if member.role is RaftRole.FOLLOWER and request.epoch == member.epoch:
            member.hear_from_leader()
            if member.fetch_in_flight is None and member.fetch_due_ms is not None:
                member.fetch_due_ms = member.now_ms
        else:
            member.become_follower(request.epoch, request.leader_id)
    _reply(member, error)


def on_end_request(member: Member, request: EndQuorumEpochRequest) -> None:
    """Handle a leader's resignation. The first successor stands for election now, each later one after a delay."""
    error = _problem_with(member, request.leader_id, request.epoch)
    if error is ErrorCode.NONE and request.leader_id != member.node_id and member.role is not RaftRole.LEADER:
        member.ended_epoch = request.epoch
        if member.role not in (RaftRole.PROSPECTIVE, RaftRole.CANDIDATE) or request.epoch > member.epoch:
            member.become_unattached(request.epoch)
            if member.is_voter:
                member.set_deadline(_successor_backoff_ms(member, request))
    _reply(member, error)


def _successor_backoff_ms(member: Member, request: EndQuorumEpochRequest) -> int:
    successors = list(request.successors)
    position = successors.index(member.node_id) if member.node_id in successors else len(successors)
    if position == 0:
        return 0
    most = min(member.timeouts.election_backoff_max_ms, member.timeouts.election_ms << (position - 1))
    return max(1, most // 2 + member.random.randrange(most // 2 + 1))


def _problem_with(member: Member, other: int, epoch: int) -> ErrorCode:
    if other not in member.voters or not member.is_voter:
        return ErrorCode.INCONSISTENT_VOTER_SET
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < member.epoch else ErrorCode.NONE


def _reply(member: Member, error: ErrorCode) -> None:
    response = EpochResponse(voter_id=member.node_id, epoch=member.epoch, leader_id=member.leader_id, error=error)
    member.effects.append(PeerReply(response=response))


# --- responses


def on_vote_response(member: Member, request: VoteRequest, response: VoteResponse) -> None:
    if learns(member, response.epoch, response.leader_id):
        return
    role = RaftRole.PROSPECTIVE if request.pre_vote else RaftRole.CANDIDATE
    if member.role is not role or request.epoch != member.epoch:
        return  # of an earlier election
    if response.granted and response.error is ErrorCode.NONE:
        member.granted.add(response.voter_id)
    elif member.leader_id == response.leader_id == response.voter_id:
        member.give_up_election()  # the leader itself has answered
        return
    else:
        member.rejected.add(response.voter_id)
    member.count_votes()


def on_epoch_response(
    member: Member, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, response: EpochResponse
) -> None:
    if learns(member, response.epoch, response.leader_id):
        return
    is_current = member.role is RaftRole.LEADER and request.epoch == member.epoch
    if is_current and isinstance(request, BeginQuorumEpochRequest):
        member.outbox.again(response.voter_id, member.now_ms + member.timeouts.begin_interval_ms)


def learns(member: Member, epoch: int, leader_id: int) -> bool:
    """Adopt a newer epoch or the leader of this epoch from a response. Returns whether there was one."""
    is_known_voter = leader_id in member.voters and leader_id != member.node_id
    if epoch > member.epoch:
        if is_known_voter:
            member.become_follower(epoch, leader_id)
        else:
            member.become_unattached(epoch)
        return True
    is_news = epoch == member.epoch and member.role in WITHOUT_LEADER and epoch != member.ended_epoch
    if is_news and is_known_voter and member.leader_id == NO_LEADER:
        member.become_follower(epoch, leader_id)
        return True
    return False


# --- the leader's process has ended


def on_leader_dead(member: Member) -> None:
    """Handle a dead leader: pre-votes are granted from now on, and no fetch waits for it."""
    if member.role is RaftRole.FOLLOWER and member.is_voter:
        member.has_fetched = False
        member.set_deadline_if_earlier(_succession_ms(member))
    elif member.role is RaftRole.PROSPECTIVE:
        member.rejected.add(member.leader_id)
        member.count_votes()


def _succession_ms(member: Member) -> int:
    """Return the delay of this voter's candidacy: the first remaining voter waits until the others can have noticed,
    each later one longer.

    One that is refused, because they have not, asks the leader again, is refused, and stands again.
    """
    position = [voter for voter in member.voters if voter != member.leader_id].index(member.node_id)
    return 2 * member.timeouts.retry_ms + position * (member.timeouts.election_ms // 4)


# --- the end of a timeout


def on_deadline(member: Member) -> None:
    match member.role:
        case RaftRole.UNATTACHED | RaftRole.RESIGNED:
            member.become_prospective()
        case RaftRole.FOLLOWER:
            if member.is_voter:
                member.become_prospective()
            else:
                member.become_unattached(member.epoch)
        case RaftRole.PROSPECTIVE | RaftRole.CANDIDATE:
            member.give_up_election()
        case RaftRole.LEADER:
            _check_quorum(member)


def _check_quorum(member: Member) -> None:
    """Resign if a majority of voters stopped fetching: their leader would serve old metadata for ever."""
    assert member.progress is not None
    seen_ms = member.progress.majority_seen_ms()
    if seen_ms is None:
        member.set_deadline(None)
    elif member.now_ms - seen_ms >= member.timeouts.check_quorum_ms:
        member.resign(member.progress.successors())
    else:
        member.set_deadline(seen_ms + member.timeouts.check_quorum_ms - member.now_ms)
