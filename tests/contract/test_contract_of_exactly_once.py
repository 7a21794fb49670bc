"""Handlers with ``exactly_once=`` on either broker: results, dead letters, offsets, and a rebalance in the middle."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from apps_in_threads import serving
from confluent_kafka import Consumer, KafkaException, TopicPartition

from ottla import App, ExactlyOnce, Json, Out, Producer, Record, RetryPolicy

pytestmark = pytest.mark.client_contract

WAIT_S = 120.0
PARTITIONS = 2


def wait(condition: Callable[[], bool], what: str) -> None:
    give_up_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up_s, f"still waiting for {what}"
        time.sleep(0.05)


def committed(servers: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        places = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 30)
        return sum(max(0, place.offset) for place in places)
    except KafkaException:
        return 0  # the coordinator is not there yet: asked again
    finally:
        consumer.close()


def read(servers: str, topic: str, wanted: int) -> list[bytes]:
    """What a read_committed reader sees of the topic."""
    settings = {"group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    reader = Consumer({"bootstrap.servers": servers, **settings})
    reader.subscribe([topic])
    values: list[bytes] = []
    give_up_s = time.monotonic() + WAIT_S
    while time.monotonic() < give_up_s:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
        elif message is None and len(values) >= wanted:
            break
    reader.close()
    return values


@pytest.mark.representative("asyncio")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_results_dead_letters_and_offsets_are_one_transaction(
    kafka: Any, bootstrap_servers: str, is_async: bool
) -> None:
    source, target = kafka.create_topic(partitions=PARTITIONS), kafka.create_topic(partitions=PARTITIONS)
    dead, group = kafka.create_topic(), f"exactly-{uuid.uuid4().hex[:8]}"
    retry = RetryPolicy(max_attempts=2, initial_s=0.01)

    def made() -> App:
        app = App(group, bootstrap_servers=bootstrap_servers, dead_letter_topic=dead, retry=retry)

        @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json(), max_records=25))
        def handle(record: Record[int], out: Out) -> None:
            out.send(target, record.value, partition=record.partition)
            if record.value == 77:
                raise RuntimeError("poison")

        return app

    with Producer(bootstrap_servers, value=Json()) as producer:
        for number in range(400):
            producer.send(source, number, partition=number % PARTITIONS)
    with ExitStack() as running:
        first = running.enter_context(serving(made(), is_async=is_async))
        wait(lambda: bool(first) or committed(bootstrap_servers, group, source) > 50, "the first transactions")
        second = running.enter_context(serving(made(), is_async=is_async))  # a rebalance in the middle
        wait(lambda: bool(first + second) or committed(bootstrap_servers, group, source) == 400, "all offsets")
        assert first + second == []
    found = [int(value) for value in read(bootstrap_servers, target, 399)]
    for partition in range(PARTITIONS):
        own = [number for number in found if number % PARTITIONS == partition]
        assert own == [number for number in range(partition, 400, PARTITIONS) if number != 77]
    assert read(bootstrap_servers, dead, 1) == [b"77"]
