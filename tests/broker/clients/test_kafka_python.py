"""kafka-python, unmodified, against the embedded broker."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from broker_embedded.cluster import EmbeddedCluster

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates and 3.13 has again
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_keys_values_headers_and_timestamps_come_back(cluster: EmbeddedCluster, compression: str | None) -> None:
    producer = KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type=compression, linger_ms=5
    )
    sent = [
        producer.send(
            "t",
            b"value-%d" % number * 20,
            key=b"key-%d" % number,
            headers=[("n", b"%d" % number)],
            timestamp_ms=1_700_000_000_000 + number,
        )
        for number in range(100)
    ]
    assert [each.get(20).offset for each in sent] == list(range(100))
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    partition = TopicPartition("t", 0)
    consumer.assign([partition])
    found = [next(consumer) for _ in range(100)]
    assert consumer.end_offsets([partition]) == {partition: 100}
    consumer.close()
    for number, message in enumerate(found):
        assert (message.offset, message.key) == (number, b"key-%d" % number)
        assert message.value == b"value-%d" % number * 20
        assert list(message.headers) == [("n", b"%d" % number)]
        assert message.timestamp == 1_700_000_000_000 + number


def test_the_admin_client_makes_and_deletes_topics(cluster: EmbeddedCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=1)])
    assert "t" in admin.list_topics()
    admin.delete_topics(["t"])
    assert "t" not in admin.list_topics()
    admin.close()
