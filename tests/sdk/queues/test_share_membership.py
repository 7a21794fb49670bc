"""Heartbeats: what each answer of a coordinator leads to."""

from __future__ import annotations

import pytest

from ottla.errors import BrokerTooOld, ConfigError
from ottla.queues.core.acknowledgements import Place
from ottla.queues.core.membership import HeartbeatAnswer, HeartbeatRequest, ShareMembership
from ottla.queues.io.group_thread import refusal
from ottla_wire.protocol import ErrorCode

PLACE = Place(b"t" * 16, 0)


def joined() -> tuple[ShareMembership, HeartbeatRequest]:
    membership = ShareMembership(member_id="m", topics=["b", "a"], now_ms=0)
    request = membership.next_request(0)
    assert request is not None
    answer = HeartbeatAnswer(error=ErrorCode.NONE, member_epoch=4, interval_ms=5_000, assigned=[PLACE])
    assert membership.answered(request, answer, 0)
    return membership, request


def test_a_member_joins_with_its_topics_and_then_sends_its_epoch_alone() -> None:
    membership, request = joined()
    assert (request.member_epoch, request.topics) == (0, ["a", "b"])
    assert membership.assigned == {PLACE}
    assert membership.next_request(4_999) is None
    following = membership.next_request(5_000)
    assert following is not None
    assert (following.member_epoch, following.topics) == (4, None)


def test_an_answer_without_an_assignment_keeps_the_one_before() -> None:
    membership, _ = joined()
    request = membership.next_request(5_000)
    assert request is not None
    answer = HeartbeatAnswer(error=ErrorCode.NONE, member_epoch=5, interval_ms=5_000)
    assert not membership.answered(request, answer, 5_000)
    assert membership.assigned == {PLACE}


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH])
def test_a_fenced_member_joins_again_without_partitions(code: ErrorCode) -> None:
    membership, _ = joined()
    request = membership.next_request(5_000)
    assert request is not None
    assert membership.answered(request, HeartbeatAnswer(error=code), 5_000)
    assert membership.assigned == frozenset()
    assert membership.next_request(5_000) is None, "not in a loop"
    again = membership.next_request(5_200)
    assert again is not None
    assert again.member_epoch == 0


def test_a_coordinator_that_moved_is_found_again_and_the_assignment_stays() -> None:
    membership, _ = joined()
    request = membership.next_request(5_000)
    assert request is not None
    membership.answered(request, HeartbeatAnswer(error=ErrorCode.NOT_COORDINATOR), 5_000)
    assert membership.must_find_coordinator
    assert membership.assigned == {PLACE}
    assert membership.next_request(5_300) is not None


def test_a_member_without_partitions_asks_again_soon_and_then_ever_later() -> None:
    membership = ShareMembership(member_id="m", topics=["a"], now_ms=0)
    now_ms, waits = 0, []
    for epoch in range(1, 8):
        request = membership.next_request(now_ms)
        assert request is not None
        answer = HeartbeatAnswer(error=ErrorCode.NONE, member_epoch=epoch, interval_ms=5_000, assigned=[])
        membership.answered(request, answer, now_ms)
        waits.append(membership.due_ms - now_ms)
        now_ms = membership.due_ms
    assert waits == [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]


def test_a_group_of_another_type_ends_the_membership() -> None:
    membership = ShareMembership(member_id="m", topics=["a"], now_ms=0)
    request = membership.next_request(0)
    assert request is not None
    membership.answered(request, HeartbeatAnswer(error=ErrorCode.GROUP_ID_NOT_FOUND), 0)
    assert membership.error is not None
    assert isinstance(refusal("shop", membership.error), ConfigError)


def test_a_full_group_is_asked_again_after_an_interval() -> None:
    membership = ShareMembership(member_id="m", topics=["a"], now_ms=0)
    request = membership.next_request(0)
    assert request is not None
    membership.answered(request, HeartbeatAnswer(error=ErrorCode.GROUP_MAX_SIZE_REACHED), 0)
    assert membership.is_full
    assert membership.next_request(500) is None
    assert membership.next_request(1_000) is not None


def test_a_member_leaves_once() -> None:
    membership, _ = joined()
    request = membership.next_request(1, leaves=True)
    assert request is not None
    assert request.member_epoch == -1
    membership.answered(request, HeartbeatAnswer(error=ErrorCode.NONE), 1)
    assert membership.has_left
    assert membership.next_request(2, leaves=True) is None


def test_the_name_of_a_consumer_group_is_refused_with_another_name() -> None:
    error = refusal("shop", HeartbeatAnswer(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    assert isinstance(error, ConfigError)
    assert "group='shop.queue'" in str(error)
    assert isinstance(refusal("shop", HeartbeatAnswer(error=ErrorCode.UNSUPPORTED_VERSION)), BrokerTooOld)
