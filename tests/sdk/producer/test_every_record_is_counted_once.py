"""What an asyncio producer has in its buffer: every record is counted once, and every delivery is settled."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from ottla import AsyncProducer
from ottla.errors import DeliveryError, InputError, LifecycleError
from ottla.testing.waiting import wait_until_async

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.aio.produce.delivery import AsyncDelivery
    from ottla.testing.kafka import Kafka

FEW = {"queue.buffering.max.messages": 2}


def _raises(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    if key == b"bad":
        raise RuntimeError("the caller's mistake")
    return partitions[0]


@pytest.mark.parametrize("way", ["a partition that the topic lacks", "a partitioner that raises"])
async def test_records_that_cannot_be_placed_fail_alone_however_many_wait_for_room(
    kafka: Kafka, kafka_topic: str, way: str
) -> None:
    bad: dict[str, Any] = {"partition": 99} if way.startswith("a partition ") else {"key": b"bad"}
    async with AsyncProducer(kafka.bootstrap_servers, settings=FEW, partitioner=_raises) as producer:
        await producer.send(kafka_topic, b"first", key=b"good")
        good = [producer.send(kafka_topic, b"%d" % number, key=b"good") for number in range(2)]
        refused = [producer.send(kafka_topic, b"v", **bad) for _ in range(2_000)]
        good.append(producer.send(kafka_topic, b"last", key=b"good"))
        async with asyncio.timeout(60):
            assert [(await delivery).offset for delivery in good] == [1, 2, 3]
            for delivery in refused:
                with pytest.raises(InputError):
                    await delivery
        assert not len(producer)
        await producer.flush(10)


async def test_an_acknowledged_record_is_reported_before_others_are_let_in(kafka: Kafka, kafka_topic: str) -> None:
    seen: list[str] = []
    settings = {"queue.buffering.max.messages": 1}
    async with AsyncProducer(kafka.bootstrap_servers, settings=settings, partitioner=_raises) as producer:
        await producer.send(kafka_topic, b"first")
        first = producer.send(kafka_topic, b"v", on_delivery=lambda _: seen.append("acknowledged"))
        second = producer.send(kafka_topic, b"v", key=b"bad", on_delivery=lambda _: seen.append("refused"))
        await first
        with pytest.raises(InputError):
            await second
    assert seen == ["acknowledged", "refused"]


async def _cancelled(kafka: Kafka, topic: str, *, only: str) -> tuple[AsyncProducer, AsyncDelivery, float]:
    """A producer of which some tasks were cancelled while a record was out, and how long its delivery took to fail."""
    producer = AsyncProducer(kafka.bootstrap_servers, settings={"linger.ms": 5_000, "delivery.timeout.ms": 60_000})
    await producer.start()
    producer.send(topic, b"first")
    await producer.flush(30)
    delivery = producer.send(topic, b"v")
    for task in asyncio.all_tasks():
        if task is not asyncio.current_task() and only in str(task):
            task.cancel()
    started_s = time.monotonic()
    with pytest.raises(LifecycleError, match="was cancelled from outside, and it sends nothing any more"):
        async with asyncio.timeout(30):
            await delivery
    return producer, delivery, time.monotonic() - started_s


@pytest.mark.parametrize("only", ["", "ottla-producer-housekeeping", "_sender_routine"])
async def test_what_is_out_fails_when_the_producers_tasks_are_cancelled(
    kafka: Kafka, kafka_topic: str, only: str
) -> None:
    producer, _, took_s = await _cancelled(kafka, kafka_topic, only=only)
    assert took_s < 10
    with pytest.raises(LifecycleError, match="make a new one"):
        producer.send(kafka_topic, b"more")
    await producer.close()
    assert not len(producer)


async def test_a_failure_that_nobody_awaited_is_raised_when_such_a_producer_is_closed(
    kafka: Kafka, kafka_topic: str
) -> None:
    producer = AsyncProducer(kafka.bootstrap_servers, settings={"linger.ms": 5_000})
    await producer.start()
    producer.send(kafka_topic, b"first")
    await producer.flush(30)
    producer.send(kafka_topic, b"v")
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await wait_until_async(lambda: not len(producer), 30, what="the end of the producer")
    with pytest.raises(DeliveryError, match="sends nothing any more"):
        await producer.close()


async def test_a_lane_whose_task_is_cancelled_loses_no_record(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, settings={"linger.ms": 5_000}) as producer:
        producer.send(kafka_topic, b"first")
        await producer.flush(30)
        producer.send(kafka_topic, b"second")
        for task in asyncio.all_tasks():
            if task.get_name() == f"ottla-lane-{kafka_topic}":
                task.cancel()
        await asyncio.sleep(0)
        producer.send(kafka_topic, b"third")
        await producer.flush(30)
    found = await asyncio.to_thread(kafka.consume_all, kafka_topic)
    assert [record.raw_value for record in found] == [b"first", b"second", b"third"]
