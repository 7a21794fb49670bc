"""aiokafka, unmodified, against the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError

from broker_embedded.cluster import EmbeddedCluster


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
async def test_keys_values_headers_and_timestamps_come_back(cluster: EmbeddedCluster, compression: str | None) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, compression_type=compression, linger_ms=5
    ) as producer:
        sent = [
            await producer.send(
                "t",
                b"value-%d" % number * 20,
                key=b"key-%d" % number,
                headers=[("n", b"%d" % number)],
                timestamp_ms=1_700_000_000_000 + number,
            )
            for number in range(200)
        ]
        metadata = await asyncio.gather(*sent)
    assert [each.offset for each in metadata] == list(range(200))
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", 0)])
    async with consumer:
        for number in range(200):
            message = await asyncio.wait_for(consumer.getone(), 20)
            assert (message.offset, message.key) == (number, b"key-%d" % number)
            assert message.value == b"value-%d" % number * 20
            assert message.headers == (("n", b"%d" % number),)
            assert message.timestamp == 1_700_000_000_000 + number


async def test_a_waiting_consumer_is_woken_by_the_produce(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=30_000
    )
    consumer.assign([TopicPartition("t", 0)])
    async with consumer, AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(10):
            waiting = asyncio.ensure_future(consumer.getone())
            await asyncio.sleep(0)
            await producer.send_and_wait("t", b"%d" % number)
            assert (await asyncio.wait_for(waiting, 10)).value == b"%d" % number


async def test_offsets_are_found_by_time_and_at_the_ends(cluster: EmbeddedCluster) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(5):
            await producer.send_and_wait("t", b"v", timestamp_ms=1_700_000_000_000 + number * 1000)
    partition = TopicPartition("t", 0)
    async with AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 5}
        found = await consumer.offsets_for_times({partition: 1_700_000_002_500})
        assert found[partition].offset == 3


async def test_a_record_above_the_topics_limit_is_refused(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", config={"max.message.bytes": 2000})
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait("t", b"x" * 3000)
        assert (await producer.send_and_wait("t", b"x")).offset == 0


async def test_the_admin_client_makes_and_deletes_topics(cluster: EmbeddedCluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic("t", num_partitions=3, replication_factor=1)])
        assert "t" in await admin.list_topics()
        await admin.delete_topics(["t"])
        assert "t" not in await admin.list_topics()
    finally:
        await admin.close()
