"""The rules of the quorum one by one: what a member does about one event, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from broker_embedded.controller.raft.effects import (
    AppendFetched,
    AppendLeaderChange,
    CommitEntries,
    Diverged,
    Effect,
    ElectionState,
    PeerReply,
    SaveState,
    Send,
    TruncateTo,
)
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
from broker_embedded.controller.raft.log_view import EpochEnd, divergence, end_of_epoch, last_epoch, truncation_point
from broker_embedded.controller.raft.machine import next_deadline_ms, step
from broker_embedded.controller.raft.member import Member, Timeouts
from broker_embedded.controller.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochResponse,
    FetchAnswer,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from broker_embedded.controller.raft.roles import VALID_PREVIOUS, RaftRole
from ottla_wire.protocol import ErrorCode

TIMEOUTS = Timeouts(fetch_ms=400, election_ms=200, election_backoff_max_ms=200)


class EpochLog:
    """A log that is nothing but its epochs: one letter of `1 1 2` for each offset."""

    def __init__(self, text: str = "") -> None:
        self.epochs = [int(each) for each in text.split()]

    @property
    def end_offset(self) -> int:
        return len(self.epochs)

    @property
    def epoch_starts(self) -> Sequence[tuple[int, int]]:
        return [
            (epoch, offset)
            for offset, epoch in enumerate(self.epochs)
            if not offset or self.epochs[offset - 1] != epoch
        ]


class Node:
    """A member, its log and the time."""

    def __init__(
        self, node_id: int, *, log: str = "", voters: int = 3, state: ElectionState | None = None, start: bool = True
    ) -> None:
        self.log = EpochLog(log)
        self.now_ms = 1_000
        self.member = Member(
            node_id=node_id,
            voters=range(1, voters + 1),
            log=self.log,
            state=state,
            random=Random(node_id),
            timeouts=TIMEOUTS,
        )
        self.effects: list[Effect] = self.step(Started()) if start else []

    def step(self, event: Event) -> list[Effect]:
        """With what the effects do to the log."""
        done: list[Effect] = []
        pending = [event]
        while pending:
            for effect in step(self.member, pending.pop(), self.now_ms):
                done.append(effect)
                before = list(self.log.epochs)
                if isinstance(effect, AppendLeaderChange):
                    self.log.epochs.append(effect.epoch)
                elif isinstance(effect, AppendFetched):
                    self.log.epochs += effect.batches
                elif isinstance(effect, TruncateTo):
                    del self.log.epochs[effect.offset :]
                if self.log.epochs != before:
                    pending.append(LogChanged())
        self.effects = done
        return done

    def ask(self, request: Any) -> Any:
        """The reply to a request."""
        effects = self.step(Requested(request=request))
        (reply,) = [effect.response for effect in effects if isinstance(effect, PeerReply)]
        return reply

    def answer(self, sender: int, request: Any, response: Any) -> list[Effect]:
        return self.step(Answered(sender=sender, request=request, response=response))

    def wait_for_deadline(self) -> list[Effect]:
        """Let time pass until the role's own deadline."""
        role = self.member.role
        for _ in range(1_000):
            due_ms = next_deadline_ms(self.member)
            assert due_ms is not None
            self.now_ms = max(self.now_ms, due_ms)
            effects = self.step(TimerFired())
            if self.member.role is not role:
                return effects
            for each in sent(effects):
                self.step(NotAnswered(peer=each.to, request=each.request))
        raise AssertionError(f"still {role}")

    def win(self) -> list[Effect]:
        """Be elected by voter 2 or 1."""
        other = next(each for each in self.member.voters if each != self.member.node_id)
        for pre_vote in (True, False):
            request = VoteRequest(
                candidate_id=self.member.node_id,
                epoch=self.member.epoch,
                last_epoch=last_epoch(self.log),
                end_offset=self.log.end_offset,
                pre_vote=pre_vote,
            )
            granted = VoteResponse(voter_id=other, epoch=self.member.epoch, leader_id=-1, granted=True)
            effects = self.answer(other, request, granted)
        assert self.member.role is RaftRole.LEADER
        return effects

    def fetched_by(self, replica: int, offset: int, epoch: int, **changes: Any) -> FetchAnswer:
        fetch = FetchRequest(
            replica_id=replica,
            epoch=changes.pop("leader_epoch", self.member.epoch),
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            **changes,
        )
        reply = self.ask(fetch)
        assert isinstance(reply, FetchAnswer)
        return reply


def sent(effects: Sequence[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def vote(candidate: int, epoch: int, *, log: str = "", pre_vote: bool = False) -> VoteRequest:
    view = EpochLog(log)
    return VoteRequest(
        candidate_id=candidate,
        epoch=epoch,
        last_epoch=last_epoch(view),
        end_offset=view.end_offset,
        pre_vote=pre_vote,
    )


# --- votes


def test_a_voter_votes_once_in_an_epoch_and_saves_it_before_it_answers() -> None:
    voter = Node(2)
    effects = voter.step(Requested(request=vote(1, 5)))
    kinds = [type(effect) for effect in effects if isinstance(effect, SaveState | PeerReply)]
    assert kinds[-1] is PeerReply
    saved = [effect.state for effect in effects if isinstance(effect, SaveState)]
    assert saved[-1] == ElectionState(epoch=5, leader_id=-1, voted_id=1)
    assert not voter.ask(vote(3, 5)).granted
    assert voter.ask(vote(1, 5)).granted
    assert voter.ask(vote(3, 6)).granted


def test_a_vote_survives_a_restart() -> None:
    voter = Node(2, state=ElectionState(epoch=5, voted_id=1))
    assert not voter.ask(vote(3, 5)).granted
    assert voter.ask(vote(1, 5)).granted


@pytest.mark.parametrize(
    ("candidate_log", "granted"),
    [("1 1 2 2", True), ("1 1 2", True), ("1 1 1 1 1", False), ("1 1", False), ("1 1 3", True), ("", False)],
)
@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_candidate_whose_log_is_behind_gets_no_vote(candidate_log: str, granted: bool, pre_vote: bool) -> None:
    voter = Node(2, log="1 1 2")
    assert voter.ask(vote(1, 9, log=candidate_log, pre_vote=pre_vote)).granted is granted


def test_a_request_of_an_old_epoch_is_fenced_and_told_the_new_one() -> None:
    voter = Node(2, state=ElectionState(epoch=5))
    for reply in (
        voter.ask(vote(1, 4)),
        voter.ask(BeginQuorumEpochRequest(leader_id=1, epoch=4)),
        voter.ask(EndQuorumEpochRequest(leader_id=1, epoch=4, successors=[2])),
    ):
        assert (reply.error, reply.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 5)


def test_a_candidates_log_cannot_be_of_a_later_epoch_than_its_own() -> None:
    voter = Node(2)
    assert voter.ask(vote(1, 3, log="3")).error == ErrorCode.INVALID_REQUEST
    assert voter.ask(vote(1, 3, log="3", pre_vote=True)).error == ErrorCode.NONE


def test_observers_neither_vote_nor_are_elected() -> None:
    observer = Node(4)
    assert observer.ask(vote(1, 3)).error == ErrorCode.INCONSISTENT_VOTER_SET
    assert Node(2).ask(vote(4, 3)).error == ErrorCode.INCONSISTENT_VOTER_SET
    assert sent(observer.effects) == []
    assert [each.request.fetch_offset for each in sent(Node(4).effects)] == [0]


# --- elections


def test_the_first_voter_asks_at_its_start_whether_it_would_win_and_raises_no_epoch_by_asking() -> None:
    first = Node(1)
    assert first.member.role is RaftRole.PROSPECTIVE
    assert [(each.to, each.request) for each in sent(first.effects)] == [
        (2, vote(1, 0, pre_vote=True)),
        (3, vote(1, 0, pre_vote=True)),
    ]
    assert not any(isinstance(effect, SaveState) for effect in first.effects)


def test_a_majority_of_pre_votes_makes_a_candidate_and_a_majority_of_votes_a_leader() -> None:
    first = Node(1)
    granted = VoteResponse(voter_id=2, epoch=0, leader_id=-1, granted=True)
    effects = first.answer(2, vote(1, 0, pre_vote=True), granted)
    assert first.member.role is RaftRole.CANDIDATE
    assert effects[0] == SaveState(state=ElectionState(epoch=1, voted_id=1)), "saved before anybody is asked"
    assert [each.request for each in sent(effects)] == [vote(1, 1), vote(1, 1)]
    effects = first.answer(3, vote(1, 1), VoteResponse(voter_id=3, epoch=1, leader_id=-1, granted=True))
    assert first.member.role is RaftRole.LEADER
    assert effects[:2] == [
        SaveState(state=ElectionState(epoch=1, leader_id=1, voted_id=1)),
        AppendLeaderChange(epoch=1, leader_id=1, voters=(1, 2, 3), granting_voters=(1, 3)),
    ]
    begins = [each for each in sent(effects) if isinstance(each.request, BeginQuorumEpochRequest)]
    assert [each.to for each in begins] == [2, 3]


def test_one_voter_elects_itself_without_a_message() -> None:
    only = Node(1, voters=1)
    assert only.member.is_active_leader
    assert sent(only.effects) == []
    assert only.effects[-1] == CommitEntries(high_watermark=1)


def test_votes_of_an_earlier_election_do_not_count() -> None:
    first = Node(1)
    first.answer(2, vote(1, 0), VoteResponse(voter_id=2, epoch=0, leader_id=-1, granted=True))
    assert first.member.role is RaftRole.PROSPECTIVE


def test_a_follower_that_has_fetched_refuses_pre_votes_until_it_misses_the_leader_itself() -> None:
    follower = follower_of_1(log="1")
    answer_fetch(follower, high_watermark=0)
    assert not follower.ask(vote(3, 1, log="1", pre_vote=True)).granted
    follower.wait_for_deadline()
    assert follower.member.role is RaftRole.PROSPECTIVE
    assert follower.ask(vote(3, 1, log="1", pre_vote=True)).granted


def test_a_node_that_cannot_win_returns_to_its_leader_with_its_epoch_unchanged() -> None:
    follower = follower_of_1(log="1")
    follower.wait_for_deadline()
    refused = VoteResponse(voter_id=1, epoch=1, leader_id=1, granted=False)
    follower.answer(1, vote(2, 1, log="1", pre_vote=True), refused)
    assert (follower.member.role, follower.member.leader_id, follower.member.epoch) == (RaftRole.FOLLOWER, 1, 1)


def test_a_leader_steps_down_before_a_higher_epoch() -> None:
    leader = Node(1)
    leader.win()
    assert leader.ask(vote(2, 7, log="1 1")).granted
    assert (leader.member.role, leader.member.epoch, leader.member.progress) == (RaftRole.UNATTACHED, 7, None)


def test_a_leader_does_not_lead_its_epoch_again_after_a_restart() -> None:
    restarted = Node(2, log="1", state=ElectionState(epoch=1, leader_id=2, voted_id=2))
    assert restarted.member.role is RaftRole.RESIGNED
    assert [each.request for each in sent(restarted.effects)] == [
        EndQuorumEpochRequest(leader_id=2, epoch=1, successors=(1, 3))
    ] * 2
    assert not restarted.ask(vote(3, 1)).granted
    restarted.wait_for_deadline()
    assert restarted.member.epoch == 1
    restarted.win()
    assert restarted.member.epoch == 2


def test_a_log_that_is_ahead_of_the_saved_state_gives_the_epoch() -> None:
    member = Node(1, log="1 6")
    assert member.member.epoch == 6
    member.win()
    assert member.log.epochs == [1, 6, 7]


def test_two_leaders_of_one_epoch_are_not_believed() -> None:
    follower = follower_of_1()
    assert follower.ask(BeginQuorumEpochRequest(leader_id=3, epoch=1)).error == ErrorCode.INVALID_REQUEST
    assert follower.member.leader_id == 1


def test_every_role_can_be_left_and_none_but_a_candidate_is_elected() -> None:
    assert VALID_PREVIOUS.keys() == set(RaftRole)
    assert VALID_PREVIOUS[RaftRole.LEADER] == {RaftRole.CANDIDATE}
    assert VALID_PREVIOUS[RaftRole.CANDIDATE] == {RaftRole.PROSPECTIVE}


# --- replication


def follower_of_1(*, log: str = "", epoch: int = 1) -> Node:
    follower = Node(2, log=log)
    reply = follower.ask(BeginQuorumEpochRequest(leader_id=1, epoch=epoch))
    assert isinstance(reply, EpochResponse)
    assert reply.error is ErrorCode.NONE
    return follower


def answer_fetch(
    follower: Node, *, high_watermark: int, batches: list[int] | None = None, diverging: EpochEnd | None = None
) -> list[Effect]:
    """The leader's answer to the fetch that is under way."""
    (fetch,) = [each.request for each in sent(follower.effects) if isinstance(each.request, FetchRequest)]
    leader_id = follower.member.leader_id
    answer = FetchAnswer(
        epoch=follower.member.epoch, leader_id=leader_id, high_watermark=high_watermark, diverging=diverging
    )
    return follower.answer(leader_id, fetch, FetchResponse(answer=answer, batches=batches))


def test_a_follower_appends_what_it_fetched_before_it_asks_for_more() -> None:
    follower = follower_of_1()
    effects = answer_fetch(follower, high_watermark=1, batches=[1, 1])
    assert effects[:2] == [AppendFetched(batches=[1, 1]), CommitEntries(high_watermark=1)]
    (more,) = sent(effects)
    assert (more.request.fetch_offset, more.request.last_fetched_epoch, more.request.high_watermark) == (2, 1, 1)


def test_a_followers_high_watermark_is_not_beyond_what_it_has() -> None:
    follower = follower_of_1()
    answer_fetch(follower, high_watermark=9, batches=[1, 1])
    assert follower.member.high_watermark == 2
    answer_fetch(follower, high_watermark=1)
    assert follower.member.high_watermark == 2, "nor does it move back"


def test_a_follower_that_diverged_truncates_and_commits_nothing_before_it_knows_that_the_logs_agree() -> None:
    follower = follower_of_1(log="1 2 2", epoch=4)
    effects = answer_fetch(follower, high_watermark=9, diverging=EpochEnd(1, 5))
    assert effects[0] == TruncateTo(offset=1)
    assert follower.member.high_watermark == 0
    (more,) = sent(effects)
    assert (more.request.fetch_offset, more.request.last_fetched_epoch) == (1, 1)
    answer_fetch(follower, high_watermark=9, batches=[1, 3])
    assert follower.member.high_watermark == 3


def test_what_was_committed_is_never_truncated() -> None:
    follower = follower_of_1()
    answer_fetch(follower, high_watermark=2, batches=[1, 1])
    follower.ask(BeginQuorumEpochRequest(leader_id=3, epoch=2))
    effects = answer_fetch(follower, high_watermark=0, diverging=EpochEnd(0, 0))
    assert isinstance(effects[0], Diverged)
    assert follower.log.epochs == [1, 1]


def test_answers_of_an_earlier_leader_are_not_appended() -> None:
    follower = follower_of_1()
    old = follower.effects
    follower.ask(BeginQuorumEpochRequest(leader_id=3, epoch=2))
    follower.effects = old
    (fetch,) = [each.request for each in sent(old)]
    stale = FetchResponse(answer=FetchAnswer(epoch=1, leader_id=1, high_watermark=1), batches=[1])
    assert not any(isinstance(each, AppendFetched) for each in follower.answer(1, fetch, stale))


def test_the_high_watermark_follows_the_majority_of_fetched_offsets() -> None:
    leader = Node(1, voters=5)
    step(leader.member, TimerFired(), leader.now_ms)
    for pre_vote in (True, False):
        for other in (2, 3):
            request = vote(1, leader.member.epoch, pre_vote=pre_vote)
            leader.answer(other, request, VoteResponse(voter_id=other, epoch=request.epoch, leader_id=-1, granted=True))
    leader.log.epochs += [1, 1]
    leader.step(LogChanged())
    leader.fetched_by(2, 3, 1)
    assert leader.member.high_watermark == 0
    assert not leader.member.is_active_leader
    leader.fetched_by(9, 3, 1)
    assert leader.member.high_watermark == 0, "an observer does not count"
    leader.fetched_by(3, 2, 1)
    assert leader.member.high_watermark == 2
    assert leader.member.is_active_leader
    leader.fetched_by(3, 1, 1)
    assert leader.member.high_watermark == 2, "a fetch that was overtaken takes nothing back"


def test_batches_of_earlier_epochs_are_committed_only_by_one_of_the_leaders_own() -> None:
    """Raft's figure 8: a majority has offset 1 of epoch 1, but a node with a later epoch could still replace it."""
    leader = Node(1, log="1 1", state=ElectionState(epoch=3))
    leader.win()
    assert leader.log.epochs == [1, 1, 4]
    leader.fetched_by(2, 2, 1)
    assert leader.member.high_watermark == 0
    leader.fetched_by(2, 3, 4)
    assert leader.member.high_watermark == 3


@pytest.mark.parametrize(
    ("fetch", "wanted"),
    [
        ((0, 0), None),
        ((3, 2), None),
        ((4, 2), EpochEnd(2, 3)),
        ((5, 3), EpochEnd(2, 3)),
        ((2, 1), None),
        ((3, 1), EpochEnd(1, 2)),
        ((1, 0), EpochEnd(0, 0)),
        ((6, 5), None),
        ((9, 9), EpochEnd(5, 6)),
    ],
)
def test_a_reader_is_told_where_its_log_leaves_the_leaders(fetch: tuple[int, int], wanted: EpochEnd | None) -> None:
    log = EpochLog("1 1 2 5 5 5")
    assert divergence(log, fetch_offset=fetch[0], last_fetched_epoch=fetch[1]) == wanted


@pytest.mark.parametrize(
    ("own", "diverging", "offset"),
    [
        ("1 1 1 1", EpochEnd(1, 2), 2),
        ("1 2 2", EpochEnd(1, 5), 1),
        ("1 3 3", EpochEnd(2, 9), 1),
        ("2 2", EpochEnd(0, 0), 0),
        ("1 1", EpochEnd(1, 9), 2),
    ],
)
def test_a_log_is_cut_where_it_may_agree_with_the_leaders(own: str, diverging: EpochEnd, offset: int) -> None:
    assert truncation_point(EpochLog(own), diverging) == offset


def test_an_epoch_ends_where_the_next_one_starts() -> None:
    log = EpochLog("1 1 4")
    assert [end_of_epoch(log, epoch) for epoch in (0, 1, 2, 4, 9)] == [
        EpochEnd(0, 0),
        EpochEnd(1, 2),
        EpochEnd(1, 2),
        EpochEnd(4, 3),
        EpochEnd(4, 3),
    ]


@pytest.mark.parametrize(
    ("leader_epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_a_fetch_of_another_epoch_is_refused_and_told_the_leader(leader_epoch: int, error: ErrorCode) -> None:
    leader = Node(1)
    leader.win()
    answer = leader.fetched_by(2, 0, 0, leader_epoch=leader_epoch)
    assert (answer.error, answer.leader_id, answer.epoch) == (error, 1, 1)
    assert leader.member.high_watermark == 0


def test_a_fetch_waits_when_it_would_learn_nothing_and_not_when_the_high_watermark_is_news() -> None:
    leader = Node(1)
    leader.win()
    answer = leader.fetched_by(2, 1, 1, high_watermark=0)
    assert answer.is_worth_sending, "its own fetch has committed the batch"
    assert not leader.fetched_by(2, 1, 1, high_watermark=1).is_worth_sending
    assert not leader.fetched_by(2, 1, 1).is_worth_sending, "a reader of an earlier version does not say"
    leader.log.epochs.append(1)
    leader.step(LogChanged())
    assert leader.fetched_by(2, 1, 1, high_watermark=1).is_worth_sending


# --- leaders that go


def test_a_leader_that_no_majority_fetches_from_resigns_and_names_the_furthest_first() -> None:
    leader = Node(1)
    leader.win()
    leader.fetched_by(3, 1, 1)
    effects = leader.wait_for_deadline()
    assert leader.member.role is RaftRole.RESIGNED
    assert leader.now_ms >= 1_000 + TIMEOUTS.check_quorum_ms
    assert [each.request for each in sent(effects)] == [
        EndQuorumEpochRequest(leader_id=1, epoch=1, successors=(3, 2))
    ] * 2
    assert leader.fetched_by(3, 1, 1).error == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_was_not_looking_blames_nobody_for_that_time() -> None:
    leader = Node(1)
    leader.win()
    leader.fetched_by(2, 1, 1)
    leader.now_ms += 5_000
    leader.step(TimerFired(late_ms=4_400))
    assert leader.member.role is RaftRole.LEADER
    leader.fetched_by(2, 1, 1)
    leader.now_ms += 300
    leader.step(TimerFired())
    assert leader.member.role is RaftRole.LEADER


def test_a_leader_that_slept_long_asks_at_once_whether_it_still_leads_and_resigns_soon() -> None:
    leader = Node(1)
    leader.win()
    for voter in (2, 3):
        begin = BeginQuorumEpochRequest(leader_id=1, epoch=1)
        leader.answer(voter, begin, EpochResponse(voter_id=voter, epoch=1, leader_id=1))
    leader.now_ms += 60_000
    assert [each.to for each in sent(leader.step(TimerFired(late_ms=59_000)))] == [2, 3]
    leader.now_ms += TIMEOUTS.fetch_ms // 2
    leader.step(TimerFired())
    assert leader.member.role is RaftRole.RESIGNED


def test_a_late_timer_is_forgiven_once() -> None:
    follower = follower_of_1()
    follower.now_ms += 2_000
    follower.step(TimerFired(late_ms=1_500))
    assert follower.member.role is RaftRole.FOLLOWER
    follower.now_ms += 2_000
    follower.step(TimerFired(late_ms=500))
    assert follower.member.role is RaftRole.PROSPECTIVE


def test_the_first_successor_of_a_leader_that_ends_stands_at_once_and_the_second_waits() -> None:
    end = EndQuorumEpochRequest(leader_id=1, epoch=1, successors=[2, 3])
    first = follower_of_1()
    first.step(Requested(request=end))
    assert next_deadline_ms(first.member) == first.now_ms
    first.step(TimerFired())
    assert first.member.role is RaftRole.PROSPECTIVE
    second = Node(3)
    second.ask(BeginQuorumEpochRequest(leader_id=1, epoch=1))
    second.step(Requested(request=end))
    second.step(TimerFired())
    assert second.member.role is RaftRole.UNATTACHED
    assert second.ask(vote(2, 1, pre_vote=True)).granted


def test_who_has_been_told_that_a_leader_ended_does_not_believe_those_who_have_not() -> None:
    member = follower_of_1()
    member.ask(EndQuorumEpochRequest(leader_id=1, epoch=1, successors=[3, 2]))
    member.ask(BeginQuorumEpochRequest(leader_id=1, epoch=1))
    assert member.member.leader_id == -1


def test_only_a_leader_resigns() -> None:
    follower = follower_of_1()
    assert sent(follower.step(ResignRequested())) == []
    assert follower.member.role is RaftRole.FOLLOWER


def test_a_peer_that_cannot_be_reached_is_asked_again_with_backoff() -> None:
    first = Node(1)
    request = vote(1, 0, pre_vote=True)
    waits = []
    for _ in range(4):
        first.step(NotAnswered(peer=2, request=request))
        assert next_deadline_ms(first.member) is not None
        waits.append(next_deadline_ms(first.member) - first.now_ms)
        first.now_ms = next_deadline_ms(first.member)
        assert [each.to for each in sent(first.step(TimerFired()))] == [2]
    assert waits == [5, 10, 20, 40]
