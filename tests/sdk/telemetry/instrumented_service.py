"""A service in a process whose Kafka clients an instrumentor of OpenTelemetry patched before anything imported Ottla.

    python instrumented_service.py threads|asyncio

It sends a record inside a span, and two whose `traceparent` and key are not UTF-8, in both ways of sending. It handles
them and prints what came, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterable
from typing import Any

from opentelemetry import trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
ConfluentKafkaInstrumentor().instrument()
AIOKafkaInstrumentor().instrument()

from ottla import App, AsyncProducer, Consumer, Context, Producer, Record  # noqa: E402
from ottla.testing import running_kafka  # noqa: E402

TOPIC = "orders"
OWN = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]
SENT: list[tuple[bytes, bytes, list[tuple[str, bytes | None]]]] = [
    (b"in a span", b"1", []),
    (b"own context", b"2", [*OWN, ("shop", b"7")]),
    (b"bad context", b"3", [("traceparent", b"\xff\xfe")]),
    (b"bad key", b"\xff\xfe", []),
]


def seen(records: Iterable[Record[Any]]) -> dict[str, list[tuple[str, str]]]:
    return {
        record.value.decode(): [(name, (value or b"").decode("latin-1")) for name, value in record.headers]
        for record in records
    }


def with_threads(servers: str) -> list[Record[Any]]:
    with trace.get_tracer("shop").start_as_current_span("checkout"), Producer(servers) as producer:
        for value, key, headers in SENT:
            producer.send(TOPIC, value, key=key, headers=headers)
        producer.send_many(TOPIC, [(b"many: " + value, key, headers) for value, key, headers in SENT])
        print(json.dumps(current()))
    handled: list[Record[Any]] = []
    app = App("billing", bootstrap_servers=servers)

    @app.handler(TOPIC)
    def on_order(record: Record[bytes], context: Context) -> None:
        handled.append(record)
        if len(handled) == 2 * len(SENT):
            app.stop()

    app.run(handle_signals=False)
    with Consumer(TOPIC, group="reports", bootstrap_servers=servers) as consumer:
        pulled = [record for _, record in zip(range(len(handled)), consumer, strict=False)]
    assert seen(pulled) == seen(handled)
    return handled


async def with_asyncio(servers: str) -> list[Record[Any]]:
    async with AsyncProducer(servers) as producer:
        with trace.get_tracer("shop").start_as_current_span("checkout"):
            for value, key, headers in SENT:
                producer.send(TOPIC, value, key=key, headers=headers)
            await producer.send_many(TOPIC, [(b"many: " + value, key, headers) for value, key, headers in SENT])
            print(json.dumps(current()))
    handled: list[Record[Any]] = []
    app = App("billing", bootstrap_servers=servers)

    @app.handler(TOPIC)
    async def on_order(record: Record[bytes]) -> None:
        handled.append(record)
        if len(handled) == 2 * len(SENT):
            app.stop()

    await app.serve()
    return handled


def current() -> str:
    """The trace that is going on, as a header names it."""
    return format(trace.get_current_span().get_span_context().trace_id, "032x")


if __name__ == "__main__":
    with running_kafka("embedded") as kafka:
        kafka.create_topic(TOPIC)
        servers = kafka.bootstrap_servers
        records = with_threads(servers) if sys.argv[1] == "threads" else asyncio.run(with_asyncio(servers))
        assert kafka.produce(TOPIC, [b"kit"]) == 1
        assert len(kafka.consume_all(TOPIC)) == len(records) + 1
    print(json.dumps(seen(records)))
