"""Transactions of the threaded producer on a broker that coordinates them. `test_asyncio_on_the_broker.py` has the same
sentences."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer

from ottla import Producer
from ottla.errors import FencedError
from ottla.testing import Kafka

Committed = Callable[[str], list[bytes | None]]


def producer_of(kafka: Kafka, transactional_id: str) -> Producer:
    return Producer(kafka.bootstrap_servers, settings={"transactional.id": transactional_id})


def test_a_block_is_seen_at_once_or_never(kafka: Kafka, make_topic: Callable[..., str], committed: Committed):
    topic = make_topic()

    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"never")
            producer.flush()
            raise ZeroDivisionError

    with producer_of(kafka, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"1")
            producer.send(topic, b"2").result(30)
            assert committed(topic) == []
        assert committed(topic) == [b"1", b"2"]
        with pytest.raises(ZeroDivisionError):
            fail()
        with producer.transaction():
            producer.send(topic, b"3")
    assert committed(topic) == [b"1", b"2", b"3"]


def test_a_newer_producer_fences_the_older(kafka: Kafka, make_topic: Callable[..., str], committed: Committed):
    topic = make_topic()

    def go_on() -> None:
        zombie.send(topic, b"zombie")
        transaction.commit()

    zombie = producer_of(kafka, topic)
    zombie.start()
    transaction = zombie.transaction().__enter__()
    zombie.send(topic, b"zombie").result(30)
    with producer_of(kafka, topic) as living:
        with pytest.raises(FencedError):
            go_on()
        with pytest.raises(FencedError):
            zombie.transaction().__enter__()
        with living.transaction():
            living.send(topic, b"living")
    zombie.close()
    assert committed(topic) == [b"living"]


def test_an_abandoned_transaction_is_aborted_when_its_producer_comes_back(
    kafka: Kafka, make_topic: Callable[..., str], committed: Committed
):
    topic = make_topic()
    abandoned = producer_of(kafka, topic)
    abandoned.start()
    abandoned.transaction().__enter__()
    abandoned.send(topic, b"abandoned").result(30)
    with producer_of(kafka, topic) as again:
        assert committed(topic) == []
        kafka.produce(topic, [b"behind"])
        assert committed(topic) == [b"behind"], "nothing is open any more"
        with again.transaction():
            again.send(topic, b"again")
    with pytest.raises(FencedError):
        abandoned._transactions.run(abandoned._transactions.steps.commit(30))  # type: ignore[union-attr]
    abandoned.close()
    assert committed(topic) == [b"behind", b"again"]


def test_offsets_go_with_the_transaction(
    kafka: Kafka, make_topic: Callable[..., str], committed: Committed, offset_of: Callable[[str, str], int]
):
    source, target = make_topic(), make_topic()
    group = f"{source}-group"
    kafka.produce(source, [b"1", b"2"])
    consumer = Consumer(
        {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    consumer.subscribe([source])
    deadline = time.monotonic() + 30
    while not consumer.assignment():
        consumer.poll(0.1)
        assert time.monotonic() < deadline

    def fail() -> None:
        with producer.transaction() as transaction:
            producer.send(target, b"never")
            transaction.send_offsets({(source, 0): 2}, consumer)
            raise ZeroDivisionError

    with producer_of(kafka, group) as producer:
        with producer.transaction() as transaction:
            producer.send(target, b"1")
            transaction.send_offsets({(source, 0): 1}, consumer)
        assert offset_of(group, source) == 1
        with pytest.raises(ZeroDivisionError):
            fail()
        assert offset_of(group, source) == 1
    assert committed(target) == [b"1"]
    consumer.close()
