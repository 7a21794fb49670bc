"""Clients that are slowed down by their quotas, and hear of it. Time is the broker's: 300 times as fast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock

RATE = 1_000
RECORDS, SIZE = 20, 4_000
SPAN_MS = 11_000
APP = {"client-id": "app"}


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(speed=300)


@pytest.fixture
def cluster(clock: VirtualClock) -> Iterator[EmbeddedCluster]:
    """A machine that stands still for a moment shall not cost the broker its session."""
    with EmbeddedCluster(clock=clock, config={"broker.session.timeout.ms": 86_400_000}) as running:
        yield running


@pytest.fixture
def topic(cluster: EmbeddedCluster) -> Iterator[str]:
    cluster.create_topic("t", config={"message.timestamp.type": "LogAppendTime"})
    return "t"


def test_a_producer_takes_as_long_as_its_quota_says(
    cluster: EmbeddedCluster, topic: str, set_quota: Callable[..., None]
) -> None:
    set_quota(APP, producer_byte_rate=float(RATE))
    throttled: list[Any] = []
    appended_ms: list[int] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "app",
            "linger.ms": 0,
            "batch.num.messages": 1,
            "throttle_cb": throttled.append,
        }
    )
    for _ in range(RECORDS):
        producer.produce(
            topic,
            b"x" * SIZE,
            on_delivery=lambda error, message: appended_ms.append(-1 if error else message.timestamp()[1]),
        )
    assert producer.flush(60) == 0
    assert len(appended_ms) == RECORDS
    assert -1 not in appended_ms
    # What a client that is held can get at the most is held against many sizes and pauses in test_quota_policy.
    least_ms = (RECORDS - 1) * SIZE * 1_000 // (2 * RATE) - SPAN_MS
    assert max(appended_ms) - min(appended_ms) >= least_ms
    assert max(event.throttle_time for event in throttled) > 0
    assert {event.broker_id for event in throttled} == {1}


def test_a_consumer_takes_as_long_as_its_quota_says(
    cluster: EmbeddedCluster,
    clock: VirtualClock,
    topic: str,
    set_quota: Callable[..., None],
    wait_until: Callable[..., None],
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 1, "linger.ms": 0})
    for _ in range(RECORDS):
        producer.produce(topic, b"x" * SIZE)
    assert producer.flush(60) == 0
    set_quota(APP, consumer_byte_rate=float(RATE))
    throttled: list[Any] = []
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "client.id": "app",
            "group.id": "g",
            "throttle_cb": throttled.append,
        }
    )
    began_ms = clock.now_ms()
    consumer.assign([TopicPartition(topic, 0, 0)])
    received = 0
    while received < RECORDS:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        received += 1
    assert clock.now_ms() - began_ms >= RECORDS * SIZE * 1_000 // RATE - SPAN_MS
    wait_until(lambda: consumer.poll(0) is None and throttled)  # librdkafka tells it in its own time
    assert max(event.throttle_time for event in throttled) > 0
    consumer.close()


async def test_an_asyncio_producer_takes_as_long_as_its_quota_says(
    cluster: EmbeddedCluster, topic: str, set_quota: Callable[..., None]
) -> None:
    set_quota(APP, producer_byte_rate=float(RATE))
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, client_id="app") as producer:
        sent = [await producer.send_and_wait(topic, b"x" * SIZE) for _ in range(RECORDS)]
    least_ms = (RECORDS - 1) * SIZE * 1_000 // (2 * RATE) - SPAN_MS
    assert sent[-1].timestamp - sent[0].timestamp >= least_ms
