"""Logs with holes: aborted transactions, control batches, records that retention has taken, and starts by time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from share_member import ACCEPT, RELEASE, ShareMember
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.iso_duration import duration_ms
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.records.record import RecordData, encode_batch


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as embedded:
        yield embedded


@pytest.fixture
def member(cluster: EmbeddedCluster, client: WireClient, topic: str) -> Iterator[ShareMember]:
    """A member of the group of the topic's name, which begins with the first record."""
    set_group(client, topic, "share.auto.offset.reset", "earliest")
    member = ShareMember(cluster.bootstrap_servers, topic)
    yield member
    member.close()


@pytest.fixture
def topic(cluster: EmbeddedCluster, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    cluster.create_topic(name)
    return name


def set_group(client: WireClient, group: str, name: str, value: str) -> None:
    config = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 32, "resource_name": group, "configs": [config]}
    body = {"resources": [resource], "validate_only": False}
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == ErrorCode.NONE


def produce(client: WireClient, topic: str, records: int, *, timestamp_ms: int = 1) -> None:
    data = [
        RecordData(offset=each, timestamp_ms=timestamp_ms, key=None, value=b"v", headers=[]) for each in range(records)
    ]
    assert client.produce(topic, encode_batch(data)).error_code == ErrorCode.NONE


def transact(cluster: EmbeddedCluster, topic: str, records: int, *, commit: bool) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": f"{topic}-{commit}"})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(records):
        producer.produce(topic, b"t")
    if commit:
        producer.commit_transaction()
    else:
        producer.flush()
        producer.abort_transaction()


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_aborted_records_and_control_batches_are_not_delivered(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember, level: str
) -> None:
    set_group(client, topic, "share.isolation.level", level)
    produce(client, topic, 2)  # 0 and 1
    transact(cluster, topic, 2, commit=False)  # 2, 3 and the marker 4
    transact(cluster, topic, 2, commit=True)  # 5, 6 and the marker 7
    produce(client, topic, 1)  # 8
    held = {offset for first, last, _ in member.acquire(topic) for offset in range(first, last + 1)}
    assert held == ({0, 1, 5, 6, 8} if level == "read_committed" else {0, 1, 2, 3, 5, 6, 8})
    for offset in sorted(held):
        assert member.acknowledge(topic, offset, offset, ACCEPT) == ErrorCode.NONE
    produce(client, topic, 1)
    assert member.acquire(topic) == [(9, 9, 1)]


def test_records_that_were_deleted_are_passed_over(client: WireClient, topic: str, member: ShareMember) -> None:
    for _ in range(5):
        produce(client, topic, 2)
    assert member.acquire(topic) == [(0, 9, 1)]
    partitions = [{"partition_index": 0, "offset": 4}]
    body = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 5_000}
    assert client.call(ApiKey.DELETE_RECORDS, 2, body).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert member.fetch(topic).acquired_records == []
    assert member.acknowledge(topic, 0, 3, ACCEPT) == ErrorCode.NONE
    assert member.acknowledge(topic, 2, 9, RELEASE) == ErrorCode.NONE
    assert member.acquire(topic) == [(4, 9, 2)]


def test_a_group_begins_by_time(cluster: EmbeddedCluster, client: WireClient, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    produce(client, topic, 2, timestamp_ms=now_ms - 7_200_000)
    produce(client, topic, 2, timestamp_ms=now_ms)
    set_group(client, f"{topic}-g", "share.auto.offset.reset", "by_duration:PT1H")
    member = ShareMember(cluster.bootstrap_servers, f"{topic}-g")
    assert member.acquire(topic) == [(2, 3, 1)]
    member.close()


def test_a_group_begins_at_the_start_for_a_duration_longer_than_time(
    cluster: EmbeddedCluster, client: WireClient, topic: str
) -> None:
    produce(client, topic, 2)
    set_group(client, f"{topic}-g", "share.auto.offset.reset", "by_duration:P100000000000000D")
    member = ShareMember(cluster.bootstrap_servers, f"{topic}-g")
    assert member.acquire(topic) == [(0, 1, 1)]
    member.close()


def test_no_more_records_than_allowed_are_in_flight(client: WireClient, topic: str, member: ShareMember) -> None:
    set_group(client, topic, "share.partition.max.record.locks", "100")
    for _ in range(30):
        produce(client, topic, 10)
    held = member.acquire(topic)
    assert sum(last - first + 1 for first, last, _ in held) == 100
    assert member.fetch(topic).acquired_records == []
    assert member.acknowledge(topic, 1, 99, ACCEPT) == ErrorCode.NONE
    assert member.fetch(topic).acquired_records == [], "the first record holds up the others"
    assert member.acknowledge(topic, 0, 0, ACCEPT) == ErrorCode.NONE
    assert member.acquire(topic)[0][0] == 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [("PT1H", 3_600_000), ("P1DT2M", 86_520_000), ("PT0.25S", 250), ("pt90s", 90_000), ("P1D", 86_400_000)],
)
def test_durations_are_iso_8601(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1", "P1DT", "-PT1H", "P200000000000000D"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="wanted a duration"):
        duration_ms(text)


def test_a_member_is_throttled_by_its_quota_and_loses_no_lease(
    cluster: EmbeddedCluster, client: WireClient, topic: str, member: ShareMember
) -> None:
    cluster.set_quotas({"client-id": "greedy"}, consumer_byte_rate=1.0)
    for _ in range(3):
        produce(client, topic, 10)
    member.client.client_id = "greedy"
    deadline = time.monotonic() + 15
    while not (response := member.fetch_response(topic, max_wait_ms=200)).responses:
        assert time.monotonic() < deadline
    answer = response.responses[0].partitions[0]
    while not answer.acquired_records:
        assert time.monotonic() < deadline
        response = member.fetch_response(topic, max_wait_ms=200)
        answer = response.responses[0].partitions[0] if response.responses else answer
    assert response.throttle_time_ms > 0
    assert answer.acquired_records[0].first_offset == 0
    assert answer.records
