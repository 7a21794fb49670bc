"""An asyncio producer and a schema registry: the event loop never waits for it, and records stay in order."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from ottla import AsyncProducer, Avro, DeliveryError, RegistryUnavailable, SerializationError
from ottla.serdes import Serde, SerdeContext


class SlowToKnow(Serde[str]):
    """Knows a topic when somebody lets it."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.error: Exception | None = None
        self.known: set[str] = set()

    def is_prepared(self, ctx: SerdeContext) -> bool:
        return ctx.topic in self.known

    def prepare(self, ctx: SerdeContext) -> None:
        assert threading.current_thread() is not threading.main_thread(), "the event loop was held up"
        self.asked.set()
        assert self.may_answer.wait(30)
        if self.error is not None:
            raise self.error
        self.known.add(ctx.topic)

    def serialize(self, value: str | None, ctx: SerdeContext) -> bytes | None:
        assert ctx.topic in self.known
        if value is None:
            return None
        if not value:
            raise SerializationError("an empty text")
        return value.encode()

    def deserialize(self, data: bytes | None, ctx: SerdeContext) -> Any:
        raise NotImplementedError


async def test_sends_wait_for_the_registry_in_order_and_the_loop_does_not(kafka: Any, kafka_topic: str) -> None:
    serde = SlowToKnow()
    async with AsyncProducer(kafka.bootstrap_servers, value=serde) as producer:
        first = producer.send(kafka_topic, "a", key=b"k")
        assert await asyncio.to_thread(serde.asked.wait, 30)
        second = producer.send(kafka_topic, "b", key=b"k")
        assert len(producer) == 2
        assert not first.done()
        serde.may_answer.set()
        many = asyncio.ensure_future(producer.send_many(kafka_topic, [("c", b"k"), ("d", b"k")]))
        await asyncio.gather(many, _report(first), _report(second))
        third = producer.send(kafka_topic, "e", key=b"k")
        await third
        assert (first.key, first.report.offset, second.report.offset) == (b"k", 0, 1)

    assert [record.value for record in kafka.consume_all(kafka_topic)] == [b"a", b"b", b"c", b"d", b"e"]


async def _report(delivery: Any) -> Any:
    return await delivery


async def test_a_registry_that_is_away_fails_the_deliveries_and_the_next_send_asks_again(
    kafka: Any, kafka_topic: str
) -> None:
    serde = SlowToKnow()
    serde.may_answer.set()
    serde.error = RegistryUnavailable("away")
    async with AsyncProducer(kafka.bootstrap_servers, value=serde) as producer:
        with pytest.raises(RegistryUnavailable, match="away"):
            await producer.send(kafka_topic, "a")
        serde.error = None
        assert (await producer.send(kafka_topic, "b")).offset == 0


async def test_a_record_that_cannot_be_serialized_fails_alone(kafka: Any, kafka_topic: str) -> None:
    serde = SlowToKnow()
    async with AsyncProducer(kafka.bootstrap_servers, value=serde) as producer:
        bad = producer.send(kafka_topic, "")
        good = producer.send(kafka_topic, "b")
        serde.may_answer.set()
        with pytest.raises(SerializationError):
            await bad
        assert (await good).offset == 0


async def test_flush_waits_for_what_waits_for_the_registry_and_close_gives_it_up(kafka: Any, kafka_topic: str) -> None:
    serde = SlowToKnow()
    producer = AsyncProducer(kafka.bootstrap_servers, value=serde)
    await producer.start()
    producer.send(kafka_topic, "a")
    with pytest.raises(DeliveryError):
        await producer.flush(0.05)
    serde.may_answer.set()
    await producer.flush()
    assert len(kafka.consume_all(kafka_topic)) == 1

    serde.may_answer.clear()
    serde.known.clear()
    lost = producer.send(f"{kafka_topic}-other", "b")
    with pytest.raises(DeliveryError, match=f"{kafka_topic}-other"):
        await producer.close(0.05)
    serde.may_answer.set()
    assert lost.done()


@dataclass
class Order:
    id: int


async def test_avro_to_a_topic_that_was_not_declared(kafka: Any, kafka_topic: str, schema_registry: Any) -> None:
    serde = Avro(Order, registry=schema_registry.url)
    async with AsyncProducer(kafka.bootstrap_servers, value=serde) as producer:
        for number in range(3):
            producer.send(kafka_topic, Order(number))
        await producer.flush()

    assert [record.value for record in kafka.consume_all(kafka_topic, value=serde)] == [Order(n) for n in range(3)]
