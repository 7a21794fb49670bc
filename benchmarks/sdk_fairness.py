"""One slow consumer, hot partitions and quiet ones: how long does a record of a quiet partition wait?

`measure` runs one contender in a process of its own. The handler takes 0.2 ms per record; each hot partition has more
records waiting than can be handled in the time; 20 records per second come to the quiet partition. As a program
(`python sdk_fairness.py NAME BOOTSTRAP TOPIC SECONDS`) this file is the consumer.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peer_pythons import python_of

HANDLER_S = 0.0002
TRICKLE_S = 0.05
PARTITIONS = 16
QUIET = PARTITIONS - 1
GROUP = f"fair-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True)
class Fairness:
    """What one run showed. `p50_s` counts a record that was never handled with its age at the end."""

    sent: int
    handled: int
    p50_s: float
    worst_s: float
    rate: float


class Clerk:
    """Handles slowly, and notes when the quiet records came."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until_s = 0.0
        self._seen = 0
        self._waits: list[float] = []

    def handle(self, value: bytes) -> None:
        now_s = time.time()
        if not self._until_s:
            self._until_s = now_s + self._seconds
            print("started", flush=True)
        if value.startswith(b"quiet "):
            self._waits.append(now_s - float(value[6:]))
        self._seen += 1
        if now_s >= self._until_s:
            print(json.dumps({"seen": self._seen, "waits": self._waits}), flush=True)
            os._exit(0)
        time.sleep(HANDLER_S)


def ottla(bootstrap: str, topic: str, clerk: Clerk) -> None:
    from ottla import App

    app = App(GROUP, bootstrap_servers=bootstrap)

    @app.handler(topic)
    def handle(value: bytes) -> None:
        clerk.handle(value)

    app.run()


def ottla_asyncio(bootstrap: str, topic: str, clerk: Clerk) -> None:
    from ottla import App

    app = App(GROUP, bootstrap_servers=bootstrap)

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        clerk.handle(value)

    asyncio.run(app.serve())


def raw_confluent(bootstrap: str, topic: str, clerk: Clerk) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            clerk.handle(message.value())


def raw_aiokafka(bootstrap: str, topic: str, clerk: Clerk) -> None:
    async def consume() -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=GROUP, auto_offset_reset="earliest")
        await consumer.start()
        async for message in consumer:
            clerk.handle(message.value)

    asyncio.run(consume())


def quix(bootstrap: str, topic: str, clerk: Clerk) -> None:
    from quixstreams import Application

    app = Application(broker_address=bootstrap, consumer_group=GROUP, auto_offset_reset="earliest", loglevel="ERROR")
    app.dataframe(app.topic(topic, value_deserializer="bytes")).update(clerk.handle)
    app.run()


def faststream(client: str) -> Callable[[str, str, Clerk], None]:
    def run(bootstrap: str, topic: str, clerk: Clerk) -> None:
        from faststream import FastStream

        if client == "confluent":
            from faststream.confluent import KafkaBroker
        else:
            from faststream.kafka import KafkaBroker
        broker = KafkaBroker(bootstrap, logger=None)

        async def handle(message: bytes) -> None:
            clerk.handle(message)

        handle.__annotations__ = {"message": bytes, "return": None}
        broker.subscriber(topic, group_id=GROUP, auto_offset_reset="earliest")(handle)
        asyncio.run(FastStream(broker, logger=None).run())

    return run


CONTENDERS: dict[str, Callable[[str, str, Clerk], None]] = {
    "ottla": ottla,
    "ottla asyncio": ottla_asyncio,
    "confluent-kafka loop": raw_confluent,
    "aiokafka async for": raw_aiokafka,
    "quixstreams": quix,
    "faststream[confluent]": faststream("confluent"),
    "faststream[kafka]": faststream("kafka"),
}


def fill(bootstrap: str, topic: str, *, hot: int, records: int) -> None:
    """`records` in each of the first `hot` partitions; the others are empty."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2_000_000})
    for partition in range(hot):
        for _ in range(records):
            producer.produce(topic, b"hot " + b"x" * 96, partition=partition)
        producer.flush(60)


def measure(name: str, bootstrap: str, topic: str, seconds: float) -> Fairness:
    """Run a contender on `topic` for `seconds` after its first record, with quiet records coming meanwhile."""
    from confluent_kafka import Producer

    child = subprocess.Popen(
        [python_of(name), __file__, name, bootstrap, topic, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    sent: list[float] = []
    over = threading.Event()

    def trickle() -> None:
        while not over.wait(TRICKLE_S):
            sent.append(time.time())
            producer.produce(topic, b"quiet %.6f" % sent[-1], partition=QUIET)
            producer.poll(0)

    sender = threading.Thread(target=trickle)
    watchdog = threading.Timer(seconds + 60, child.kill)
    watchdog.start()
    last = ""
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if line == "started\n":
                sender.start()
            last = line
    finally:
        ended_s = time.time()
        over.set()
        watchdog.cancel()
        child.kill()
        child.wait(10)
        if sender.is_alive():
            sender.join()
    producer.flush(10)
    try:
        found = json.loads(last)
    except ValueError:
        raise RuntimeError(f"{name} did not handle records for {seconds:g} s") from None
    waits: list[float] = found["waits"]
    # Records of one partition come in order, so the ones that did not come are the last ones.
    ages = [*waits, *(ended_s - when for when in sent[len(waits) :])]
    return Fairness(
        sent=len(sent),
        handled=len(waits),
        p50_s=statistics.median(ages),
        worst_s=max(ages),
        rate=found["seen"] / seconds,
    )


def main() -> None:
    name, bootstrap, topic, seconds = sys.argv[1:]
    run: Any = CONTENDERS[name]
    run(bootstrap, topic, Clerk(float(seconds)))


if __name__ == "__main__":
    main()
