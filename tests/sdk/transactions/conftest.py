"""What the tests of transactions on the broker share in both shells."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from ottla.testing import Kafka


@pytest.fixture
def committed(kafka: Kafka) -> Callable[[str], list[bytes | None]]:
    """A function that gives all values of a topic's partition 0 that a read_committed consumer sees now."""

    def read(topic: str) -> list[bytes | None]:
        reader = Consumer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "group.id": f"{topic}-reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        values: list[bytes | None] = []
        deadline = time.monotonic() + 30
        try:
            while True:
                assert time.monotonic() < deadline, "the partition does not come to an end"
                message = reader.poll(0.1)
                if message is None:
                    continue
                problem = message.error()
                if problem is None:
                    values.append(message.value())
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return values
        finally:
            reader.close()

    return read


@pytest.fixture
def offset_of(kafka: Kafka) -> Callable[[str, str], int]:
    """A function that gives the committed offset of a group in a topic's partition 0; -1001 if there is none."""

    def read(group: str, topic: str) -> int:
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
        try:
            (position,) = consumer.committed([TopicPartition(topic, 0)], 30)
            return int(position.offset)
        finally:
            consumer.close()

    return read
