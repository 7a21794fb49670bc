"""confluent-kafka (librdkafka), unmodified, against the embedded broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from broker_embedded.cluster import EmbeddedCluster
from ottla.browse.topic_reader import TopicReader

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.fixture
def consumer(cluster: EmbeddedCluster) -> Iterator[Any]:
    made = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
        }
    )
    yield made
    made.close()


def read(consumer: Any, count: int, *, timeout_s: float = 20) -> list[Any]:
    """`count` messages, or fail."""
    found: list[Any] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages arrived"
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
    return found


@pytest.mark.representative("zstd")
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_keys_values_headers_and_timestamps_come_back(
    cluster: EmbeddedCluster, consumer: Any, compression: str
) -> None:
    errors: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "enable.idempotence": True,
            "compression.type": compression,
            "linger.ms": 5,
        }
    )
    for number in range(500):
        producer.produce(
            "t",
            key=b"key-%d" % number,
            value=b"value-%d" % number * 20,
            headers=[("n", b"%d" % number), ("empty", None)],
            timestamp=1_700_000_000_000 + number,
            on_delivery=lambda error, message: errors.append(error) if error else None,
        )
    assert producer.flush(20) == 0
    assert errors == []
    consumer.assign([TopicPartition("t", 0, 0)])
    for number, message in enumerate(read(consumer, 500)):
        assert message.offset() == number
        assert message.key() == b"key-%d" % number
        assert message.value() == b"value-%d" % number * 20
        assert message.headers() == [("n", b"%d" % number), ("empty", None)]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_000 + number)


def test_null_values_and_empty_keys_stay_what_they_are(cluster: EmbeddedCluster, consumer: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce("t", key=b"", value=None)
    producer.produce("t", key=None, value=b"")
    assert producer.flush(20) == 0
    consumer.assign([TopicPartition("t", 0, 0)])
    first, second = read(consumer, 2)
    assert (first.key(), first.value()) == (b"", None)
    assert (second.key(), second.value()) == (None, b"")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_setting_delivers(cluster: EmbeddedCluster, consumer: Any, acks: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks, "enable.idempotence": False})
    for number in range(100):
        producer.produce("t", b"%d" % number)
    assert producer.flush(20) == 0
    consumer.assign([TopicPartition("t", 0, 0)])
    assert [message.value() for message in read(consumer, 100)] == [b"%d" % number for number in range(100)]


def test_a_message_produced_while_a_consumer_waits_arrives_at_once(cluster: EmbeddedCluster, consumer: Any) -> None:
    cluster.create_topic("t")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
    consumer.assign([TopicPartition("t", 0, 0)])
    consumer.poll(0.1)
    delays = []
    for _ in range(20):
        started = time.perf_counter()
        producer.produce("t", b"now")
        producer.flush(10)
        read(consumer, 1)
        delays.append(time.perf_counter() - started)
    assert sorted(delays)[10] < 0.1, "a timer (fetch.wait.max.ms is 500 ms) must not be what wakes the consumer"


def test_reading_starts_at_the_beginning_and_by_time(cluster: EmbeddedCluster, consumer: Any) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(10):
        producer.produce("t", b"%d" % number, timestamp=1_700_000_000_000 + number * 1000)
        producer.flush(10)
    (found,) = consumer.offsets_for_times([TopicPartition("t", 0, 1_700_000_004_500)], timeout=10)
    assert found.offset == 5
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10) == (0, 10)
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    assert read(consumer, 1)[0].value() == b"0"


def test_a_topic_that_is_missing_and_may_not_be_created_is_an_error() -> None:
    with EmbeddedCluster(config={"auto.create.topics.enable": False}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "topic.metadata.propagation.max.ms": 100})
        seen: list[Any] = []
        producer.produce("nope", b"v", on_delivery=lambda error, message: seen.append(error))
        producer.flush(20)
    assert [error.code() for error in seen] == [KafkaError.UNKNOWN_TOPIC_OR_PART]


def test_a_record_above_the_topics_limit_is_refused_and_the_next_one_is_taken(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", config={"max.message.bytes": 2000})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 0})
    seen: list[Any] = []
    for size in (3000, 10):
        producer.produce("t", b"x" * size, on_delivery=lambda error, message: seen.append(error))
        producer.flush(20)
    assert [error and error.code() for error in seen] == [KafkaError.MSG_SIZE_TOO_LARGE, None]


def test_produce_and_consume_go_on_after_a_restart(tmp_path: Any) -> None:
    cluster = EmbeddedCluster(data_dir=tmp_path).start()
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 50,
    }
    producer = Producer({**settings, "enable.idempotence": True, "retry.backoff.ms": 10})
    producer.produce("t", b"before")
    assert producer.flush(20) == 0
    cluster.stop()
    producer.produce("t", b"between")
    cluster.start()
    producer.produce("t", b"after")
    assert producer.flush(30) == 0
    reader = Consumer({**settings, "group.id": "unused"})
    reader.assign([TopicPartition("t", 0, 0)])
    assert [message.value() for message in read(reader, 3)] == [b"before", b"between", b"after"]
    reader.close()
    cluster.stop()


def test_three_brokers_share_a_topic(consumer: Any) -> None:
    with EmbeddedCluster(brokers=3) as cluster:
        cluster.create_topic("t", partitions=6)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(600):
            producer.produce("t", b"%d" % number, partition=number % 6)
        assert producer.flush(20) == 0
        reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
        reader.assign([TopicPartition("t", number, 0) for number in range(6)])
        assert len({message.value() for message in read(reader, 600)}) == 600
        reader.close()


def result_of(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(20)


def test_the_admin_client_manages_topics_and_settings(cluster: EmbeddedCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    result_of(admin.create_topics([NewTopic("t", 2, 1, config={"retention.ms": "1000"})]))
    result_of(admin.create_partitions([NewPartitions("t", 4)]))
    assert len(admin.list_topics(timeout=10).topics["t"].partitions) == 4
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    assert result_of(admin.describe_configs([resource]))["retention.ms"].value == "1000"
    latest = result_of(admin.list_offsets({TopicPartition("t", 0): OffsetSpec.latest()}))
    assert latest.offset == 0
    assert admin.describe_cluster().result(20).controller.id == 1
    with pytest.raises(KafkaException, match="already exists"):
        result_of(admin.create_topics([NewTopic("t", 1, 1)]))
    result_of(admin.delete_topics(["t"]))
    assert "t" not in admin.list_topics(timeout=10).topics


def test_a_topic_whose_segments_were_superseded_as_a_whole_is_read_without_an_error() -> None:
    with EmbeddedCluster(config={"log.cleaner.backoff.ms": "50"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
        result_of(admin.create_topics([NewTopic("t", 1, 1, config=config)]))
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0})
        for n in range(31):
            producer.produce("t", b"%d" % n * 400_000, b"key", 0)
            assert producer.flush(20) == 0
        deadline = time.monotonic() + 20
        found: list[int] = []
        while len(found) != 2:  # of what is clean, and of the active segment
            assert time.monotonic() < deadline, f"not cleaned, found the offsets {found}"
            with TopicReader(cluster.bootstrap_servers, "t") as reader:
                found = [record.offset for record in reader.read_to_end()]
        assert found == [29, 30]
