"""Share groups (KIP-932): the states of a record, sessions, and who is refused, as Apache Kafka has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from apache_kafka import wanted
from share_member import ACCEPT, GAP, REJECT, RELEASE, RENEW, ShareMember, produce, ranges, set_group

from ottla_wire.protocol import ApiKey, ErrorCode

pytestmark = pytest.mark.skipif(
    (wanted() or "9") < "4.4", reason="share groups are those of Kafka 4.4: this version has not all of it"
)

_numbers = count(1)
NewMember = Callable[..., ShareMember]


@pytest.fixture
def topic(kafka: Any) -> str:
    """A topic with ten records in batches of two."""
    name: str = kafka.create_topic()
    for _ in range(5):
        produce(kafka, name, 2)
    return name


@pytest.fixture
def group_id(kafka: Any) -> str:
    """A group that begins with the first record and delivers three times."""
    name = f"share-{os.getpid()}-{next(_numbers)}"
    set_group(kafka, name, "share.auto.offset.reset", "earliest")
    set_group(kafka, name, "share.delivery.count.limit", "3")
    return name


@pytest.fixture
def new_member(bootstrap_servers: str, group_id: str, topic: str) -> Iterator[NewMember]:
    """Members that have joined."""
    with ExitStack() as stack:

        def make() -> ShareMember:
            member = ShareMember(bootstrap_servers, group_id)
            stack.callback(member.close)
            member.join(topic)
            return member

        yield make


def all_of(member: ShareMember, topic: str, **changes: Any) -> list[int]:
    """Acquire until all ten offsets are held."""
    held: list[int] = []
    while len(held) < 10:
        held += [offset for first, last, _ in member.acquire(topic, **changes) for offset in range(first, last + 1)]
    return held


# --- available → acquired


def test_a_record_is_acquired_by_one_member(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    assert all_of(one, topic) == list(range(10))
    assert other.fetch(topic, max_wait_ms=500).acquired_records == []


def test_a_strict_fetch_acquires_what_it_asked_for(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.acquire(topic, max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    more = ranges(member.fetch(topic, max_records=2, max_wait_ms=500, share_acquire_mode=1))
    assert [offset for first, last, _ in more for offset in range(first, last + 1)] == [3, 4]


def test_other_fetches_acquire_whole_batches(new_member: NewMember, topic: str) -> None:
    assert new_member().acquire(topic, max_records=3) == [(0, 3, 1)]


def test_a_fetch_of_no_bytes_acquires_nothing(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.acquire(topic, max_records=3) == [(0, 3, 1)]
    answer = member.fetch(topic, max_bytes=0, max_wait_ms=500)
    assert (answer.error_code, answer.acquired_records) == (ErrorCode.NONE, [])
    assert member.acquire(topic, max_records=1) == [(4, 5, 1)]


def test_the_limit_of_records_in_flight_is_passed_by_the_rest_of_a_batch(
    kafka: Any, new_member: NewMember, group_id: str, topic: str
) -> None:
    set_group(kafka, group_id, "share.partition.max.record.locks", "100")
    for _ in range(4):
        produce(kafka, topic, 40)
    member = new_member()
    assert member.acquire(topic, max_records=500) == [(0, 129, 1)]
    assert member.fetch(topic, max_records=500, max_wait_ms=500).acquired_records == []


# --- acquired → available, acknowledged, archived


def test_a_released_record_is_delivered_until_its_count_has_reached_the_limit(
    new_member: NewMember, topic: str
) -> None:
    member = new_member()
    all_of(member, topic)
    assert member.acknowledge(topic, 1, 9, ACCEPT) == ErrorCode.NONE
    counts = []
    for _ in range(2):
        assert member.acknowledge(topic, 0, 0, RELEASE) == ErrorCode.NONE
        counts += [each for _, _, each in member.acquire(topic)]
    assert counts == [2, 3]
    assert member.acknowledge(topic, 0, 0, RELEASE) == ErrorCode.NONE
    assert member.fetch(topic, max_wait_ms=500).acquired_records == []


def test_a_record_that_is_delivered_for_the_last_time_comes_alone(new_member: NewMember, topic: str) -> None:
    member = new_member()
    all_of(member, topic)
    assert member.acknowledge(topic, 2, 9, ACCEPT) == ErrorCode.NONE
    assert member.acknowledge(topic, 0, 1, RELEASE) == ErrorCode.NONE
    assert member.acquire(topic) == [(0, 1, 2)]
    assert member.acknowledge(topic, 0, 1, RELEASE) == ErrorCode.NONE
    assert member.acquire(topic) == [(0, 0, 3)]
    assert member.acquire(topic) == [(1, 1, 3)]


@pytest.mark.parametrize("kind", [ACCEPT, REJECT, GAP])
def test_a_settled_record_is_not_delivered_again(new_member: NewMember, topic: str, kind: int) -> None:
    one = new_member()
    all_of(one, topic)
    assert one.acknowledge(topic, 0, 8, kind) == ErrorCode.NONE
    one.close_session(topic)
    assert new_member().acquire(topic) == [(9, 9, 2)]


def test_a_connection_that_ends_releases_its_records(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    all_of(one, topic)
    one.close()
    assert all_of(other, topic) == list(range(10))


# --- acquired → acquired


def test_a_renewal_keeps_the_record(new_member: NewMember, topic: str) -> None:
    member = new_member()
    all_of(member, topic)
    assert member.acknowledge(topic, 0, 9, RENEW, is_renew_ack=True) == ErrorCode.NONE
    assert member.acknowledge(topic, 0, 9, ACCEPT) == ErrorCode.NONE


def test_a_renewal_is_refused_where_it_is_not_enabled(
    new_member: NewMember, topic: str, group_id: str, kafka: Any
) -> None:
    member = new_member()
    all_of(member, topic)
    set_group(kafka, group_id, "share.renew.acknowledge.enable", "false")
    kafka.until(lambda: member.acknowledge(topic, 0, 9, RENEW, is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE)
    assert member.acknowledge(topic, 0, 9, ACCEPT) == ErrorCode.NONE


# --- refused


def test_who_does_not_hold_a_record_cannot_settle_it(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    one.acquire(topic, max_records=1)
    other.acquire(topic, max_records=1)
    assert one.acknowledge(topic, 0, 3, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge(topic, 0, 1, ACCEPT) == ErrorCode.NONE


def test_what_lies_below_the_start_offset_is_passed_over(new_member: NewMember, topic: str) -> None:
    member = new_member()
    all_of(member, topic)
    assert member.acknowledge(topic, 0, 1, ACCEPT) == ErrorCode.NONE
    assert member.acknowledge(topic, 0, 1, ACCEPT) == ErrorCode.NONE


def test_what_is_settled_above_the_start_offset_cannot_be_settled_again(new_member: NewMember, topic: str) -> None:
    member = new_member()
    all_of(member, topic)
    assert member.acknowledge(topic, 2, 3, ACCEPT) == ErrorCode.NONE
    assert member.acknowledge(topic, 2, 3, RELEASE) == ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("acks", [[(5, 4, ACCEPT)], [(0, 3, ACCEPT), (2, 5, ACCEPT)], [(0, 1, 9)], [(0, 1, RENEW)]])
def test_acknowledgements_that_mean_nothing_are_refused(
    new_member: NewMember, topic: str, acks: list[tuple[int, int, int]]
) -> None:
    member = new_member()
    all_of(member, topic)
    response = member.acknowledge_response(topic, acks)
    assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_sessions_count_their_requests(new_member: NewMember, topic: str) -> None:
    member = new_member()
    unknown = member.fetch_response(topic, share_session_epoch=5)
    assert unknown.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    all_of(member, topic)
    wrong = member.fetch_response(topic, share_session_epoch=member.session_epoch + 1)
    assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    opening = member.acknowledge_response(topic, [(0, 0, ACCEPT)], share_session_epoch=0)
    assert opening.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_heartbeats_that_mean_nothing_are_refused(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.heartbeat(-2).error_code == ErrorCode.INVALID_REQUEST
    assert member.heartbeat(0, [], member_id="new").error_code == ErrorCode.INVALID_REQUEST
    assert member.heartbeat(99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.heartbeat(1, member_id="unknown").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(3, group_id="nobody's").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_other_protocols_are_refused_the_id_of_a_share_group(
    new_member: NewMember, topic: str, group_id: str, kafka: Any
) -> None:
    new_member()
    body = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert kafka.call(ApiKey.JOIN_GROUP, 5, body).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    modern = {
        "group_id": group_id,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    assert kafka.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, modern).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# --- offsets


def test_offsets_are_altered_in_an_empty_group_alone(
    new_member: NewMember, topic: str, group_id: str, kafka: Any
) -> None:
    member = new_member()
    all_of(member, topic)
    assert member.acknowledge(topic, 0, 9, ACCEPT) == ErrorCode.NONE
    partition = {"partition_index": 0, "start_offset": 6}
    body = {"group_id": group_id, "topics": [{"topic_name": topic, "partitions": [partition]}]}
    assert kafka.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body).error_code == ErrorCode.NON_EMPTY_GROUP
    member.close_session(topic)
    member.heartbeat(-1)
    answer = kafka.call(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, body)
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    asked = {"groups": [{"group_id": group_id, "topics": None}]}
    row = kafka.call(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, asked).groups[0].topics[0].partitions[0]
    assert (row.start_offset, row.lag) == (6, 4)
    deletion = {"group_id": group_id, "topics": [{"topic_name": topic}]}
    deleted = kafka.call(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, deletion)
    assert (deleted.error_code, deleted.responses[0].error_code) == (0, 0)
