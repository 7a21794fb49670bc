"""Votes, and who is told to lead: the requests Vote, BeginQuorumEpoch and EndQuorumEpoch, and the ends of timeouts."""

from __future__ import annotations

from broker_embedded.controller.raft import log_view
from broker_embedded.controller.raft.effects import ElectionState, Reply
from broker_embedded.controller.raft.member import NOBODY, Member
from broker_embedded.controller.raft.messages import (
    NO_LEADER,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    VoteRequest,
    VoteResponse,
)
from broker_embedded.controller.raft.roles import Role
from ottla_wire.protocol import ErrorCode

WITHOUT_LEADER = frozenset({Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE, Role.RESIGNED})


class Elections(Member):
    """See the module."""

    # --- requests

    def _on_vote_request(self, request: VoteRequest) -> None:
        error = self._problem_with(request.candidate_id, request.epoch)
        last_possible_epoch = request.epoch if request.pre_vote else request.epoch - 1
        if error is ErrorCode.NONE and request.last_epoch > last_possible_epoch:
            error = ErrorCode.INVALID_REQUEST
        granted = False
        if error is ErrorCode.NONE:
            if request.epoch > self.epoch:
                self._become_unattached(request.epoch)
            granted = self._grants_pre_vote(request) if request.pre_vote else self._grants_vote(request)
            if granted and not request.pre_vote:
                self._vote_for(request.candidate_id)
        self._effects.append(
            Reply(
                response=VoteResponse(
                    voter_id=self.node_id, epoch=self.epoch, leader_id=self.leader_id, granted=granted, error=error
                )
            )
        )

    def _grants_vote(self, request: VoteRequest) -> bool:
        if self.state.voted_id != NOBODY:
            return self.state.voted_id == request.candidate_id
        return self.leader_id == NO_LEADER and self._is_up_to_date(request)

    def _grants_pre_vote(self, request: VoteRequest) -> bool:
        """It binds nobody. Refused while the leader is known to live: that one node cannot see it is no reason."""
        follows_a_live_leader = self.role is Role.LEADER or (self.role is Role.FOLLOWER and self._has_fetched)
        return not follows_a_live_leader and self._is_up_to_date(request)

    def _is_up_to_date(self, request: VoteRequest) -> bool:
        return log_view.is_up_to_date(self.log, epoch=request.last_epoch, end_offset=request.end_offset)

    def _vote_for(self, candidate_id: int) -> None:
        if self.role is not Role.UNATTACHED:
            self._become_unattached(self.epoch)
        self._remember(ElectionState(epoch=self.epoch, voted_id=candidate_id))
        self._set_deadline(self._election_timeout_ms())  # time for it to win and say so

    def _on_begin_request(self, request: BeginQuorumEpochRequest) -> None:
        error = self._problem_with(request.leader_id, request.epoch)
        is_contradiction = request.epoch == self.epoch and self.leader_id not in (NO_LEADER, request.leader_id)
        if error is ErrorCode.NONE and (is_contradiction or request.leader_id == self.node_id):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and request.epoch != self._ended_epoch:
            if self.role is Role.FOLLOWER and request.epoch == self.epoch:
                self._hear_from_leader()
                if self._fetch_in_flight is None and self._fetch_due_ms is not None:
                    self._fetch_due_ms = self._now_ms
            else:
                self._become_follower(request.epoch, request.leader_id)
        self._reply(error)

    def _on_end_request(self, request: EndQuorumEpochRequest) -> None:
        """The leader goes. The first successor stands for election now, each later one gives those before it time."""
        error = self._problem_with(request.leader_id, request.epoch)
        if error is ErrorCode.NONE and request.leader_id != self.node_id and self.role is not Role.LEADER:
            self._ended_epoch = request.epoch
            if self.role not in (Role.PROSPECTIVE, Role.CANDIDATE) or request.epoch > self.epoch:
                self._become_unattached(request.epoch)
                if self.is_voter:
                    self._set_deadline(self._successor_backoff_ms(request))
        self._reply(error)

    def _successor_backoff_ms(self, request: EndQuorumEpochRequest) -> int:
        successors = list(request.successors)
        position = successors.index(self.node_id) if self.node_id in successors else len(successors)
        if position == 0:
            return 0
        most = min(self.timeouts.election_backoff_max_ms, self.timeouts.election_ms << (position - 1))
        return max(1, most // 2 + self._random.randrange(most // 2 + 1))

    def _problem_with(self, other: int, epoch: int) -> ErrorCode:
        if other not in self.voters or not self.is_voter:
            return ErrorCode.INCONSISTENT_VOTER_SET
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.NONE

    def _reply(self, error: ErrorCode) -> None:
        response = EpochResponse(voter_id=self.node_id, epoch=self.epoch, leader_id=self.leader_id, error=error)
        self._effects.append(Reply(response=response))

    # --- responses

    def _on_vote_response(self, request: VoteRequest, response: VoteResponse) -> None:
        if self._learns(response.epoch, response.leader_id):
            return
        role = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
        if self.role is not role or request.epoch != self.epoch:
            return  # of an election that is over
        if response.granted and response.error is ErrorCode.NONE:
            self._granted.add(response.voter_id)
        elif self.leader_id == response.leader_id == response.voter_id:
            self._give_up_election()  # the leader itself has answered
            return
        else:
            self._rejected.add(response.voter_id)
        self._count_votes()

    def _on_epoch_response(
        self, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, response: EpochResponse
    ) -> None:
        if self._learns(response.epoch, response.leader_id):
            return
        is_current = self.role is Role.LEADER and request.epoch == self.epoch
        if is_current and isinstance(request, BeginQuorumEpochRequest):
            self._outbox.again(response.voter_id, self._now_ms + self.timeouts.begin_interval_ms)

    def _learns(self, epoch: int, leader_id: int) -> bool:
        """Whether somebody knows a newer epoch, or the leader of this one: then that is what counts now."""
        is_known_voter = leader_id in self.voters and leader_id != self.node_id
        if epoch > self.epoch:
            if is_known_voter:
                self._become_follower(epoch, leader_id)
            else:
                self._become_unattached(epoch)
            return True
        is_news = epoch == self.epoch and self.role in WITHOUT_LEADER and epoch != self._ended_epoch
        if is_news and is_known_voter and self.leader_id == NO_LEADER:
            self._become_follower(epoch, leader_id)
            return True
        return False

    # --- the leader's process has ended

    def _on_leader_dead(self) -> None:
        """Nobody grants it a pre-vote's refusal any more, and nobody waits for it."""
        if self.role is Role.FOLLOWER and self.is_voter:
            self._has_fetched = False
            self._set_deadline_if_earlier(self._succession_ms())
        elif self.role is Role.PROSPECTIVE:
            self._rejected.add(self.leader_id)
            self._count_votes()

    def _succession_ms(self) -> int:
        """The first voter that is left stands when the others can have noticed, each later one after those before it.

        One that is refused, because they have not, asks the leader again, is refused, and stands again.
        """
        position = [voter for voter in self.voters if voter != self.leader_id].index(self.node_id)
        return 2 * self.timeouts.retry_ms + position * (self.timeouts.election_ms // 4)

    # --- the end of a timeout

    def _on_deadline(self) -> None:
        match self.role:
            case Role.UNATTACHED | Role.RESIGNED:
                self._become_prospective()
            case Role.FOLLOWER:
                if self.is_voter:
                    self._become_prospective()
                else:
                    self._become_unattached(self.epoch)
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self._give_up_election()
            case Role.LEADER:
                self._check_quorum()

    def _check_quorum(self) -> None:
        """A leader that a majority has left would serve old metadata for ever: it resigns."""
        assert self.progress is not None
        seen_ms = self.progress.majority_seen_ms()
        if seen_ms is None:
            self._set_deadline(None)
        elif self._now_ms - seen_ms >= self.timeouts.check_quorum_ms:
            self._resign(self.progress.successors())
        else:
            self._set_deadline(seen_ms + self.timeouts.check_quorum_ms - self._now_ms)
