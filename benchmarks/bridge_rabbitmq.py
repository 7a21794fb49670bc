"""Messages of RabbitMQ into Kafka: the bridge beside pika alone, and RabbitMQ's shovel. A part of `bridge.py`."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bridge_servers import LISTENER, bridging, ends_at, total
from foreign_brokers import RabbitMq
from goals_of_bridge import FROM_RABBITMQ, PIKA, RABBITMQ_BY_CLOCK, SHOVEL
from results import Results


def from_rabbitmq(results: Results, bootstrap: str, folder: Path, messages: int, rounds: int) -> None:
    """Beside pika alone, which receives and acknowledges the same messages and keeps nothing."""
    rabbit = RabbitMq(folder, plugins=["rabbitmq_shovel"])
    try:
        alone: list[tuple[float, float]] = []
        through: list[tuple[float, float]] = []
        url = f"amqp://127.0.0.1:{rabbit.port}"
        for _ in range(rounds):
            for received in (alone, through):
                fill(rabbit, messages)
                if received is alone:
                    before_s, began_s = time.process_time(), time.perf_counter()
                    consume_alone(rabbit, messages)
                    cpu_s, done_s = time.process_time() - before_s, time.perf_counter()
                    received.append((messages / cpu_s, messages / (done_s - began_s)))
                    continue
                there = total(bootstrap)
                options = ("--connect", url, "--queue", "bench", "--dead-letter-topic", "dead")
                with bridging(bootstrap, "amqp", *options) as bridge:
                    before_s, began_s = bridge.cpu_s(), time.perf_counter()
                    done_s = ends_at(bootstrap, there + messages)
                    received.append((messages / (bridge.cpu_s() - before_s), messages / (done_s - began_s)))
        write_rabbitmq(results, through, alone)
        write_shovel(results, [by_shovel(rabbit, messages)])
    finally:
        rabbit.close()


def fill(rabbit: RabbitMq, messages: int) -> None:
    import pika

    channel = rabbit.channel()
    channel.queue_declare("bench")
    for _ in range(messages):
        channel.basic_publish("", "bench", b"x" * 100, pika.BasicProperties())
    channel.connection.close()


def by_shovel(rabbit: RabbitMq, messages: int) -> float:
    """Return the messages per second that RabbitMQ's own shovel moves to another of its queues, with confirms."""
    fill(rabbit, messages)
    channel = rabbit.channel()
    channel.queue_declare("there")
    url = f"amqp://127.0.0.1:{rabbit.port}"
    settings = {"src-protocol": "amqp091", "src-uri": url, "src-queue": "bench", "src-prefetch-count": 1_000}
    settings |= {"dest-protocol": "amqp091", "dest-uri": url, "dest-queue": "there", "ack-mode": "on-confirm"}
    rabbit.control("set_parameter", "shovel", "bench", json.dumps(settings))

    def arrived() -> int:
        count: int = channel.queue_declare("there", passive=True).method.message_count
        return count

    try:
        before, began_s = arrived(), time.perf_counter()  # the command ends some time after the shovel has begun
        while arrived() < messages:
            time.sleep(0.02)
        return (messages - before) / (time.perf_counter() - began_s)
    finally:
        rabbit.control("clear_parameter", "shovel", "bench")
        channel.connection.close()


def write_rabbitmq(
    results: Results, through: Sequence[tuple[float, float]], alone: Sequence[tuple[float, float]]
) -> None:
    """Each is (messages per CPU second, messages per second) of a round."""
    for who, rounds in ((LISTENER, through), (PIKA, alone)):
        results.add(FROM_RABBITMQ, who, [by_cpu for by_cpu, _ in rounds], "messages/s")
        results.add(RABBITMQ_BY_CLOCK, who, [by_clock for _, by_clock in rounds], "messages/s")


def write_shovel(results: Results, rates: list[float]) -> None:
    results.add(RABBITMQ_BY_CLOCK, SHOVEL, rates, "messages/s")


def consume_alone(rabbit: RabbitMq, messages: int) -> None:
    import pika

    left = messages

    def opened(connection: Any) -> None:
        connection.channel(on_open_callback=begun)

    def begun(channel: Any) -> None:
        channel.basic_qos(prefetch_count=1_000)
        channel.basic_consume("bench", delivered)

    def delivered(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal left
        left -= 1
        if not left % 100 or not left:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if not left:
            channel.connection.close()

    connection = pika.SelectConnection(
        pika.ConnectionParameters("127.0.0.1", rabbit.port),
        on_open_callback=opened,
        on_close_callback=lambda made, _: made.ioloop.stop(),
    )
    connection.ioloop.start()
    connection.ioloop.close()
