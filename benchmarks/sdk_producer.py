"""What Ottla's producers cost beside the clients they stand on, in one run, against one broker.

    python benchmarks/sdk_producer.py [--records 300000] [--rounds 5] [--broker embedded|HOST:PORT]

Each record has 100 bytes, a key and two headers; every client is idempotent, waits for all replicas, and hears of every
delivery. Raw and Ottla take turns, so that the machine's moods hit both; a ratio is that of the medians.

| row | against | goal |
|---|---|---|
| `send` (size check, a tracked `Delivery` each) | `confluent_kafka.Producer.produce` with a callback | 0.7 |
| `send_many` | the same | 1.0 |
| asyncio `send` | `AIOKafkaProducer.send`, its future gathered | 1.0 |
| asyncio `send_many` | the same | 1.5 |
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from results import Results

VALUE = b"x" * 100
PARTITIONS = 4
SETTINGS: dict[str, Any] = {
    "compression.type": "none",
    "linger.ms": 5,
    "buffer.memory": 1 << 30,
    "queue.buffering.max.messages": 1_000_000,
}
GOALS = {"send": 0.7, "send_many": 1.0, "asyncio send": 1.0, "asyncio send_many": 1.5}


def headers() -> list[tuple[str, bytes | None]]:
    return [("trace", b"0123456789abcdef"), ("origin", b"bench")]


def raw(servers: str, topic: str, records: int) -> float:
    from confluent_kafka import Producer

    from ottla.config import producer_settings

    client = Producer({**producer_settings(servers, settings=SETTINGS).to_confluent(), "log_level": 0})
    delivered = 0

    def on_delivery(error: object, message: object) -> None:
        nonlocal delivered
        if error is None:
            delivered += 1

    client.produce(topic, VALUE, b"first", on_delivery=on_delivery)
    client.flush()
    started = time.perf_counter()
    produce, poll = client.produce, client.poll
    for number in range(records):
        produce(topic, VALUE, b"%d" % number, headers=headers(), on_delivery=on_delivery)
        poll(0)
    client.flush()
    rate = records / (time.perf_counter() - started)
    assert delivered == records + 1
    return rate


def send(servers: str, topic: str, records: int) -> float:
    from ottla import Producer

    with Producer(servers, settings=SETTINGS) as producer:
        producer.send(topic, VALUE, key=b"first").result()
        started = time.perf_counter()
        send_one = producer.send
        for number in range(records):
            send_one(topic, VALUE, key=b"%d" % number, headers=headers())
        producer.flush()
        return records / (time.perf_counter() - started)


def send_many(servers: str, topic: str, records: int) -> float:
    from ottla import Producer

    with Producer(servers, settings=SETTINGS) as producer:
        producer.send(topic, VALUE, key=b"first").result()
        started = time.perf_counter()
        bulk = producer.send_many(topic, ((VALUE, b"%d" % number, headers()) for number in range(records)))
        assert bulk.result() == records
        return records / (time.perf_counter() - started)


async def raw_asyncio(servers: str, topic: str, records: int) -> float:
    from aiokafka import AIOKafkaProducer

    from ottla.config import producer_settings

    client = AIOKafkaProducer(**producer_settings(servers, settings=SETTINGS).to_aiokafka())
    await client.start()
    try:
        await client.send_and_wait(topic, VALUE, key=b"first")
        started = time.perf_counter()
        futures = [await client.send(topic, VALUE, key=b"%d" % number, headers=headers()) for number in range(records)]
        await asyncio.gather(*futures)
        return records / (time.perf_counter() - started)
    finally:
        await client.stop()


async def asyncio_send(servers: str, topic: str, records: int) -> float:
    from ottla import AsyncProducer

    async with AsyncProducer(servers, settings=SETTINGS) as producer:
        await producer.send(topic, VALUE, key=b"first")
        started = time.perf_counter()
        for number in range(records):
            producer.send(topic, VALUE, key=b"%d" % number, headers=headers())
            if not number % 500:
                await asyncio.sleep(0)
        await producer.flush()
        return records / (time.perf_counter() - started)


async def asyncio_send_many(servers: str, topic: str, records: int) -> float:
    from ottla import AsyncProducer

    async with AsyncProducer(servers, settings=SETTINGS) as producer:
        await producer.send(topic, VALUE, key=b"first")
        started = time.perf_counter()
        bulk = await producer.send_many(topic, ((VALUE, b"%d" % number, headers()) for number in range(records)))
        assert await bulk == records
        return records / (time.perf_counter() - started)


def raw_kafka_python(servers: str, topic: str, records: int) -> float:
    from kafka import KafkaProducer

    client = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True, linger_ms=5)
    try:
        client.send(topic, VALUE, key=b"first").get(30)
        started = time.perf_counter()
        futures = [client.send(topic, VALUE, key=b"%d" % number, headers=headers()) for number in range(records)]
        for future in futures:
            future.get(60)
        return records / (time.perf_counter() - started)
    finally:
        client.close()


@contextlib.contextmanager
def broker(choice: str) -> Iterator[str]:
    if choice == "embedded":
        command = [sys.executable, "-m", "broker_embedded"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split("bootstrap=")[1].strip()
        finally:
            process.terminate()
            process.wait(10)
    else:
        yield choice


def topic_of(run: str) -> str:
    return f"bench-{run.replace(' ', '-')}"


def main() -> None:
    from ottla.testing.topics import create_topic

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--broker", default="embedded")
    parser.add_argument("--results", type=Path, help="the folder for producer.jsonl")
    arguments = parser.parse_args()
    results = Results("producer", arguments.results)
    few = arguments.records // 4
    runs: dict[str, tuple[Callable[[str, str], float], str | None]] = {
        "raw confluent-kafka": (lambda servers, topic: raw(servers, topic, arguments.records), None),
        "send": (lambda servers, topic: send(servers, topic, arguments.records), "raw confluent-kafka"),
        "send_many": (lambda servers, topic: send_many(servers, topic, arguments.records), "raw confluent-kafka"),
        "raw aiokafka": (lambda servers, topic: asyncio.run(raw_asyncio(servers, topic, few)), None),
        "asyncio send": (lambda servers, topic: asyncio.run(asyncio_send(servers, topic, few)), "raw aiokafka"),
        "asyncio send_many": (
            lambda servers, topic: asyncio.run(asyncio_send_many(servers, topic, few)),
            "raw aiokafka",
        ),
    }
    if importlib.util.find_spec("kafka") is not None:
        runs["raw kafka-python"] = (lambda servers, topic: raw_kafka_python(servers, topic, few // 3), None)
    rates: dict[str, list[float]] = {name: [] for name in runs}
    with broker(arguments.broker) as servers:
        for name in runs:
            create_topic(servers, topic_of(name), partitions=PARTITIONS, exist_ok=True)
        for round_number in range(arguments.rounds):
            for name, (run, _) in runs.items() if round_number % 2 == 0 else reversed(runs.items()):
                rates[name].append(run(servers, topic_of(name)))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    print(f"{'':22}{'records/s':>12}{'ratio':>8}{'goal':>8}")
    for name, (_, base) in runs.items():
        ratio = f"{medians[name] / medians[base]:.2f}" if base else ""
        goal = f"{GOALS[name]}" if name in GOALS else ""
        print(f"{name:22}{medians[name]:>12,.0f}{ratio:>8}{goal:>8}")
    for name, found in rates.items():
        results.add("produce", name, [rate / 1000 for rate in found], "k records/s", goal=GOALS.get(name))
    results.close()


if __name__ == "__main__":
    main()
