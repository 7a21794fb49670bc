"""One consumer in a process of its own, for `benchmarks/sdk.py`: handles `count` records, prints what it took as JSON.

    python benchmarks/sdk_contenders.py NAME BOOTSTRAP TOPIC COUNT

Every contender counts in its handler and does nothing else. The clock runs from a tenth of the records to the last one,
so joining the group and the first fetch are not in it. `CONTENDERS` is the table of names; each function takes
(bootstrap, topic, meter) and never has to return: the meter ends the process. FastStream has no rows for plain bytes:
its default decoder makes JSON of whatever is JSON.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

AVRO_SCHEMA = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "currency", "type": "string"},
        {"name": "status", "type": "string"},
    ],
}

GROUPS: dict[str, tuple[str, list[str]]] = {
    "per record, bytes": (
        "ottla bytes",
        ["confluent-kafka loop bytes", "quixstreams bytes", "quixstreams json", "kafka-python loop bytes"],
    ),
    "per record, JSON": (
        "ottla json",
        [
            "confluent-kafka loop json",
            "quixstreams json",
            "faststream[confluent] json",
            "faststream[confluent] json NACK_ON_ERROR",
        ],
    ),
    "per record, Avro": ("ottla avro", ["confluent-kafka loop avro", "quixstreams avro"]),
    "batch handler, bytes": ("ottla batch bytes", ["confluent-kafka loop bytes"]),
    "batch handler, JSON": ("ottla batch json", ["confluent-kafka loop json", "faststream[confluent] batch json"]),
    "asyncio, bytes": ("ottla asyncio bytes", ["aiokafka getmany bytes"]),
    "asyncio, JSON": (
        "ottla asyncio json",
        ["aiokafka getmany json", "faststream[kafka] json", "faststream[kafka] json NACK_ON_ERROR"],
    ),
    "asyncio batch handler, JSON": (
        "ottla asyncio batch json",
        ["aiokafka getmany json", "faststream[kafka] batch json"],
    ),
}
"""Group → ours, and what it is divided by."""

FAST_CLIENT = {
    # What Ottla sets too: librdkafka otherwise stops fetching for a second whenever 100,000 messages wait.
    "fetch.queue.backoff.ms": 5,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": True,
}


class Meter:
    """Counts, and ends the process at the last record."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.warm = count // 10
        self.seen = 0
        self.started_s = self.started_cpu_s = 0.0
        self._next = self.warm

    def one(self, _record: object = None) -> None:
        self.seen += 1
        if self.seen >= self._next:
            self._mark()

    def many(self, count: int) -> None:
        self.seen += count
        if self.seen >= self._next:
            self._mark()

    def _mark(self) -> None:
        if not self.started_s:
            self._next = self.count
            self.warm = self.seen
            self.started_s, self.started_cpu_s = time.perf_counter(), time.process_time()
            return
        figures = {
            "records": self.seen - self.warm,
            "seconds": time.perf_counter() - self.started_s,
            "cpu_s": time.process_time() - self.started_cpu_s,
        }
        print(json.dumps(figures), flush=True)
        os._exit(0)


def group() -> str:
    return f"bench-{uuid.uuid4().hex[:12]}"


# --- the clients alone


def raw_confluent(decode: Callable[[bytes], Any] | None) -> Callable[[str, str, Meter], None]:
    """`poll(t)`, then `consume(499, 0)`: the fastest loop without a latency trap, reading everything of a message."""

    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group(), **FAST_CLIENT})
        consumer.subscribe([topic])
        while True:
            first = consumer.poll(0.1)
            if first is None:
                continue
            messages = [first, *consumer.consume(499, 0)]
            for message in messages:
                if message.error() is not None:
                    continue
                message.topic(), message.partition(), message.offset(), message.timestamp()
                message.key(), message.headers()
                value = message.value()
                if decode is not None:
                    decode(value)
            meter.many(len(messages))

    return run


def raw_aiokafka(decode: Callable[[bytes], Any] | None) -> Callable[[str, str, Meter], None]:
    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        asyncio.run(consume(bootstrap, topic, meter))

    async def consume(bootstrap: str, topic: str, meter: Meter) -> None:
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group(), auto_offset_reset="earliest", enable_auto_commit=True
        )
        await consumer.start()
        while True:
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                for message in messages:
                    _ = message.topic, message.partition, message.offset, message.timestamp, message.key
                    _ = message.headers
                    if decode is not None:
                        decode(message.value)
                meter.many(len(messages))

    return run


def raw_kafka_python(decode: Callable[[bytes], Any] | None) -> Callable[[str, str, Meter], None]:
    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group(), auto_offset_reset="earliest", enable_auto_commit=True
        )
        while True:
            for messages in consumer.poll(timeout_ms=100, max_records=500).values():
                for message in messages:
                    _ = message.topic, message.partition, message.offset, message.timestamp, message.key
                    _ = message.headers
                    if decode is not None:
                        decode(message.value)
                meter.many(len(messages))

    return run


def decode_json(value: bytes) -> Any:
    return _json_loads(value)


try:
    from orjson import loads as _json_loads
except ImportError:
    from json import loads as _json_loads


def decode_avro() -> Callable[[bytes], Any]:
    from fastavro import parse_schema, schemaless_reader

    schema = parse_schema(AVRO_SCHEMA)
    return lambda value: schemaless_reader(io.BytesIO(value), schema, None)


# --- Ottla


def ottla_app(bootstrap: str, topic: str, meter: Meter, *, serde: str, batch: bool, asynchronous: bool) -> Any:
    from ottla import App, Avro, Bytes, Json

    app = App(group(), bootstrap_servers=bootstrap)
    value = {"bytes": Bytes, "json": Json, "avro": lambda: Avro(AVRO_SCHEMA)}[serde]()
    one, many = meter.one, meter.many

    if batch and asynchronous:

        @app.handler(topic, value=value, batch=True)
        async def handle_batch_async(records: list[Any]) -> None:
            many(len(records))

    elif batch:

        @app.handler(topic, value=value, batch=True)
        def handle_batch(records: list[Any]) -> None:
            many(len(records))

    elif asynchronous:

        @app.handler(topic, value=value)
        async def handle_async(record: Any) -> None:
            one()

    else:

        @app.handler(topic, value=value)
        def handle(record: Any) -> None:
            one()

    return app


def ottla_threads(serde: str, *, batch: bool = False) -> Callable[[str, str, Meter], None]:
    return lambda bootstrap, topic, meter: ottla_app(
        bootstrap, topic, meter, serde=serde, batch=batch, asynchronous=False
    ).run()


def ottla_asyncio(serde: str, *, batch: bool = False) -> Callable[[str, str, Meter], None]:
    return lambda bootstrap, topic, meter: asyncio.run(
        ottla_app(bootstrap, topic, meter, serde=serde, batch=batch, asynchronous=True).serve()
    )


# --- Quix Streams


def quix(serde: str) -> Callable[[str, str, Meter], None]:
    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from quixstreams import Application
        from quixstreams.models.serializers.avro import AvroDeserializer

        app = Application(
            broker_address=bootstrap, consumer_group=group(), auto_offset_reset="earliest", loglevel="ERROR"
        )
        decoder = AvroDeserializer(AVRO_SCHEMA) if serde == "avro" else serde
        stream = app.dataframe(app.topic(topic, value_deserializer=decoder))
        stream.update(meter.one)
        app.run()

    return run


# --- FastStream


def faststream(
    client: str, kind: Any, *, policy: str | None = None, batch: bool = False
) -> Callable[[str, str, Meter], None]:
    """With `logger=None`: by default it logs lines per record, which would be most of what is measured."""

    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from faststream import AckPolicy, FastStream

        if client == "confluent":
            from faststream.confluent import KafkaBroker
        else:
            from faststream.kafka import KafkaBroker
        broker = KafkaBroker(bootstrap, logger=None)
        options: dict[str, Any] = {"group_id": group(), "auto_offset_reset": "earliest"}
        if policy is not None:
            options["ack_policy"] = AckPolicy[policy]
        if batch:
            options |= {"batch": True, "max_records": 500}

            async def handle(message: list[kind]) -> None:  # type: ignore[valid-type]
                meter.many(len(message))

        else:

            async def handle(message: kind) -> None:  # type: ignore[valid-type,no-redef]
                meter.one()

        handle.__annotations__ = {"message": list[kind] if batch else kind, "return": None}
        broker.subscriber(topic, **options)(handle)
        asyncio.run(FastStream(broker, logger=None).run())

    return run


CONTENDERS: dict[str, Callable[[str, str, Meter], None]] = {
    "ottla bytes": ottla_threads("bytes"),
    "ottla json": ottla_threads("json"),
    "ottla avro": ottla_threads("avro"),
    "ottla batch bytes": ottla_threads("bytes", batch=True),
    "ottla batch json": ottla_threads("json", batch=True),
    "ottla asyncio bytes": ottla_asyncio("bytes"),
    "ottla asyncio json": ottla_asyncio("json"),
    "ottla asyncio batch json": ottla_asyncio("json", batch=True),
    "confluent-kafka loop bytes": raw_confluent(None),
    "confluent-kafka loop json": raw_confluent(decode_json),
    "confluent-kafka loop avro": lambda *given: raw_confluent(decode_avro())(*given),
    "kafka-python loop bytes": raw_kafka_python(None),
    "aiokafka getmany bytes": raw_aiokafka(None),
    "aiokafka getmany json": raw_aiokafka(decode_json),
    "quixstreams bytes": quix("bytes"),
    "quixstreams json": quix("json"),
    "quixstreams avro": quix("avro"),
    "faststream[confluent] json": faststream("confluent", dict),
    "faststream[confluent] json NACK_ON_ERROR": faststream("confluent", dict, policy="NACK_ON_ERROR"),
    "faststream[confluent] batch json": faststream("confluent", dict, batch=True),
    "faststream[kafka] json": faststream("kafka", dict),
    "faststream[kafka] json NACK_ON_ERROR": faststream("kafka", dict, policy="NACK_ON_ERROR"),
    "faststream[kafka] batch json": faststream("kafka", dict, batch=True),
}


def main() -> None:
    name, bootstrap, topic, count = sys.argv[1:]
    CONTENDERS[name](bootstrap, topic, Meter(int(count)))


if __name__ == "__main__":
    main()
