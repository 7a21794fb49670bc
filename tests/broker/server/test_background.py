"""Retention, compaction and dynamic settings, with a clock that the test moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.common.clock import ManualClock
from ottla_wire.protocol import ApiKey
from ottla_wire.records.batch import iter_headers
from ottla_wire.records.record import RecordData, decode_batch, encode_batch

DAY_MS = 86_400_000
MakeBatch = Callable[..., bytes]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(clock=clock) as running:
        yield running


def wait_until(condition: Callable[[], bool], *, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def keyed(clock: ManualClock, key: bytes, value: bytes | None) -> bytes:
    record = RecordData(offset=0, timestamp_ms=clock.now_ms(), key=key, value=value, headers=())
    return bytes(encode_batch([record]))


def test_a_week_passes_in_a_moment_and_old_segments_are_gone(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any, make_batch: MakeBatch
) -> None:
    cluster.create_topic("t", config={"segment.bytes": 1000})
    for _ in range(5):
        client.produce("t", make_batch(b"x" * 600, timestamp_ms=clock.now_ms()))
    assert client.fetch("t").log_start_offset == 0
    clock.advance(8 * DAY_MS)
    wait_until(lambda: bool(client.fetch("t", 5).log_start_offset == 5))


def test_a_shorter_retention_holds_without_a_restart(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any, make_batch: MakeBatch
) -> None:
    cluster.create_topic("t", config={"segment.bytes": 1000})
    for _ in range(5):
        client.produce("t", make_batch(b"x" * 600, timestamp_ms=clock.now_ms()))
    config = {"name": "retention.bytes", "config_operation": 0, "value": "1500"}
    body = {"resources": [{"resource_type": 2, "resource_name": "t", "configs": [config]}]}
    assert client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, body).responses[0].error_code == 0
    clock.advance(301_000)  # log.retention.check.interval.ms
    wait_until(lambda: bool(client.fetch("t", 5).log_start_offset >= 2))


def test_a_compacted_topic_keeps_the_last_value_of_each_key(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any
) -> None:
    cluster.create_topic(
        "t", config={"cleanup.policy": "compact", "segment.bytes": 1000, "min.cleanable.dirty.ratio": 0.01}
    )
    for number in range(40):
        answer = client.produce("t", keyed(clock, b"k%d" % (number % 3), b"%03d" % number * 30))
        assert answer.error_code == 0

    clock.advance(16_000)  # log.cleaner.backoff.ms
    wait_until(lambda: len(read_all(client, "t")) < 15)
    kept = read_all(client, "t")
    assert [value for offset, value in kept if offset == 39] == [b"039" * 30]
    assert kept == sorted(kept), "offsets never change"


def read_all(client: Any, topic: str) -> list[tuple[int, bytes | None]]:
    """Every record there is, fetch by fetch: one fetch reads one segment, in Kafka too."""
    return read_from(client, topic, 0)


def read_from(client: Any, topic: str, offset: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    while True:
        answer = client.fetch(topic, offset)
        data, position = bytes(answer.records), 0
        for header in iter_headers(data):
            found += [(record.offset, record.value) for record in decode_batch(data, position)]
            position += header.size_in_bytes
            offset = header.next_offset
        if position == 0:
            assert offset == answer.high_watermark
            return found


def test_log_append_time_is_the_brokers_clock(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any, make_batch: MakeBatch
) -> None:
    cluster.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    clock.advance(12_345)
    assert client.produce("t", make_batch(b"v", timestamp_ms=1)).log_append_time_ms == clock.now_ms()


def test_a_deleted_topics_files_are_gone_after_the_delay(
    tmp_path: Path, clock: ManualClock, make_wire_client: Callable[[str], Any]
) -> None:
    with EmbeddedCluster(clock=clock, data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        client = make_wire_client(cluster.bootstrap_servers)
        client.call(ApiKey.DELETE_TOPICS, 5, {"topic_names": ["t"], "timeout_ms": 1})
        assert not (tmp_path / "broker-1" / "t-0").exists()
        assert list((tmp_path / "broker-1").glob("t-0.*-delete"))
        clock.advance(61_000)
        wait_until(lambda: not list((tmp_path / "broker-1").glob("t-0.*-delete")))


def test_a_tombstone_is_served_for_delete_retention_ms_and_then_gone(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any
) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": 500, "min.cleanable.dirty.ratio": 0.01}
    cluster.create_topic("t", config={**settings, "delete.retention.ms": 3_600_000})

    def fill(count: int) -> None:
        for number in range(count):
            client.produce("t", keyed(clock, b"filler", b"%04d" % number * 30))

    client.produce("t", keyed(clock, b"gone", b"value"))
    client.produce("t", keyed(clock, b"gone", None))
    fill(20)
    clock.advance(16_000)  # log.cleaner.backoff.ms
    wait_until(lambda: [value for offset, value in read_all(client, "t") if offset < 2] == [None])
    clock.advance(3_500_000)
    fill(20)
    clock.advance(16_000)
    assert [value for offset, value in read_all(client, "t") if offset < 2] == [None]

    def is_gone() -> bool:  # tombstones leave when the log is cleaned, and it is cleaned when it is dirty
        clock.advance(100_000)
        fill(5)
        return [value for offset, value in read_all(client, "t") if offset < 2] == []

    wait_until(is_gone)
    assert client.fetch("t").log_start_offset == 0, "compaction moves no log start offset"


def test_young_records_are_not_compacted_before_min_compaction_lag_ms(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any
) -> None:
    settings = {"cleanup.policy": "compact", "segment.bytes": 500, "min.cleanable.dirty.ratio": 0.01}
    cluster.create_topic("young", config={**settings, "min.compaction.lag.ms": DAY_MS})
    cluster.create_topic("any", config=settings)
    for topic in ("young", "any"):
        for number in range(20):
            client.produce(topic, keyed(clock, b"k", b"%04d" % number * 30))
    clock.advance(16_000)
    wait_until(lambda: len(read_all(client, "any")) < 10)
    assert len(read_all(client, "young")) == 20
    clock.advance(DAY_MS)
    wait_until(lambda: len(read_all(client, "young")) < 10)


def test_a_topic_that_is_compacted_and_deleted_loses_old_segments_too(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any
) -> None:
    settings = {"cleanup.policy": "compact,delete", "segment.bytes": 500, "min.cleanable.dirty.ratio": 0.01}
    cluster.create_topic("t", config={**settings, "retention.ms": DAY_MS})
    for number in range(20):
        client.produce("t", keyed(clock, b"k%d" % (number % 3), b"%04d" % number * 30))
    clock.advance(16_000)
    wait_until(lambda: 3 <= len(read_all(client, "t")) < 10)
    clock.advance(DAY_MS)
    client.produce("t", keyed(clock, b"young", b"value"))
    clock.advance(301_000)  # log.retention.check.interval.ms
    # The segment that was active stays: a young record is in it.
    wait_until(lambda: bool(client.fetch("t", 20).log_start_offset >= 18))
    assert read_from(client, "t", 20) == [(20, b"value")]


def test_an_idle_producer_is_forgotten_after_producer_id_expiration_ms(
    cluster: EmbeddedCluster, clock: ManualClock, client: Any, make_batch: MakeBatch
) -> None:
    cluster.create_topic("t")
    client.produce("t", make_batch(b"v", producer_id=5, producer_epoch=0, base_sequence=0, timestamp_ms=clock.now_ms()))

    def producers() -> list[int]:
        body = {"topics": [{"name": "t", "partition_indexes": [0]}]}
        (partition,) = client.call(ApiKey.DESCRIBE_PRODUCERS, 0, body).topics[0].partitions
        return [each.producer_id for each in partition.active_producers]

    assert producers() == [5]
    clock.advance(2 * DAY_MS)
    wait_until(lambda: producers() == [])
