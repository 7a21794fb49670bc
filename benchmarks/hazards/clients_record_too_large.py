"""A topic that takes 10 kB and one that takes 4 MB: where does a record of 20 kB, and of 2 MB, get its answer?"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from _kafka import found, kafka, new_topic
from confluent_kafka import KafkaException, Producer


def with_confluent(bootstrap: str, topic: str, size: int) -> str:
    producer = Producer({"bootstrap.servers": bootstrap})
    answers: list[Any] = []
    begun = time.perf_counter()
    try:
        producer.produce(topic, b"x" * size, on_delivery=lambda error, _message: answers.append(error))
    except (KafkaException, BufferError) as error:
        return f"produce raised {error.args[0].name()}"
    producer.flush(20)
    name = "delivered" if answers[0] is None else f"report {answers[0].name()}"
    return f"{name} after {(time.perf_counter() - begun) * 1_000:.0f} ms"


async def with_aiokafka(bootstrap: str, topic: str, size: int) -> str:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    begun = time.perf_counter()
    try:
        future = await producer.send(topic, b"x" * size)
    except Exception as error:
        await producer.stop()
        return f"send raised {type(error).__name__}"
    try:
        await asyncio.wait_for(future, 20)
        answer = "delivered"
    except Exception as error:
        answer = f"the future raised {type(error).__name__}"
    await producer.stop()
    return f"{answer} after {(time.perf_counter() - begun) * 1_000:.0f} ms"


def with_kafka_python(bootstrap: str, topic: str, size: int) -> str:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap)
    begun = time.perf_counter()
    try:
        producer.send(topic, b"x" * size).get(20)
        answer = "delivered"
    except Exception as error:
        answer = f"raised {type(error).__name__}"
    producer.close(5)
    return f"{answer} after {(time.perf_counter() - begun) * 1_000:.0f} ms"


if __name__ == "__main__":
    with kafka() as bootstrap:
        small = new_topic(bootstrap, max_message_bytes="10000")
        large = new_topic(bootstrap, max_message_bytes="4000000")
        parts = []
        for label, topic, size in (
            ("20 kB, topic takes 10 kB", small, 20_000),
            ("2 MB, topic takes 4 MB", large, 2_000_000),
        ):
            parts.append(f"{label}: confluent-kafka {with_confluent(bootstrap, topic, size)}")
            parts.append(f"aiokafka {asyncio.run(with_aiokafka(bootstrap, topic, size))}")
            parts.append(f"kafka-python {with_kafka_python(bootstrap, topic, size)}")
        found("confluent-kafka", "aiokafka", "kafka-python", text="; ".join(parts))
