"""What the group coordinator answers in the protocol of KIP-848: who is told what, and when the others learn of it.

A member hears of a change with its next heartbeat, and of a partition that another one must give up with the first
heartbeat after that one has said that it did. Clients send one every `heartbeat_interval_ms`: so a group of several
members takes one or two intervals, 5 s each by default, until everybody has its share.
"""

from __future__ import annotations

import os
from itertools import count
from typing import Any

import pytest

from ottla_wire.protocol import ApiKey, ErrorCode

_numbers = count(1)
LEAVES = -1


class Member:
    """One member of a group, driven by hand. It owns what it was last told, unless a test says otherwise."""

    def __init__(self, kafka: Any, group_id: str, topic: str) -> None:
        self.kafka = kafka
        self.group_id = group_id
        self.topic = topic
        self.member_id = f"member-{next(_numbers)}"
        self.epoch = 0
        self.topic_id = kafka.call(ApiKey.METADATA, 10, {"topics": [{"name": topic}]}).topics[0].topic_id
        self.assigned: list[int] = []

    def ask(self, **changes: Any) -> Any:
        body = {"group_id": self.group_id, "member_id": self.member_id, "member_epoch": self.epoch, **changes}
        return self.kafka.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)

    def beat(self, **changes: Any) -> list[int] | None:
        """The partitions that the answer assigns; None where it says nothing of them."""
        answer = self.ask(**changes)
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return None
        assert {each.topic_id for each in answer.assignment.topic_partitions} <= {self.topic_id}
        self.assigned = sorted(p for each in answer.assignment.topic_partitions for p in each.partitions)
        return self.assigned

    def join(self, **changes: Any) -> list[int] | None:
        return self.beat(**self.joining(), **changes)

    def joining(self) -> dict[str, Any]:
        return {
            "member_epoch": 0,
            "rebalance_timeout_ms": 30_000,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": [],
        }

    def own(self) -> list[int] | None:
        """Say that it owns what it was assigned, and nothing else."""
        owned = [{"topic_id": self.topic_id, "partitions": self.assigned}] if self.assigned else []
        return self.beat(topic_partitions=owned)

    def leave(self) -> Any:
        return self.ask(member_epoch=LEAVES)

    def describe(self) -> Any:
        body = {"group_ids": [self.group_id], "include_authorized_operations": False}
        return self.kafka.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, body).groups[0]

    def becomes(self, state: str) -> None:
        """Wait for a state: Kafka describes a group as its log has it committed, which comes a moment behind."""
        self.kafka.until(lambda: self.describe().group_state == state)

    def commit(self, epoch: int) -> int:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
        body = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": epoch,
            "member_id": self.member_id,
            "group_instance_id": None,
            "topics": [{"name": self.topic, "partitions": [partition]}],
        }
        return int(self.kafka.call(ApiKey.OFFSET_COMMIT, 9, body).topics[0].partitions[0].error_code)


@pytest.fixture
def first(kafka: Any) -> Member:
    """The only member of a group on a topic of four partitions; it has not joined yet."""
    member = Member(kafka, f"new-group-{os.getpid()}-{next(_numbers)}", kafka.create_topic(partitions=4))
    body = {"key_type": 0, "coordinator_keys": [member.group_id]}
    kafka.until(lambda: kafka.call(ApiKey.FIND_COORDINATOR, 4, body).coordinators[0].error_code == 0)
    kafka.until(
        lambda: member.ask(member_epoch=1).error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID)
    )
    return member


@pytest.fixture
def second(first: Member, connect: Any) -> Member:
    return Member(connect(), first.group_id, first.topic)


def test_who_is_alone_has_everything_at_once_and_a_heartbeat_every_five_seconds(first: Member) -> None:
    answer = first.ask(**first.joining())
    assert (answer.error_code, answer.heartbeat_interval_ms) == (0, 5_000)
    assert [sorted(each.partitions) for each in answer.assignment.topic_partitions] == [[0, 1, 2, 3]]
    first.epoch = answer.member_epoch
    assert first.beat() is None, "nothing new"


def test_a_second_member_waits_until_the_first_has_said_that_it_gave_up_its_half(first: Member, second: Member) -> None:
    assert first.join() == [0, 1, 2, 3]
    assert first.own() is None
    first.becomes("Stable")
    assert second.join() == []
    first.becomes("Reconciling")
    before = first.epoch
    kept = first.beat()
    assert kept is not None
    assert (len(kept), first.epoch) == (2, before), "told what to give up, in the epoch that it is in"
    assert second.beat() is None, "nobody has given up anything yet"
    assert first.own() is None, "that was all"
    assert first.epoch == second.epoch > before
    assert second.beat() == sorted({0, 1, 2, 3} - set(kept))
    second.own()
    first.becomes("Stable")


def test_what_a_member_had_goes_to_the_others_when_it_leaves(first: Member, second: Member) -> None:
    first.join()
    first.own()
    second.join()
    first.beat()
    first.own()
    second.beat()
    second.own()
    left = first.leave()
    assert (left.error_code, left.member_epoch) == (0, LEAVES)
    assert second.beat() == [0, 1, 2, 3]
    assert [each.member_id for each in second.describe().members] == [second.member_id]
    second.leave()
    second.becomes("Empty")


def test_another_epoch_is_fenced_and_a_stranger_is_unknown(first: Member) -> None:
    first.join()
    assert first.ask(member_epoch=first.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert first.ask(member_id="stranger").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.beat() is None, "and it is still a member"


def test_a_commit_says_the_epoch_that_it_belongs_to(first: Member) -> None:
    first.join()
    assert first.commit(first.epoch) == 0
    assert first.commit(first.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert first.commit(first.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"server_assignor": "unheard-of"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_what_nobody_can_join_with_is_refused(first: Member, changes: dict[str, Any], error: ErrorCode) -> None:
    assert first.ask(**{**first.joining(), **changes}).error_code == error


def test_a_group_of_the_old_protocol_that_has_members_takes_none_of_the_new(first: Member) -> None:
    body = {
        "group_id": first.group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "connect",
        "protocols": [{"name": "default", "metadata": b""}],
    }
    given = first.kafka.call(ApiKey.JOIN_GROUP, 7, body).member_id
    assert first.kafka.call(ApiKey.JOIN_GROUP, 7, {**body, "member_id": given}).error_code == 0
    assert first.ask(**first.joining()).error_code == ErrorCode.GROUP_ID_NOT_FOUND
