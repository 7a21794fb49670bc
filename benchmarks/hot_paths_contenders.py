"""One contender in a process of its own, for `benchmarks/hot_paths.py`: handles or sends `count` records, and prints
what it took as JSON.

    python benchmarks/hot_paths_contenders.py NAME BOOTSTRAP COUNT

The clock runs from a fifth of the records on, so joining a group and the first fetch are not in it.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

HEADERS: Final = (("trace", b"0123456789abcdef"), ("origin", b"bench"))
PARTITIONS: Final = 4
VALUE: Final = b"x" * 100
OPTIONS: Final[dict[str, dict[str, Any]]] = {
    "partition": {"partition": 1},
    "expires_after": {"expires_after": 60.0},
    "message_id": {"message_id": "order-1234"},
    "two headers, message_id": {"headers": list(HEADERS), "message_id": "order-1234"},
}
CLIENT: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "fetch.queue.backoff.ms": 5,  # librdkafka otherwise stops fetching for a second whenever 100,000 messages wait
}
PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
}
OURS: Final[dict[str, Any]] = {
    "linger.ms": 5,
    "buffer.memory": 1 << 30,
    "queue.buffering.max.messages": 1_000_000,
    "compression.type": "none",
}
_COMMIT_S: Final = 1.0


@dataclass(kw_only=True)
class Order:
    """The JSON value of each record."""

    id: int
    user: str
    amount: float
    status: str
    note: str


class Meter:
    """Counts, and ends the process at the last record."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.seen = 0
        self._next = count // 5
        self._begun: tuple[int, float, float, dict[str, float]] | None = None
        self.longest_pause_s = 0.0
        self._collecting_since = 0.0
        gc.callbacks.append(self._collects)

    def one(self, _record: object = None) -> None:
        self.seen += 1
        if self.seen >= self._next:
            self._mark()

    def many(self, count: int) -> None:
        self.seen += count
        if self.seen >= self._next:
            self._mark()

    def _collects(self, phase: str, _facts: object) -> None:
        if phase == "start":
            self._collecting_since = time.perf_counter()
        else:
            self.longest_pause_s = max(self.longest_pause_s, time.perf_counter() - self._collecting_since)

    def _mark(self) -> None:
        if self._begun is None:
            self._begun = self.seen, time.perf_counter(), time.process_time(), cpu_by_thread()
            self._next = self.count
            self.longest_pause_s = 0.0
            return
        seen, begun_s, begun_cpu_s, begun_threads = self._begun
        records = self.seen - seen
        threads = {name: 1e6 * (s - begun_threads.get(name, 0.0)) / records for name, s in cpu_by_thread().items()}
        figures = {
            "cpu_us": 1e6 * (time.process_time() - begun_cpu_s) / records,
            "wall_us": 1e6 * (time.perf_counter() - begun_s) / records,
            "longest_pause_ms": 1e3 * self.longest_pause_s,
            "threads": threads,
        }
        print(json.dumps(figures), flush=True)
        os._exit(0)


def cpu_by_thread() -> dict[str, float]:
    """Return the CPU seconds of each kind of thread: Python's by their names, the client's together."""
    python = {thread.native_id: thread.name for thread in threading.enumerate()}
    found: defaultdict[str, float] = defaultdict(float)
    for task in Path("/proc/self/task").iterdir():
        name = python.get(int(task.name), "client")
        kind = "main" if name == "MainThread" else name.rpartition("-")[2]
        if kind.isdecimal():
            kind = "worker"
        found[kind] += int((task / "schedstat").read_text().split()[0]) / 1e9
    return dict(found)


def group() -> str:
    return f"hot-{uuid.uuid4().hex[:12]}"


Run = Callable[[str, str, Meter], None]

# --- handlers


def handler(kind: str) -> Run:
    """An app whose handler counts."""

    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from ottla import App, Json

        app = App(group(), bootstrap_servers=bootstrap)
        one, many = meter.one, meter.many
        if kind == "bytes":

            @app.handler(topic)
            def handle(value: bytes) -> None:
                one()

        elif kind == "dataclass":

            @app.handler(topic, value=Json(Order))
            def handle_order(order: Order) -> None:
                one()

        else:

            @app.handler(topic, batch=True)
            def handle_batch(records: list[Any]) -> None:
                many(len(records))

        app.run()

    return run


def asyncio_handler(bootstrap: str, topic: str, meter: Meter) -> None:
    from ottla import App

    app = App(group(), bootstrap_servers=bootstrap)
    one = meter.one

    @app.handler(topic)
    async def handle(value: bytes) -> None:
        one()

    asyncio.run(app.serve())


def loop(*, decodes: bool = False, counts_each: bool = True) -> Run:
    """`consume(500)`, everything of a message read, and a commit each second.

    `counts_each`: a function is called with each message, as a handler is; otherwise once for each batch.
    """

    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        import msgspec
        from confluent_kafka import Consumer

        decode = msgspec.json.Decoder(Order).decode
        one, many = meter.one, meter.many
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group(), **CLIENT})
        consumer.subscribe([topic])
        commit_at = time.monotonic() + _COMMIT_S
        while True:
            messages = consumer.consume(500, 0.1)
            for message in messages:
                if message.error() is not None:
                    continue
                message.topic(), message.partition(), message.offset(), message.timestamp()
                message.key(), message.headers()
                value = message.value()
                if decodes:
                    value = decode(value)
                if counts_each:
                    one(value)
            if messages and time.monotonic() >= commit_at:
                consumer.commit(asynchronous=True)
                commit_at = time.monotonic() + _COMMIT_S
            if not counts_each:
                many(len(messages))

    return run


def getmany(bootstrap: str, topic: str, meter: Meter) -> None:
    """aiokafka's fastest loop, everything of a message read."""

    async def consume() -> None:
        from aiokafka import AIOKafkaConsumer

        one = meter.one
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group(), auto_offset_reset="earliest", enable_auto_commit=True
        )
        await consumer.start()
        while True:
            for messages in (await consumer.getmany(timeout_ms=100)).values():
                for message in messages:
                    _ = message.topic, message.partition, message.offset, message.timestamp, message.key
                    _ = message.headers
                    one(message.value)

    asyncio.run(consume())


def quix(bootstrap: str, topic: str, meter: Meter) -> None:
    from quixstreams import Application

    app = Application(broker_address=bootstrap, consumer_group=group(), auto_offset_reset="earliest", loglevel="ERROR")
    app.dataframe(app.topic(topic, value_deserializer="bytes")).update(meter.one)
    app.run()


# --- handlers that send


def sending(*, batch: bool) -> Run:
    """An app whose handler sends each record on, and returns the delivery."""

    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from ottla import App

        app = App(group(), bootstrap_servers=bootstrap)
        producer = app.producer(settings=OURS)
        one, many, send_many = meter.one, meter.many, producer.send_many
        if batch:

            @app.handler(topic, batch=True)
            def handle_batch(records: list[Any]) -> Any:
                many(len(records))
                return send_many("written", [(record.value, record.key) for record in records])

        else:

            @app.handler(topic)
            def handle(record: Any) -> Any:
                one()
                return producer.send("written", record.value, key=record.key)

        app.run()

    return run


def asyncio_sending(bootstrap: str, topic: str, meter: Meter) -> None:
    from ottla import App

    app = App(group(), bootstrap_servers=bootstrap)
    producer = app.producer(settings={"linger.ms": 5, "compression.type": "none"})
    one = meter.one

    @app.handler(topic)
    async def handle(record: Any) -> Any:
        one()
        return producer.send("written", record.value, key=record.key)

    asyncio.run(app.serve())


def loop_that_sends(bootstrap: str, topic: str, meter: Meter) -> None:
    """`consume(500)`, `produce` with a callback each; a flush and a commit each second."""
    from confluent_kafka import Consumer, Producer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group(), **CLIENT})
    producer = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    consumer.subscribe([topic])
    produce, poll, one = producer.produce, producer.poll, meter.one
    delivered = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal delivered
        delivered += error is None

    commit_at = time.monotonic() + _COMMIT_S
    while True:
        messages = consumer.consume(500, 0.1)
        for message in messages:
            if message.error() is None:
                message.topic(), message.partition(), message.offset(), message.timestamp(), message.headers()
                one()
                produce("written", message.value(), message.key(), on_delivery=on_delivery)
        poll(0)
        if messages and time.monotonic() >= commit_at:
            producer.flush()
            consumer.commit(asynchronous=True)
            commit_at = time.monotonic() + _COMMIT_S


def aiokafka_that_sends(bootstrap: str, topic: str, meter: Meter) -> None:
    """`getmany`, `send`; the futures of a round are gathered before the next one."""

    async def run() -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group(), auto_offset_reset="earliest", enable_auto_commit=True
        )
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=5)
        await consumer.start()
        await producer.start()
        while True:
            for messages in (await consumer.getmany(timeout_ms=100, max_records=5_000)).values():
                sent = [await producer.send("written", message.value, message.key) for message in messages]
                await asyncio.gather(*sent)
                for _ in messages:
                    meter.one()

    asyncio.run(run())


# --- producers


def _headers(topic: str) -> list[tuple[str, bytes]]:
    return list(HEADERS) if topic.endswith("-h") else []


def produce(bootstrap: str, topic: str, meter: Meter) -> None:
    """`confluent_kafka.Producer.produce` with a callback each."""
    from confluent_kafka import Producer

    client = Producer({"bootstrap.servers": bootstrap, **PRODUCER})
    produce, poll, one = client.produce, client.poll, meter.one
    delivered = 0

    def on_delivery(error: object, _message: object) -> None:
        nonlocal delivered
        delivered += error is None

    has_headers = bool(_headers(topic))
    for number in range(meter.count - 1):
        if has_headers:
            produce("written", VALUE, b"%d" % number, headers=_headers(topic), on_delivery=on_delivery)
        else:
            produce("written", VALUE, b"%d" % number, on_delivery=on_delivery)
        poll(0)
        one()
    client.flush()
    one()


def send(bootstrap: str, topic: str, meter: Meter) -> None:
    from ottla import Producer

    with Producer(bootstrap, settings=OURS) as producer:
        send, one = producer.send, meter.one
        has_headers = bool(_headers(topic))
        for number in range(meter.count - 1):
            if has_headers:
                send("written", VALUE, key=b"%d" % number, headers=_headers(topic))
            else:
                send("written", VALUE, key=b"%d" % number)
            one()
        producer.flush()
        one()


def send_with(option: str) -> Run:
    """The same, with an option. To compare two versions of Ottla: the client has no such option but the partition."""

    def run(bootstrap: str, topic: str, meter: Meter) -> None:
        from ottla import Producer

        with Producer(bootstrap, settings=OURS) as producer:
            send: Any = producer.send
            send, one = partial(send, **OPTIONS[option]), meter.one
            for number in range(meter.count - 1):
                send("written", VALUE, key=b"%d" % number)
                one()
            producer.flush()
            one()

    return run


def send_many(bootstrap: str, topic: str, meter: Meter) -> None:
    from ottla import Producer

    one = meter.one

    def records(count: int) -> Any:
        has_headers = bool(_headers(topic))
        for number in range(count):
            one()
            yield (VALUE, b"%d" % number, _headers(topic)) if has_headers else (VALUE, b"%d" % number)

    with Producer(bootstrap, settings=OURS) as producer:
        producer.send_many("written", records(meter.count - 1)).result()
        one()


def asyncio_producer(kind: str) -> Run:
    """The producers of event loops: each record sent, and all awaited at the end."""

    async def ottla_send(bootstrap: str, meter: Meter) -> None:
        from ottla import AsyncProducer

        async with AsyncProducer(bootstrap, settings={"linger.ms": 5, "compression.type": "none"}) as producer:
            for number in range(meter.count - 1):
                producer.send("written", VALUE, key=b"%d" % number)
                meter.one()
                if not number % 500:
                    await asyncio.sleep(0)
            await producer.flush()
            meter.one()

    async def aiokafka_send(bootstrap: str, meter: Meter) -> None:
        from aiokafka import AIOKafkaProducer

        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=5
        ) as producer:
            sent = []
            for number in range(meter.count - 1):
                sent.append(await producer.send("written", VALUE, key=b"%d" % number))
                meter.one()
            await asyncio.gather(*sent)
            meter.one()

    async def confluent_send(bootstrap: str, meter: Meter) -> None:
        from confluent_kafka.aio import AIOProducer

        producer = AIOProducer({"bootstrap.servers": bootstrap, **PRODUCER})
        sent = []
        for number in range(meter.count - 1):
            sent.append(await producer.produce("written", VALUE, key=b"%d" % number))
            meter.one()
        await producer.flush()
        await asyncio.gather(*sent)
        meter.one()

    chosen = {"ottla": ottla_send, "aiokafka": aiokafka_send, "confluent": confluent_send}[kind]
    return lambda bootstrap, _topic, meter: asyncio.run(chosen(bootstrap, meter))


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A program to measure. It reads or writes `1 / slower` of the records."""

    name: str
    run: Run
    topic: str = "read"
    raw: str = ""
    """The contender whose cost is divided by its own."""
    slower: int = 1


def _with_headers(contender: Contender) -> Contender:
    raw = f"{contender.raw} +h" if contender.raw else ""
    return Contender(
        name=f"{contender.name} +h", run=contender.run, topic=f"{contender.topic}-h", raw=raw, slower=contender.slower
    )


_LOOP = Contender(name="client: loop, bytes", run=loop())
_BATCH_LOOP = Contender(name="client: loop, batches", run=loop(counts_each=False))
_LOOP_JSON = Contender(name="client: loop, dataclass", run=loop(decodes=True))
_BYTES = Contender(name="ottla: handler, bytes", run=handler("bytes"), raw=_LOOP.name)
_JSON = Contender(name="ottla: handler, dataclass", run=handler("dataclass"), raw=_LOOP_JSON.name)
_BATCH = Contender(name="ottla: batch handler, bytes", run=handler("batch"), raw=_BATCH_LOOP.name)
_GETMANY = Contender(name="aiokafka: getmany, bytes", run=getmany, slower=2)
_ASYNCIO = Contender(name="ottla: asyncio handler, bytes", run=asyncio_handler, raw=_GETMANY.name, slower=2)
_PRODUCE = Contender(name="client: produce", run=produce)
_SEND = Contender(name="ottla: send", run=send, raw=_PRODUCE.name)
_SEND_MANY = Contender(name="ottla: send_many", run=send_many, raw=_PRODUCE.name)
_COPY = Contender(name="client: loop that sends", run=loop_that_sends)
_AIO_COPY = Contender(name="aiokafka: loop that sends", run=aiokafka_that_sends, slower=8)
_AIO_SEND = Contender(name="aiokafka: send", run=asyncio_producer("aiokafka"), slower=4)

BY_NAME: Final[dict[str, Contender]] = {
    each.name: each
    for each in (
        *(_LOOP, _BATCH_LOOP, _BYTES, _BATCH, Contender(name="quixstreams: handler, bytes", run=quix, slower=8)),
        *map(_with_headers, (_LOOP, _BATCH_LOOP, _BYTES, _BATCH)),
        *(_LOOP_JSON, _JSON, _GETMANY, _ASYNCIO, _with_headers(_GETMANY), _with_headers(_ASYNCIO)),
        _COPY,
        Contender(name="ottla: handler that sends", run=sending(batch=False), raw=_COPY.name),
        Contender(name="ottla: batch handler, send_many", run=sending(batch=True), raw=_COPY.name),
        _AIO_COPY,
        Contender(name="ottla: asyncio handler that sends", run=asyncio_sending, raw=_AIO_COPY.name, slower=4),
        *(Contender(name=f"ottla: send, {option}", run=send_with(option)) for option in OPTIONS),
        *(_PRODUCE, _SEND, _SEND_MANY, *map(_with_headers, (_PRODUCE, _SEND, _SEND_MANY))),
        _AIO_SEND,
        Contender(name="ottla: asyncio send", run=asyncio_producer("ottla"), raw=_AIO_SEND.name, slower=4),
        Contender(name="client: AIOProducer", run=asyncio_producer("confluent"), slower=4),
    )
}
RAW_OF: Final[dict[str, str]] = {each.name: each.raw for each in BY_NAME.values() if each.raw}


def main() -> None:
    name, bootstrap, count = sys.argv[1:]
    contender = BY_NAME[name]
    contender.run(bootstrap, contender.topic, Meter(int(count)))


if __name__ == "__main__":
    main()
