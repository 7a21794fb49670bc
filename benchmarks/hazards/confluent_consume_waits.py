"""A trickle of 20 records per second: how long until `consume(500, 1.0)` hands a record out, and until `poll` does?"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from _kafka import found, kafka, new_group, new_topic
from confluent_kafka import Consumer, Producer


def measure(bootstrap: str, take: Callable[[Any], list[Any]]) -> float:
    topic = new_topic(bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": new_group(), "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    over = threading.Event()

    def trickle() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        while not over.wait(0.05):
            producer.produce(topic, b"%.6f" % time.time())
            producer.poll(0)

    sender = threading.Thread(target=trickle)
    sender.start()
    waits: list[float] = []
    deadline = time.time() + 8
    while time.time() < deadline:
        now_messages = take(consumer)
        waits += [time.time() - float(message.value()) for message in now_messages if message.error() is None]
    over.set()
    sender.join()
    consumer.close()
    return statistics.median(waits[20:])


if __name__ == "__main__":
    with kafka() as bootstrap:
        consume = measure(bootstrap, lambda consumer: consumer.consume(500, 1.0))

        def poll_first(consumer: Any) -> list[Any]:
            first = consumer.poll(1.0)
            return [] if first is None else [first, *consumer.consume(499, 0)]

        poll = measure(bootstrap, poll_first)
        found(
            "confluent-kafka",
            text=f"median wait of a record: consume(500, 1.0) {consume * 1_000:.0f} ms, poll then consume(499, 0) "
            f"{poll * 1_000:.1f} ms",
        )
