"""aiokafka's transactional producer."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from broker_embedded.cluster import EmbeddedCluster


async def producer_of(cluster: EmbeddedCluster, transactional_id: str) -> AIOKafkaProducer:
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id)
    await producer.start()
    return producer


async def committed_values(cluster: EmbeddedCluster, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        values: list[bytes | None] = []
        while len(values) < count:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                values += [record.value for record in records]
        return values
    finally:
        await consumer.stop()


async def test_committed_records_are_read_and_aborted_ones_are_not(cluster: EmbeddedCluster, topic: str, name: str):
    producer = await producer_of(cluster, name)
    for number in range(6):
        await producer.begin_transaction()
        await producer.send_and_wait(topic, str(number).encode(), partition=0)
        if number % 2:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    await producer.stop()
    assert await committed_values(cluster, topic, 3) == [b"0", b"2", b"4"]


async def test_an_exception_aborts(cluster: EmbeddedCluster, topic: str, name: str):
    producer = await producer_of(cluster, name)

    async def fail() -> None:
        async with producer.transaction():
            await producer.send_and_wait(topic, b"lost", partition=0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with producer.transaction():
        await producer.send_and_wait(topic, b"kept", partition=0)
    await producer.stop()
    assert await committed_values(cluster, topic, 1) == [b"kept"]


async def test_offsets_are_part_of_the_transaction(cluster: EmbeddedCluster, topic: str, name: str):
    producer = await producer_of(cluster, name)
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id=name, enable_auto_commit=False)
    await consumer.start()
    where = TopicPartition(topic, 0)
    consumer.assign([where])
    async with producer.transaction():
        await producer.send_and_wait(topic, b"x", partition=0)
        await producer.send_offsets_to_transaction({where: 5}, name)
    assert await consumer.committed(where) == 5
    await producer.begin_transaction()
    await producer.send_offsets_to_transaction({where: 9}, name)
    await producer.abort_transaction()
    assert await consumer.committed(where) == 5
    await consumer.stop()
    await producer.stop()


async def test_a_zombie_is_fenced(cluster: EmbeddedCluster, topic: str, name: str):
    zombie = await producer_of(cluster, name)
    await zombie.begin_transaction()
    await zombie.send_and_wait(topic, b"zombie", partition=0)
    living = await producer_of(cluster, name)
    with pytest.raises(ProducerFenced):
        await zombie.commit_transaction()
    async with living.transaction():
        await living.send_and_wait(topic, b"living", partition=0)
    await living.stop()
    await zombie.stop()
    assert await committed_values(cluster, topic, 1) == [b"living"]
