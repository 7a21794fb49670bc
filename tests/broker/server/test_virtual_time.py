"""A cluster on a virtual clock: what a week does, in a moment and without waiting; and clients whose own time is real.

Nothing here polls after `advance`: when it returns, what fell due has been done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla_wire.protocol import ApiKey
from ottla_wire.records.batch import iter_headers
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

MakeBatch = Callable[..., bytes]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def cluster(clock: VirtualClock, tmp_path: Path) -> Iterator[EmbeddedCluster]:
    settings = {"offsets.topic.num.partitions": 1}
    with EmbeddedCluster(clock=clock, data_dir=tmp_path, config=settings) as running:
        yield running


def fill(client: Any, make_batch: MakeBatch, clock: VirtualClock, count: int = 5) -> None:
    for _ in range(count):
        assert client.produce("t", make_batch(b"x" * 600, timestamp_ms=clock.now_ms())).error_code == 0


def test_a_week_of_retention_passes_in_a_moment(cluster, clock, client: Any, make_batch: MakeBatch, tmp_path: Path):
    cluster.create_topic("t", config={"segment.bytes": 1000})
    fill(client, make_batch, clock)
    directory = tmp_path / "broker-1" / "t-0"
    assert len(list(directory.glob("*.log"))) == 5
    cluster.clock.advance(days=6)
    assert client.fetch("t").log_start_offset == 0
    cluster.clock.advance(days=2)
    assert client.fetch("t", 5).log_start_offset == 5
    assert len(list(directory.glob("*.log*"))) == 1, "the files are gone as well, a minute after they left the log"


def test_a_minute_is_not_more_than_a_minute(cluster, clock, client: Any, make_batch: MakeBatch):
    cluster.create_topic("t", config={"segment.bytes": 1000, "retention.ms": 600_000})
    fill(client, make_batch, clock)
    for _ in range(9):
        clock.advance(minutes=1)
        assert client.fetch("t").log_start_offset == 0
    clock.advance(minutes=7)  # log.retention.check.interval.ms: every five minutes
    assert client.fetch("t", 5).log_start_offset == 5


def join(client: Any, group: str, *, session_ms: int) -> None:
    """Become the only member of a classic group."""
    body = {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": session_ms,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    joined = client.call(ApiKey.JOIN_GROUP, 3, body)
    assert joined.error_code == 0
    body = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "assignments": [{"member_id": joined.member_id, "assignment": b""}],
    }
    assert client.call(ApiKey.SYNC_GROUP, 2, body).error_code == 0


def group_state(client: Any, group: str) -> str:
    return str(client.call(ApiKey.DESCRIBE_GROUPS, 5, {"groups": [group]}).groups[0].group_state)


def test_a_member_is_dropped_when_its_session_timeout_has_passed_and_not_before(cluster, clock, client: Any):
    client.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    join(client, "g", session_ms=45_000)
    clock.advance(44_999)
    assert group_state(client, "g") == "Stable"
    clock.advance(1)
    assert group_state(client, "g") == "Empty"
    join(client, "g", session_ms=45_000)
    clock.advance(minutes=5)
    assert group_state(client, "g") == "Empty"


def test_committed_offsets_expire_a_week_after_the_group_became_empty(cluster, clock, client: Any):
    cluster.create_topic("t")
    client.call(ApiKey.FIND_COORDINATOR, 3, {"key": "g", "key_type": 0})
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    body = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    client.call(ApiKey.OFFSET_COMMIT, 8, {**body, "topics": [{"name": "t", "partitions": partitions}]})

    def committed() -> int:
        wanted = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [0]}]}
        return int(client.call(ApiKey.OFFSET_FETCH, 7, wanted).topics[0].partitions[0].committed_offset)

    clock.advance(days=6, hours=23)
    assert committed() == 5
    clock.advance(hours=2)
    assert committed() == -1


def values_in(client: Any, topic: str) -> list[bytes | None]:
    """Fetch by fetch: one fetch reads one segment."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        data, position = bytes(client.fetch(topic, offset).records), 0
        for header in iter_headers(data):
            found += [record.value for record in decode_batch(data, position)]
            position += header.size_in_bytes
            offset = header.next_offset
        if position == 0:
            return found


def test_the_cleaner_leaves_young_records_alone_until_their_lag_has_passed(cluster, clock, client: Any):
    settings = {"cleanup.policy": "compact", "segment.bytes": 500, "min.cleanable.dirty.ratio": 0.01}
    cluster.create_topic("t", config={**settings, "min.compaction.lag.ms": 3_600_000})
    for number in range(20):
        record = RecordData(offset=0, timestamp_ms=clock.now_ms(), key=b"k", value=b"%04d" % number * 30, headers=())
        assert client.produce("t", bytes(encode_batch([record]))).error_code == 0
    clock.advance(minutes=59)
    assert len(values_in(client, "t")) == 20
    clock.advance(minutes=2)
    assert len(values_in(client, "t")) < 10


def test_a_long_poll_ends_in_the_clients_time_while_the_clusters_stands_still(cluster, clock, client: Any):
    cluster.create_topic("t")
    before_ms = clock.now_ms()
    asked_at = time.monotonic()
    assert client.fetch("t", max_wait_ms=200).records == b""
    assert time.monotonic() - asked_at >= 0.19
    assert clock.now_ms() == before_ms


def test_an_open_connection_survives_the_week(cluster, clock, client: Any):
    """connections.max.idle.ms is ten minutes, of the client."""
    clock.advance(days=7)
    assert client.call(ApiKey.API_VERSIONS, 0, {}).error_code == 0


def test_records_get_the_virtual_time(cluster, clock, client: Any, make_batch: MakeBatch):
    cluster.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    clock.advance(days=3, ms=7)
    assert client.produce("t", make_batch(b"v", timestamp_ms=1)).log_append_time_ms == clock.now_ms()


def test_time_passes_while_the_cluster_is_down(clock: VirtualClock, tmp_path: Path, make_wire_client, make_batch):
    with EmbeddedCluster(clock=clock, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", config={"segment.bytes": 1000})
        fill(make_wire_client(cluster.bootstrap_servers), make_batch, clock)
    clock.advance(days=8)
    with EmbeddedCluster(clock=clock, data_dir=tmp_path) as cluster:
        client = make_wire_client(cluster.bootstrap_servers)
        assert client.fetch("t").log_start_offset == 0
        clock.advance(minutes=5)
        assert client.fetch("t", 5).log_start_offset == 5


def consume(consumer: Consumer, count: int, *, timeout_s: float = 60) -> list[bytes]:
    found: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    return found


def test_confluent_kafka_lives_beside_a_frozen_clock_and_comes_back_after_a_week(cluster, clock):
    cluster.create_topic("t", partitions=2, config={"retention.ms": -1})
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    producer = Producer({**servers, "linger.ms": 5})
    group = {"group.id": "g", "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100}
    consumer = Consumer({**servers, **group, "enable.auto.commit": False})
    try:
        consumer.subscribe(["t"])
        for _ in range(20):
            producer.produce("t", b"before")
        assert producer.flush(30) == 0
        assert consume(consumer, 20) == [b"before"] * 20
        consumer.commit(asynchronous=False)
        clock.advance(days=7)  # the member's session ends in it: it joins again by itself
        for _ in range(20):
            producer.produce("t", b"after")
        assert producer.flush(30) == 0
        assert consume(consumer, 20) == [b"after"] * 20
    finally:
        consumer.close()


async def test_aiokafka_lives_beside_a_frozen_clock(cluster, clock):
    cluster.create_topic("t")
    consumer = AIOKafkaConsumer(
        "t", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
    )
    async with consumer, AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send_and_wait("t", b"%d" % number)
            message = await asyncio.wait_for(consumer.getone(), 60)
            assert message.value == b"%d" % number
            await asyncio.to_thread(clock.advance, seconds=1)


def test_a_scaled_clock_makes_an_hour_pass_in_seconds(make_wire_client, make_batch: MakeBatch):
    clock = VirtualClock(speed=3_600)
    with EmbeddedCluster(clock=clock) as cluster:
        cluster.create_topic("t", config={"segment.bytes": 1000, "retention.ms": 600_000})
        client = make_wire_client(cluster.bootstrap_servers)
        fill(client, make_batch, clock)
        deadline = time.monotonic() + 30
        while client.fetch("t", 5).log_start_offset < 4:
            assert time.monotonic() < deadline, "retention did not come"
            time.sleep(0.01)


def test_a_week_makes_no_broker_doubt_another_one():
    """Frozen, with three brokers: nobody is fenced, elected or taken out of the in-sync replicas by a leap."""
    with EmbeddedCluster(brokers=3, clock=VirtualClock()) as cluster:
        cluster.create_topic("t", partitions=3, replication_factor=3)
        controller, leaders = cluster.controller_id, [cluster.leader("t", number) for number in range(3)]
        for stretch in ({"seconds": 2}, {"hours": 1}, {"days": 7}):
            cluster.clock.advance(**stretch)
            assert cluster.controller_id == controller
            assert [cluster.leader("t", number) for number in range(3)] == leaders
            assert [cluster.isr("t", number) for number in range(3)] == [[1, 2, 3]] * 3


def test_a_killed_broker_is_missed_when_its_session_ends():
    settings = {
        "broker.session.timeout.ms": 30_000,
        "broker.heartbeat.interval.ms": 2_000,
        "peer.death.detection.enable": False,
    }
    with EmbeddedCluster(brokers=3, clock=VirtualClock(), config=settings) as cluster:
        cluster.create_topic("t", replication_factor=3)
        controller = cluster.controller_id
        victim = next(broker for broker in cluster.broker_ids if broker != controller)
        cluster.kill(victim)
        cluster.clock.advance(seconds=5)
        assert cluster.isr("t") == [1, 2, 3], "nobody has noticed"
        cluster.clock.advance(seconds=35)
        assert cluster.isr("t") == [broker for broker in (1, 2, 3) if broker != victim]
