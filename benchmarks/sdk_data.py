"""The broker and the topics that `benchmarks/sdk.py` measures with."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from fastavro import parse_schema, schemaless_writer
from sdk_contenders import AVRO_SCHEMA

JSON_TOPIC = "bench-json"
AVRO_TOPIC = "bench-avro"
PARTITIONS = 8


@contextlib.contextmanager
def broker() -> Iterator[str]:
    """The embedded broker as a process of its own; gives its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "broker_embedded", "--log-level", "error"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready bootstrap="):
            raise SystemExit(f"the broker did not start: {line!r}")
        yield line.strip().removeprefix("ready bootstrap=")
    finally:
        process.terminate()
        process.wait(20)


def create_topic(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        created.result(10)


def fill(bootstrap: str, records: int) -> int:
    """Payments as JSON and as Avro, one topic each. Returns the size of a JSON value in bytes."""
    payments = [
        {
            "id": 1_000_000 + number,
            "user": f"user-{number * 7919 % 100_000:06}",
            "amount": number * 37 % 10_000 / 100 + 100,
            "currency": "EUR",
            "status": ("paid", "open")[number % 2],
        }
        for number in range(1_000)
    ]
    schema = parse_schema(AVRO_SCHEMA)

    def to_avro(payment: dict[str, Any]) -> bytes:
        buffer = io.BytesIO()
        schemaless_writer(buffer, schema, payment)
        return buffer.getvalue()

    for topic, encode in ((JSON_TOPIC, lambda payment: json.dumps(payment).encode()), (AVRO_TOPIC, to_avro)):
        create_topic(bootstrap, topic, PARTITIONS)
        _send(bootstrap, topic, records, [encode(payment) for payment in payments])
    return len(json.dumps(payments[0]))


def _send(bootstrap: str, topic: str, records: int, values: list[bytes]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "queue.buffering.max.messages": 2_000_000,
            # Not compressed: a fetch is then some 9,000 records, not all there are, and the clock runs over many.
            "compression.type": "none",
        }
    )
    produce: Callable[..., None] = producer.produce
    for number in range(records):
        produce(topic, values[number % len(values)], b"%08d" % number, number % PARTITIONS)
    if producer.flush(120):
        raise SystemExit("the topic could not be filled")
