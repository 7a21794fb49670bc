"""The quorum's leader is dead beyond doubt: nobody waits for a timeout, and nobody stands who has no reason to."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from broker_embedded.controller.raft.effects import Effect, PeerReply, Send
from broker_embedded.controller.raft.events import Answered, Event, NotAnswered, Requested, Started, TimerFired
from broker_embedded.controller.raft.machine import step
from broker_embedded.controller.raft.member import Member, Timeouts
from broker_embedded.controller.raft.messages import (
    BeginQuorumEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from broker_embedded.controller.raft.roles import RaftRole
from ottla_wire.protocol import ErrorCode

HOUR_MS = 3_600_000
PATIENT = Timeouts(fetch_ms=HOUR_MS, election_ms=200, election_backoff_max_ms=200)
"""A follower that waits for its fetch timeout waits for ever."""


class EmptyLog:
    end_offset = 0
    epoch_starts: tuple[tuple[int, int], ...] = ()


class Follower:
    """A member of voters 1, 2 and 3 that follows `leader` in epoch 1 and has fetched from it."""

    def __init__(self, node_id: int, *, leader: int) -> None:
        self.leader = leader
        self.now_ms = 1_000
        self.member = Member(
            node_id=node_id, voters=(1, 2, 3), log=EmptyLog(), state=None, random=Random(1), timeouts=PATIENT
        )
        self.step(Started())
        self.step(Requested(request=BeginQuorumEpochRequest(leader_id=leader, epoch=1)))
        self.fetched()

    def step(self, event: Event) -> list[Effect]:
        return step(self.member, event, self.now_ms)

    @property
    def fetch_under_way(self) -> FetchRequest:
        return FetchRequest(
            replica_id=self.member.node_id,
            epoch=1,
            fetch_offset=0,
            last_fetched_epoch=0,
            number=self.member.fetch_in_flight or 0,
        )

    def fetched(self) -> None:
        """The leader's answer to the fetch under way: nothing new."""
        answer = FetchAnswer(error=ErrorCode.NONE, epoch=1, leader_id=self.leader, high_watermark=0)
        self.step(
            Answered(
                sender=self.leader, request=self.fetch_under_way, response=FetchResponse(answer=answer, batches=())
            )
        )

    def refused(self, peer: int) -> list[Effect]:
        """Nobody listens where `peer` did."""
        return self.step(NotAnswered(peer=peer, request=self.fetch_under_way, is_dead=True))

    def stands_after_ms(self) -> int:
        deadline = self.member.deadline_ms
        assert deadline is not None
        return deadline - self.now_ms

    def wait(self, ms: int) -> list[Effect]:
        self.now_ms += ms
        return self.step(TimerFired())

    def grants_pre_vote_to(self, candidate: int) -> bool:
        request = VoteRequest(candidate_id=candidate, epoch=1, last_epoch=0, end_offset=0, pre_vote=True)
        (reply,) = [each.response for each in self.step(Requested(request=request)) if isinstance(each, PeerReply)]
        assert isinstance(reply, VoteResponse)
        return reply.granted


def asked_for_votes(effects: list[Effect]) -> list[VoteRequest]:
    return [each.request for each in effects if isinstance(each, Send) and isinstance(each.request, VoteRequest)]


@pytest.mark.parametrize(("leader", "first", "second"), [(1, 2, 3), (2, 1, 3), (3, 1, 2)])
def test_the_voters_that_are_left_stand_one_after_the_other(leader: int, first: int, second: int) -> None:
    delays = []
    for node in (first, second):
        follower = Follower(node, leader=leader)
        assert follower.stands_after_ms() >= HOUR_MS
        follower.refused(leader)
        delays.append(follower.stands_after_ms())
    assert delays == [10, 60]


def test_it_asks_for_pre_votes_in_the_old_epoch() -> None:
    follower = Follower(2, leader=1)
    follower.refused(1)
    requests = asked_for_votes(follower.wait(10))
    assert [(each.pre_vote, each.epoch) for each in requests] == [(True, 1), (True, 1)]


def test_a_second_refusal_does_not_begin_the_wait_again() -> None:
    follower = Follower(3, leader=1)
    follower.refused(1)
    follower.wait(20)
    follower.refused(1)
    assert follower.stands_after_ms() == 40


def test_another_voter_that_is_dead_is_no_reason_to_stand() -> None:
    follower = Follower(2, leader=1)
    follower.refused(3)
    assert follower.stands_after_ms() >= HOUR_MS
    assert not follower.grants_pre_vote_to(3)


def test_a_pre_vote_is_granted_by_who_knows_that_the_leader_is_dead_and_by_nobody_else() -> None:
    follower = Follower(3, leader=1)
    assert not follower.grants_pre_vote_to(2)
    follower.refused(1)
    assert follower.grants_pre_vote_to(2)


def test_a_leader_that_is_heard_of_again_is_the_leader() -> None:
    """It was restarted, or something else is wrong with the refusal: what it says counts for more."""
    follower = Follower(3, leader=1)
    follower.refused(1)
    follower.wait(5)  # asks voter 2, then the leader
    follower.fetched()
    assert follower.stands_after_ms() >= HOUR_MS
    assert not follower.grants_pre_vote_to(2)


def test_who_is_refused_by_a_voter_that_has_not_noticed_asks_the_leader_again_and_stands_again() -> None:
    follower = Follower(2, leader=1)
    follower.refused(1)
    (request, _) = asked_for_votes(follower.wait(10))
    assert follower.member.role is RaftRole.PROSPECTIVE
    follower.step(NotAnswered(peer=1, request=request, is_dead=True))
    assert follower.member.role is RaftRole.PROSPECTIVE, "voter 3 may still agree"
    refusal = VoteResponse(voter_id=3, epoch=1, leader_id=1, granted=False)
    effects = follower.step(Answered(sender=3, request=request, response=refusal))
    assert follower.member.role is RaftRole.FOLLOWER
    assert [each.to for each in effects if isinstance(each, Send)] == [1]
    follower.refused(1)
    assert follower.stands_after_ms() == 10


# --- members with their logs and wires


@pytest.fixture
def patient_world(world: Callable[..., Any]) -> Callable[..., Any]:
    """A function that makes a world in which nobody would be replaced within an hour but for refused connections."""

    def make(*, detects_deaths: bool) -> Any:
        made = world(nodes=4, voters=3)
        made.timeouts, made.detects_deaths = PATIENT, detects_deaths
        for node in made.disks:
            made.start(node)
        made.until(lambda: all(member.leader_id == 1 for member in made.members.values()))
        made.run(1)
        return made

    return make


def test_dead_leaders_are_replaced_one_after_the_other(patient_world: Callable[..., Any]) -> None:
    cluster = patient_world(detects_deaths=True)
    for epoch in range(2, 12):
        dead = cluster.leader()
        died = cluster.loop.time()
        cluster.kill(dead, loses_power=False)
        new = cluster.until(cluster.leader, within_s=1)
        assert cluster.members[new].epoch == epoch, "the votes have not split"
        assert cluster.loop.time() - died < 0.2
        cluster.append(new, f"t{epoch}")
        cluster.until(lambda: cluster.everybody_has(*(f"t{each}" for each in range(2, epoch + 1))), within_s=5)  # noqa: B023
        cluster.start(dead)
        cluster.until(lambda: all(each.leader_id == new for each in cluster.members.values()), within_s=5)  # noqa: B023
    assert cluster.answered == [None] * 10


def test_a_leader_that_cannot_be_reached_is_not_replaced_before_the_timeout(patient_world: Callable[..., Any]) -> None:
    cluster = patient_world(detects_deaths=True)
    cluster.isolate(1)
    cluster.run(600)
    assert all(member.leader_id == 1 and member.epoch == 1 for member in cluster.members.values())


def test_where_deaths_are_not_detected_a_dead_leader_is_waited_for(patient_world: Callable[..., Any]) -> None:
    cluster = patient_world(detects_deaths=False)
    cluster.kill(1, loses_power=False)
    cluster.run(600)
    assert cluster.leader() is None
    assert all(member.leader_id == 1 for member in cluster.members.values())
