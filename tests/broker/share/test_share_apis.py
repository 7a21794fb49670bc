"""The requests of share groups over a socket: heartbeats, sessions, leases and what ends them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count

import pytest
from share_member import ACCEPT, GAP, REJECT, RELEASE, RENEW, ShareMember, ranges
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch

NewMember = Callable[..., ShareMember]
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(config={"group.share.min.record.lock.duration.ms": "1000"}) as embedded:
        yield embedded


@pytest.fixture
def group_id(client: WireClient) -> str:
    """A group that begins with the first record."""
    name = f"group-{next(_numbers)}"
    set_group(client, name, "share.auto.offset.reset", "earliest")
    return name


@pytest.fixture
def topic(client: WireClient) -> str:
    """A topic of one partition with ten records in batches of two."""
    name = f"jobs-{next(_numbers)}"
    body = {"topics": [{"name": name, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 5_000}
    assert client.call(ApiKey.CREATE_TOPICS, 5, body).topics[0].error_code == 0
    for _ in range(5):
        produce(client, name, 2)
    return name


@pytest.fixture
def new_member(cluster: EmbeddedCluster, group_id: str) -> Iterator[NewMember]:
    with ExitStack() as stack:

        def make(member_id: str | None = None) -> ShareMember:
            member = ShareMember(cluster.bootstrap_servers, group_id, member_id=member_id)
            stack.callback(member.close)
            return member

        yield make


def set_group(client: WireClient, group_id: str, name: str, value: str) -> None:
    resource = {"resource_type": 32, "resource_name": group_id}
    body = {"resources": [{**resource, "configs": [{"name": name, "config_operation": 0, "value": value}]}]}
    response = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {**body, "validate_only": False}).responses[0]
    assert response.error_code == ErrorCode.NONE, response.error_message


def produce(client: WireClient, topic: str, records: int) -> None:
    data = [RecordData(offset=each, timestamp_ms=1, key=None, value=b"v", headers=[]) for each in range(records)]
    assert client.produce(topic, encode_batch(data)).error_code == ErrorCode.NONE


# --- membership


def test_a_member_has_its_partitions_with_its_first_heartbeat(new_member: NewMember, topic: str) -> None:
    member = new_member()
    member.join(topic)
    assert member.assigned == {member.topic_id(topic): [0]}
    assert member.member_epoch == 1
    again = member.heartbeat()
    assert (again.error_code, again.assignment) == (0, None)


def test_two_members_share_the_only_partition(new_member: NewMember, topic: str, group_id: str) -> None:
    one, other = new_member(), new_member()
    one.join(topic)
    other.join(topic)
    one.heartbeat()
    assert one.assigned == other.assigned == {one.topic_id(topic): [0]}
    group = one.client.call(
        ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [group_id], "include_authorized_operations": False}
    ).groups[0]
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert {each.member_id for each in group.members} == {one.member_id, other.member_id}
    listed = one.client.call(ApiKey.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]}).groups
    assert (group_id, "Stable", "share") in [(each.group_id, each.group_state, each.group_type) for each in listed]


def test_a_member_that_leaves_is_gone_and_the_group_is_empty(new_member: NewMember, topic: str, group_id: str) -> None:
    member = new_member()
    member.join(topic)
    assert member.heartbeat(-1).member_epoch == -1
    assert member.heartbeat(2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    deleted = member.client.call(ApiKey.DELETE_GROUPS, 2, {"groups_names": [group_id]}).results[0]
    assert deleted.error_code == ErrorCode.NONE
    described = member.client.call(
        ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [group_id], "include_authorized_operations": False}
    ).groups[0]
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_heartbeats_that_mean_nothing_are_refused(new_member: NewMember, topic: str) -> None:
    member = new_member()
    member.join(topic)
    assert member.heartbeat(-2).error_code == ErrorCode.INVALID_REQUEST
    assert member.heartbeat(0, None, member_id="x" * 37).error_code == ErrorCode.INVALID_REQUEST
    assert member.heartbeat(0, [], member_id="new").error_code == ErrorCode.INVALID_REQUEST
    assert member.heartbeat(99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.heartbeat(3, group_id="nobody's").error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_the_id_of_a_share_group_is_refused_to_other_members(new_member: NewMember, topic: str, group_id: str) -> None:
    member = new_member()
    member.join(topic)
    body = {
        "group_id": group_id,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    assert member.client.call(ApiKey.JOIN_GROUP, 5, body).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# --- sessions


def test_a_session_counts_its_requests(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.fetch_response(topic, share_session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.acquire(topic, max_wait_ms=10_000)
    assert member.session_epoch == 1
    wrong = member.fetch_response(topic, share_session_epoch=3)
    assert wrong.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge(topic, 0, 1, ACCEPT) == ErrorCode.NONE
    assert member.session_epoch == 2


def test_an_acknowledgement_opens_no_session(new_member: NewMember, topic: str) -> None:
    member = new_member()
    opening = member.acknowledge_response(topic, [(0, 0, ACCEPT)], share_session_epoch=0)
    assert opening.error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    fetching = member.fetch_response(topic, [(0, 0, ACCEPT)])
    assert fetching.error_code == ErrorCode.INVALID_REQUEST


def test_a_session_that_closes_releases_what_is_held(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    assert one.acquire(topic) == [(0, 9, 1)]
    one.acknowledge(topic, 0, 3, ACCEPT)
    one.close_session(topic)
    assert other.acquire(topic) == [(4, 9, 2)]


def test_a_connection_that_is_lost_releases_what_its_member_holds(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    assert one.acquire(topic) == [(0, 9, 1)]
    other.fetch(topic)
    one.close()
    assert other.acquire(topic, max_wait_ms=10_000) == [(0, 9, 2)]


def test_a_member_that_opens_again_loses_its_leases(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.acquire(topic) == [(0, 9, 1)]
    member.session_epoch = 0
    assert member.acquire(topic) == [(0, 9, 2)]


def test_there_are_no_more_sessions_than_allowed(topic: str) -> None:
    with EmbeddedCluster(config={"group.share.max.share.sessions": "1"}) as small, ExitStack() as stack:
        client = WireClient(small.bootstrap_servers)
        stack.callback(client.close)
        body = {"topics": [{"name": topic, "num_partitions": 1, "replication_factor": 1}], "timeout_ms": 5_000}
        client.call(ApiKey.CREATE_TOPICS, 5, body)
        one, other = ShareMember(small.bootstrap_servers, "g"), ShareMember(small.bootstrap_servers, "g")
        stack.callback(other.close)
        one.fetch(topic)
        assert other.fetch_response(topic).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        one.close_session(topic)
        one.close()
        other.fetch(topic)


# --- records


def test_records_are_leased_to_one_member(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    assert one.acquire(topic, max_records=3) == [(0, 3, 1)]  # whole batches of two
    assert other.acquire(topic) == [(4, 9, 1)]
    assert one.fetch(topic).acquired_records == []


def test_a_strict_fetch_acquires_no_more_than_it_asked_for(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.acquire(topic, max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert ranges(member.fetch(topic, max_records=2, share_acquire_mode=1)) == [(3, 4, 1)]


def test_ranges_are_cut_to_the_batch_size(new_member: NewMember, topic: str) -> None:
    assert new_member().acquire(topic, batch_size=4) == [(0, 3, 1), (4, 7, 1), (8, 9, 1)]


def test_a_released_record_is_delivered_until_the_limit(new_member: NewMember, topic: str, client: WireClient) -> None:
    member = new_member()
    set_group(client, member.group_id, "share.delivery.count.limit", "3")
    assert member.acquire(topic) == [(0, 9, 1)]
    assert member.acknowledge(topic, 1, 9, ACCEPT) == ErrorCode.NONE
    counts = [1]
    while member.acknowledge(topic, 0, 0, RELEASE) == ErrorCode.NONE:
        again = ranges(member.fetch(topic))
        if not again:
            break
        counts.append(again[0][2])
    assert counts == [1, 2, 3]


def test_rejected_records_and_gaps_are_not_delivered_again(new_member: NewMember, topic: str) -> None:
    member = new_member()
    member.acquire(topic)
    response = member.acknowledge_response(topic, [(0, 3, REJECT), (4, 5, GAP), (6, 8, ACCEPT)])
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    member.close_session(topic)
    assert member.acquire(topic) == [(9, 9, 2)]


def test_acknowledgements_ride_on_a_fetch(new_member: NewMember, topic: str) -> None:
    member = new_member()
    assert member.acquire(topic, max_records=1) == [(0, 1, 1)]
    answer = member.fetch(topic, [(0, 1, ACCEPT)], max_records=1)
    assert (answer.acknowledge_error_code, ranges(answer)) == (ErrorCode.NONE, [(2, 3, 1)])
    answer = member.fetch(topic, [(4, 5, ACCEPT)], max_records=1)
    assert answer.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE


def test_one_wrong_record_refuses_all_of_its_partition(new_member: NewMember, topic: str) -> None:
    one, other = new_member(), new_member()
    one.acquire(topic, max_records=1)
    other.acquire(topic, max_records=1)
    assert one.acknowledge(topic, 0, 2, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge(topic, 0, 1, ACCEPT) == ErrorCode.NONE


@pytest.mark.parametrize("acks", [[(5, 4, ACCEPT)], [(0, 3, ACCEPT), (2, 5, ACCEPT)], [(0, 1, 9)], [(0, 1, RENEW)]])
def test_acknowledgements_that_mean_nothing_are_refused(
    new_member: NewMember, topic: str, acks: list[tuple[int, int, int]]
) -> None:
    member = new_member()
    member.acquire(topic)
    response = member.acknowledge_response(topic, acks)
    assert response.responses[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST


def test_a_fetch_waits_for_records(new_member: NewMember, topic: str, client: WireClient) -> None:
    member = new_member()
    assert member.acquire(topic) == [(0, 9, 1)]
    body = member.request(topic, max_wait_ms=10_000)
    member.client.send(ApiKey.SHARE_FETCH, 2, body)
    produce(client, topic, 1)
    _, response = member.client.receive()
    assert ranges(response.responses[0].partitions[0]) == [(10, 10, 1)]


def test_a_new_group_begins_at_the_end(cluster: EmbeddedCluster, topic: str, client: WireClient) -> None:
    member = ShareMember(cluster.bootstrap_servers, f"late-{next(_numbers)}")
    assert member.fetch(topic).acquired_records == []
    produce(client, topic, 1)
    assert member.acquire(topic) == [(10, 10, 1)]
    member.close()


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions_are_served(new_member: NewMember, topic: str, version: int) -> None:
    member = new_member()
    assert member.acquire(topic, version=version) == [(0, 9, 1)]
    acked = member.acknowledge_response(topic, [(0, 9, ACCEPT)], version=version)
    assert acked.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert acked.acquisition_lock_timeout_ms == (30_000 if version == 2 else 0)


# --- time


def test_a_lock_that_expires_makes_the_record_available(topic: str) -> None:
    clock = VirtualClock()
    with EmbeddedCluster(clock=clock) as still, ExitStack() as stack:
        client = WireClient(still.bootstrap_servers)
        stack.callback(client.close)
        still.create_topic(topic)
        set_group(client, "g", "share.auto.offset.reset", "earliest")
        produce(client, topic, 3)
        one, other = ShareMember(still.bootstrap_servers, "g"), ShareMember(still.bootstrap_servers, "g")
        stack.callback(one.close)
        stack.callback(other.close)
        assert one.acquire(topic) == [(0, 2, 1)]
        clock.advance(29_000)
        assert one.acknowledge(topic, 0, 0, RENEW, is_renew_ack=True) == ErrorCode.NONE
        clock.advance(2_000)
        assert other.acquire(topic) == [(1, 2, 2)]
        assert one.acknowledge(topic, 1, 1, ACCEPT) == ErrorCode.INVALID_RECORD_STATE
        assert one.acknowledge(topic, 0, 0, ACCEPT) == ErrorCode.NONE
