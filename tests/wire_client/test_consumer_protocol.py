"""A member of a group whose broker assigns (KIP-848), step by step: no socket, no clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.errors import BrokerTooOld, FencedError
from ottla.records import TopicPartition
from ottla.wire_client.group.classic_protocol import Assign, ElectedLeader, Failed, Fenced, Revoke
from ottla.wire_client.group.consumer_protocol import ConsumerProtocolMembership
from ottla_wire.protocol import ApiKey, ErrorCode

A0, A1, A2 = (TopicPartition("a", number) for number in range(3))
ID = b"i" * 16


def member(**options: Any) -> ConsumerProtocolMembership:
    membership = ConsumerProtocolMembership(
        group="g",
        topics=["a"],
        member_id="me",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        heartbeat_ms=1_000,
        **options,
    )
    membership.topic_ids = {ID: "a"}
    return membership


def told(*partitions: int, epoch: int = 1, code: ErrorCode = ErrorCode.NONE, says: bool = True) -> Any:
    topics = [SimpleNamespace(topic_id=ID, partitions=list(partitions))] if partitions else []
    return SimpleNamespace(
        error_code=code,
        member_epoch=epoch,
        heartbeat_interval_ms=1_000,
        assignment=SimpleNamespace(topic_partitions=topics) if says else None,
    )


def beat(membership: ConsumerProtocolMembership, answer: Any, now_ms: int = 0) -> list[Any]:
    ask = membership.next_ask(now_ms)
    assert ask is not None
    assert ask.api_key is ApiKey.CONSUMER_GROUP_HEARTBEAT
    return membership.answered(ask, answer, now_ms)


def have(membership: ConsumerProtocolMembership, now_ms: int) -> list[int]:
    """What it says it has in its next heartbeat."""
    ask = membership.next_ask(now_ms)
    assert ask is not None
    return [index for topic in ask.body["topic_partitions"] for index in topic["partitions"]]


def test_it_joins_takes_what_it_is_given_and_says_so_at_once() -> None:
    membership = member()
    assert not membership.is_member
    assert beat(membership, told(0, 1)) == [Assign((A0, A1))]
    assert membership.is_member
    assert have(membership, 0) == [0, 1]
    assert beat(membership, told(says=False), 0) == []
    assert membership.next_ask(999) is None


def test_what_is_taken_away_is_said_to_be_there_until_it_was_let_go() -> None:
    membership = member()
    beat(membership, told(0, 1))
    assert beat(membership, told(0, 2, epoch=2)) == [Assign((A2,)), Revoke((A1,))]
    assert membership.takes_commits
    assert have(membership, 0) == [0, 1, 2]
    assert beat(membership, told(0, epoch=2), 0) == [], "one thing after the other"
    membership.revoke_done(500)
    assert have(membership, 500) == [0, 2]


def test_a_topic_that_is_not_known_by_its_id_is_looked_up_first() -> None:
    membership = member()
    membership.topic_ids = {}
    assert beat(membership, told(0)) == [ElectedLeader(("a",))]
    membership.topic_ids = {ID: "a"}
    assert membership.led({"a": 3}, 10) == [Assign((A0,))]


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_member_that_was_fenced_has_lost_everything_and_joins_again(code: ErrorCode) -> None:
    membership = member()
    beat(membership, told(0))
    assert beat(membership, told(code=code), 0) == [Fenced((A0,))]
    ask = membership.next_ask(0)
    assert ask is not None
    assert (ask.body["member_epoch"], ask.body["member_id"]) == (0, "me")


def test_silence_for_as_long_as_a_session_is_the_end_of_it() -> None:
    membership = member()
    beat(membership, told(0))
    assert membership.tick(9_999) == []
    assert membership.tick(10_000) == [Fenced((A0,))]


@pytest.mark.parametrize(
    ("code", "kind"), [(ErrorCode.UNRELEASED_INSTANCE_ID, FencedError), (ErrorCode.UNSUPPORTED_VERSION, BrokerTooOld)]
)
def test_what_no_retry_changes_is_the_end(code: ErrorCode, kind: type[Exception]) -> None:
    membership = member(instance_id="till-1")
    (failed,) = beat(membership, told(code=code))
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, kind)
    assert membership.next_ask(99_000) is None


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("till-1", -2)])
def test_it_leaves_for_good_or_for_a_while(instance_id: str | None, epoch: int) -> None:
    membership = member(instance_id=instance_id)
    assert membership.leave() is None or instance_id
    membership = member(instance_id=instance_id)
    beat(membership, told(0))
    ask = membership.leave()
    assert ask is not None
    assert ask.body["member_epoch"] == epoch
