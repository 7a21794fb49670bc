"""Transactions of the asyncio producer on a broker that coordinates them. `test_threads_on_the_broker.py` has the same
sentences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ottla import AsyncProducer
from ottla.errors import FencedError
from ottla.testing import Kafka

Committed = Callable[[str], list[bytes | None]]


def producer_of(kafka: Kafka, transactional_id: str) -> AsyncProducer:
    return AsyncProducer(kafka.bootstrap_servers, settings={"transactional.id": transactional_id})


async def test_a_block_is_seen_at_once_or_never(kafka: Kafka, make_topic: Callable[..., str], committed: Committed):
    topic = make_topic()

    async def fail() -> None:
        async with producer.transaction():
            await producer.send(topic, b"never")
            raise ZeroDivisionError

    async with producer_of(kafka, topic) as producer:
        async with producer.transaction():
            producer.send(topic, b"1")
            await producer.send(topic, b"2")
            assert await asyncio.to_thread(committed, topic) == []
        assert await asyncio.to_thread(committed, topic) == [b"1", b"2"]
        with pytest.raises(ZeroDivisionError):
            await fail()
        async with producer.transaction():
            producer.send(topic, b"3")
    assert await asyncio.to_thread(committed, topic) == [b"1", b"2", b"3"]


async def test_a_newer_producer_fences_the_older(kafka: Kafka, make_topic: Callable[..., str], committed: Committed):
    topic = make_topic()
    zombie = producer_of(kafka, topic)
    await zombie.start()
    transaction = await zombie.transaction().__aenter__()
    await zombie.send(topic, b"zombie")
    async with producer_of(kafka, topic) as living:
        with pytest.raises(FencedError):
            await transaction.commit()
        with pytest.raises(FencedError):
            await zombie.transaction().__aenter__()
        async with living.transaction():
            await living.send(topic, b"living")
    await zombie.close()
    assert await asyncio.to_thread(committed, topic) == [b"living"]


async def test_an_abandoned_transaction_is_aborted_when_its_producer_comes_back(
    kafka: Kafka, make_topic: Callable[..., str], committed: Committed
):
    topic = make_topic()
    abandoned = producer_of(kafka, topic)
    await abandoned.start()
    await abandoned.transaction().__aenter__()
    await abandoned.send(topic, b"abandoned")
    async with producer_of(kafka, topic) as again:
        assert await asyncio.to_thread(committed, topic) == []
        await asyncio.to_thread(kafka.produce, topic, [b"behind"])
        assert await asyncio.to_thread(committed, topic) == [b"behind"], "nothing is open any more"
        async with again.transaction():
            await again.send(topic, b"again")
    assert abandoned._transactions is not None
    with pytest.raises(FencedError):
        await abandoned._transactions.run(abandoned._transactions.steps.commit(30))
    await abandoned.close()
    assert await asyncio.to_thread(committed, topic) == [b"behind", b"again"]


async def test_offsets_go_with_the_transaction(
    kafka: Kafka, make_topic: Callable[..., str], committed: Committed, offset_of: Callable[[str, str], int]
):
    source, target = make_topic(), make_topic()
    group = f"{source}-group"

    async def fail() -> None:
        async with producer.transaction() as transaction:
            await producer.send(target, b"never")
            await transaction.send_offsets({(source, 0): 2}, group)
            raise ZeroDivisionError

    async with producer_of(kafka, group) as producer:
        async with producer.transaction() as transaction:
            producer.send(target, b"1")
            await transaction.send_offsets({(source, 0): 1}, group)
        assert await asyncio.to_thread(offset_of, group, source) == 1
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert await asyncio.to_thread(offset_of, group, source) == 1
    assert await asyncio.to_thread(committed, target) == [b"1"]
