"""A member of a classic group, step by step: no socket, no clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import AuthenticationError, FencedError
from ottla.records import TopicPartition
from ottla.wire_client.group.classic_protocol import (
    Assign,
    CoordinatorLost,
    ElectedLeader,
    Failed,
    Fenced,
    Membership,
    MembershipPhase,
    Revoke,
)
from ottla_wire.protocol import ApiKey, ErrorCode, codec

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))


def member(strategy: str = "cooperative-sticky", **options: Any) -> Membership:
    return Membership(
        group="g",
        topics=["a"],
        assignors=[strategy],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        heartbeat_ms=1_000,
        **options,
    )


def joined(code: ErrorCode = ErrorCode.NONE, *, leader: str = "other", strategy: str = "cooperative-sticky") -> Any:
    return SimpleNamespace(
        error_code=code, member_id="me", generation_id=3, protocol_name=strategy, leader=leader, members=[]
    )


def synced(*partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> Any:
    body = {
        "assigned_partitions": [{"topic": "a", "partitions": [place.partition for place in partitions]}],
        "user_data": None,
    }
    return SimpleNamespace(error_code=code, assignment=codec.encode_record_value("ConsumerProtocolAssignment", 1, body))


def told(code: ErrorCode) -> Any:
    return SimpleNamespace(error_code=code)


def answer(membership: Membership, answer: Any, now_ms: int = 0) -> list[Any]:
    """The request that is due, answered."""
    ask = membership.next_ask(now_ms)
    assert ask is not None
    return membership.answered(ask, answer, now_ms)


def stable(strategy: str = "cooperative-sticky", *partitions: TopicPartition, **options: Any) -> Membership:
    membership = member(strategy, **options)
    assert answer(membership, joined(strategy=strategy)) == []
    assert answer(membership, synced(*partitions)) == ([Assign(tuple(sorted(partitions)))] if partitions else [])
    assert membership.phase is MembershipPhase.STABLE
    return membership


def asks(membership: Membership, now_ms: int = 0) -> ApiKey | None:
    ask = membership.next_ask(now_ms)
    return None if ask is None else ask.api_key


class TestJoining:
    def test_it_joins_takes_what_it_is_given_and_beats(self) -> None:
        membership = stable("cooperative-sticky", A0, A1)
        assert membership.owned == {A0, A1}
        assert asks(membership, 999) is None
        assert asks(membership, 1_000) is ApiKey.HEARTBEAT
        assert answer(membership, told(ErrorCode.NONE), 1_000) == []
        assert membership.next_ms == 2_000

    def test_an_id_that_it_gets_is_its_id_in_the_next_request(self) -> None:
        membership = member()
        assert answer(membership, joined(ErrorCode.MEMBER_ID_REQUIRED)) == []
        ask = membership.next_ask(0)
        assert ask is not None
        assert (ask.api_key, ask.body["member_id"]) == (ApiKey.JOIN_GROUP, "me")

    def test_the_leader_asks_how_many_partitions_there_are_and_assigns_them(self) -> None:
        subscription = codec.encode_record_value(
            "ConsumerProtocolSubscription",
            3,
            {"topics": ["a"], "user_data": None, "owned_partitions": [], "generation_id": -1, "rack_id": None},
        )
        members = [SimpleNamespace(member_id=name, metadata=subscription) for name in ("me", "you")]
        # One that sends bytes of another protocol gets nothing, and disturbs nobody.
        members.append(SimpleNamespace(member_id="odd", metadata=b"\x00"))
        membership = member()
        response = joined(leader="me")
        response.members = members
        assert answer(membership, response) == [ElectedLeader(("a",))]
        assert asks(membership) is None, "its session lasts while it looks"
        assert asks(membership, 1_000) is ApiKey.HEARTBEAT
        membership.led({"a": 3}, 1_000)

        ask = membership.next_ask(1_000)
        assert ask is not None
        assert ask.api_key is ApiKey.SYNC_GROUP
        given = {
            entry["member_id"]: [
                place
                for topic in codec.decode_record_value("ConsumerProtocolAssignment", entry["assignment"])[
                    1
                ].assigned_partitions
                for place in topic.partitions
            ]
            for entry in ask.body["assignments"]
        }
        assert sorted(map(len, given.values())) == [0, 1, 2]
        assert given["odd"] == []

    @pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
    def test_a_coordinator_that_moved_is_found_again_and_nothing_is_lost(self, code: ErrorCode) -> None:
        membership = stable("cooperative-sticky", A0)
        assert answer(membership, told(code), 1_000) == [CoordinatorLost(code.name)]
        assert membership.owned == {A0}
        assert asks(membership, 1_100) is ApiKey.HEARTBEAT


class TestRebalancing:
    def test_a_cooperative_member_joins_with_what_it_has_and_lets_go_of_what_it_is_to_lose(self) -> None:
        membership = stable("cooperative-sticky", A0, A1)
        assert answer(membership, told(ErrorCode.REBALANCE_IN_PROGRESS), 1_000) == []
        assert asks(membership, 1_000) is ApiKey.JOIN_GROUP
        assert not membership.takes_commits
        assert answer(membership, joined(), 1_000) == []
        assert answer(membership, synced(A0, A2), 1_000) == [Assign((A2,)), Revoke((A1,))]
        assert membership.takes_commits
        assert asks(membership, 2_000) is ApiKey.HEARTBEAT, "it takes its time, and stays a member"
        membership.revoke_done(2_500)
        assert membership.owned == {A0, A2}
        assert asks(membership, 2_500) is ApiKey.JOIN_GROUP

    def test_an_eager_member_lets_go_of_everything_first(self) -> None:
        membership = stable("range", A0, A1)
        assert answer(membership, told(ErrorCode.REBALANCE_IN_PROGRESS), 1_000) == [Revoke((A0, A1))]
        assert answer(membership, told(ErrorCode.REBALANCE_IN_PROGRESS), 2_000) == []
        membership.revoke_done(2_500)
        assert membership.owned == frozenset()
        assert answer(membership, joined(strategy="range"), 2_500) == []
        assert answer(membership, synced(A2), 2_500) == [Assign((A2,))]

    def test_a_rebalance_within_a_rebalance_begins_it_again(self) -> None:
        membership = member()
        answer(membership, joined())
        assert answer(membership, synced(code=ErrorCode.REBALANCE_IN_PROGRESS)) == []
        assert asks(membership) is ApiKey.JOIN_GROUP


class TestLosing:
    @pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
    def test_a_member_that_was_expelled_has_lost_everything_and_joins_as_a_new_one(self, code: ErrorCode) -> None:
        membership = stable("cooperative-sticky", A0)
        assert answer(membership, told(code), 1_000) == [Fenced((A0,))]
        assert not membership.is_member
        ask = membership.next_ask(1_000)
        assert ask is not None
        assert (ask.api_key, ask.body["member_id"]) == (ApiKey.JOIN_GROUP, "")

    def test_silence_for_as_long_as_a_session_is_the_end_of_it(self) -> None:
        membership = stable("cooperative-sticky", A0)
        membership.unanswered(5_000)
        assert membership.tick(9_999) == []
        assert membership.tick(10_000) == [Fenced((A0,))]
        assert membership.tick(20_000) == []

    def test_a_join_that_waits_for_the_others_is_no_silence(self) -> None:
        membership = stable("cooperative-sticky", A0)
        answer(membership, told(ErrorCode.REBALANCE_IN_PROGRESS), 1_000)
        assert asks(membership, 1_000) is ApiKey.JOIN_GROUP
        assert membership.tick(50_000) == []
        membership.unanswered(50_000)
        assert membership.tick(50_000) == [Fenced((A0,))]

    def test_a_name_that_was_taken_is_the_end(self) -> None:
        membership = stable("cooperative-sticky", A0, instance_id="till-1")
        lost, failed = answer(membership, told(ErrorCode.FENCED_INSTANCE_ID), 1_000)
        assert lost == Fenced((A0,))
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, FencedError)
        assert asks(membership, 99_000) is None

    def test_a_group_that_it_may_not_read_is_the_end(self) -> None:
        (failed,) = answer(member(), joined(ErrorCode.GROUP_AUTHORIZATION_FAILED))
        assert isinstance(failed, Failed)
        assert isinstance(failed.error, AuthenticationError)

    def test_an_assignment_that_cannot_be_read_is_the_end(self) -> None:
        membership = member()
        answer(membership, joined())
        (failed,) = answer(membership, SimpleNamespace(error_code=ErrorCode.NONE, assignment=b"\x00\x01\x7f\xff"))
        assert isinstance(failed, Failed)


class TestLeaving:
    def test_it_says_goodbye(self) -> None:
        ask = stable("cooperative-sticky", A0).leave()
        assert ask is not None
        assert ask.api_key is ApiKey.LEAVE_GROUP

    def test_it_has_no_name_until_the_first_answer(self) -> None:
        membership = member()
        assert membership.is_nameless
        answer(membership, joined(ErrorCode.MEMBER_ID_REQUIRED))
        assert not membership.is_nameless
        ask = membership.leave()
        assert ask is not None
        assert ask.body["member_id"] == "me"
        assert not member(instance_id="till-1").is_nameless, "nobody says goodbye for it"

    def test_a_static_member_keeps_its_place(self) -> None:
        assert stable("cooperative-sticky", A0, instance_id="till-1").leave() is None

    def test_who_never_joined_has_nothing_to_leave(self) -> None:
        assert member().leave() is None
