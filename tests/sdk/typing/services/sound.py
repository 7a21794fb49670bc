"""A service as a user writes it. mypy --strict and pyright find nothing in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated

from ottla import (
    App,
    AppProducer,
    AsyncBulk,
    AsyncConsumer,
    AsyncDelivery,
    AsyncProducer,
    Avro,
    Bulk,
    Bytes,
    CloudEvent,
    CloudEvents,
    CloudEventType,
    Consumer,
    Context,
    Dead,
    Delivery,
    Int64,
    Json,
    Malformed,
    Outcome,
    Producer,
    Provide,
    Rate,
    Record,
    Router,
    Skip,
    Str,
    TagField,
    TagHeader,
    TopicPartition,
)


@dataclass
class Order:
    id: int
    total: float


@dataclass
class Invoice:
    order: int
    cents: int


orders = Json(Order)
invoices = Avro(Invoice)
anything = Json()
maybe = Json[Order | None](Order)
from_a_file = Avro[Invoice]("invoice.avsc", type=Invoice)

app = App("billing", dead_letter_topic="orders.dead-letters")
producer = Producer(value=invoices, key=str)
own = app.producer(value=invoices, key=Str())
own_async = app.async_producer(value=invoices)


@app.handler("orders", value=orders, key=Str(), ordering="key", concurrency=4)
def bill(order: Order) -> Delivery:
    return producer.send("invoices", Invoice(order.id, round(order.total * 100)), key=str(order.id))


@app.handler("orders-2", value=orders, key=Str)
def with_key_and_context(order: Order, key: str, context: Context) -> Outcome | None:
    return Skip(f"{key} at {context.attempt}") if order.total == 0 else None


@app.handler("orders-3", value=orders)
async def with_keywords(order: Order, *, key: bytes, headers: list[tuple[str, bytes | None]]) -> None: ...


@app.handler("orders-4", value=orders)
def a_record(record: Record[Order]) -> float:
    return record.value.total


@app.handler("orders-5", value=orders)
def with_malformed(order: Order | Malformed) -> Outcome | None:
    return Dead(order.error, kind="invalid") if isinstance(order, Malformed) else None


@app.handler("orders-6", value=orders)
def with_malformed_records(record: Record[Order | Malformed], context: Context) -> str:
    return record.value.error if isinstance(record.value, Malformed) else str(record.value.id)


@app.handler("orders-7", value=orders)
def with_tombstones(order: Order | None, key: bytes) -> None: ...


@app.handler("orders-8", value=maybe)
def with_tombstones_of_the_serde(order: Order | None) -> None: ...


@app.handler("orders-9", value=orders)
def key_first(key: bytes, order: Order) -> None: ...


@app.handler("orders-10", value=orders)
def context_first(context: Context, record: Record[Order]) -> None: ...


@app.handler("orders-11", value=orders, batch=True, max_batch=100, fair_by="bytes")
def many(orders: list[Order]) -> list[Outcome | None]:
    return [None if order.id else Dead("no id") for order in orders]


@app.handler("orders-12", value=orders, batch=True)
def many_records(records: list[Record[Order]], context: Context) -> None:
    context.state["total"] = sum(record.value.total for record in records)


@app.handler("orders-13", value=orders, batch=True)
def many_or_malformed(records: list[Record[Order | Malformed]]) -> None: ...


@app.handler("orders-15", value=orders)
def with_the_apps_producer(order: Order) -> Delivery:
    return own.send("invoices", Invoice(order.id, 1), key=str(order.id))


@app.handler("orders-17", value=orders)
def with_either_producer(order: Order) -> list[Delivery]:
    producers: list[Producer[Invoice, str] | AppProducer[Invoice, str]] = [producer, own]
    return [each.send("invoices", Invoice(order.id, 1), key="42", detached=False) for each in producers]


@app.handler("orders-18", value=orders)
def with_many(order: Order) -> list[Bulk]:
    records = [(Invoice(order.id, 1), "42")]
    print(own.send_many("invoices", records).result() + producer.send_many("invoices", records).result())
    return [own.send_many("invoices", records), producer.send_many("invoices", records, detached=True)]


@app.handler("orders-19", value=orders)
def without_return(order: Order) -> None:
    own.send("invoices", Invoice(order.id, 1), key=str(order.id))


@app.handler("orders-16", value=orders)
async def with_the_apps_async_producer(order: Order) -> AsyncDelivery:
    report = await own_async.send("invoices", Invoice(order.id, 1), key=b"42")
    print(report.offset)
    many: AsyncBulk = await own_async.send_many("invoices", [(Invoice(order.id, 3),)])
    print(await many)
    return own_async.send("invoices", Invoice(order.id, 2))


@app.handler("numbers", value=Int64())
def a_number(number: int) -> None: ...


@app.handler("texts", value=str)
def a_text(text: str) -> None: ...


@app.handler("bytes", value=Bytes)
def as_bytes(data: bytes) -> None: ...


@app.handler("plain")
def no_serde(data: bytes) -> None: ...


@app.handler("typed")
def serde_from_the_annotation(order: Order) -> None: ...


@app.handler("anything", value=anything)
def untyped(value: dict[str, int]) -> None: ...


class Ledger:
    def add(self, order: Order) -> None: ...


app.handler("orders-14", value=orders)(Ledger().add)


def direct_calls() -> None:
    bill(Order(1, 9.5))
    with_key_and_context(
        Order(1, 9.5), "42", context=Context(group="g", handler="h", topic_partition=P0, attempt=1, state={})
    )
    with_malformed(Malformed(part="value", raw=b"", error="cut", error_type="DecodeError"))


P0 = TopicPartition("orders", 0)


def send_all(producer: Producer[Order, str], raw: Producer) -> None:
    producer.send("orders", Order(1, 9.5), key="42", headers=[("trace", b"1")])
    producer.send("orders", None, key="42")
    producer.send_many("orders", [(Order(2, 1.0), "43")])
    raw.send("raw", bytearray(b"1"), key=b"42")


def consume() -> float:
    total = 0.0
    with Consumer("orders", group="a", value=orders, dead_letter_topic="dead") as consumer:
        for record in consumer:
            total += record.value.total
            consumer.dead(record, "refused", kind="invalid")
    with Consumer("orders", group="b", value=Json(Order)) as consumer_of_all:
        for either in consumer_of_all.poll(timeout_s=1.0, max_records=10):
            if isinstance(either.value, Malformed):
                consumer_of_all.dead(either, either.value.error)
            else:
                total += either.value.total
    raw = Consumer("raw", group="c")
    return total + sum(len(record.value) for record in raw.poll())


async def with_asyncio() -> None:
    async with AsyncProducer(
        "localhost:9092", value=Json(Order), partitioner="sticky", profile="low_latency"
    ) as sender:
        delivery = await sender.send("orders", Order(1, 9.5), key=b"42")
        print(delivery.offset)
    async with AsyncConsumer("orders", group="a", value=str, dead_letter_topic="dead") as consumer:
        async for record in consumer:
            print(record.value.upper())


events = app.topic("events", by=TagHeader("type"), ordering="key", concurrency=8, otherwise=Skip())


@events.on("order.created", "order.imported", value=Json(Order))
def on_created(order: Order, key: bytes | None) -> Delivery:
    return bill(order)


@events.on("invoice.sent", value=invoices)
def on_sent(record: Record[Invoice]) -> None:
    print(record.value.cents)


@events.on("note")
def on_note(note: str) -> None: ...


@app.topic("other", by=TagField("type"), max_rate=Rate(200, per_s=1, burst=50)).otherwise
def on_other(record: Record[bytes]) -> Outcome | None: ...


created = CloudEvents(Json(Order), source="/shop")
senders = app.producer(value=created)


@app.topic("shop", by=CloudEventType()).on("order.created", value=created)
def on_event(order: Order, event: CloudEvent) -> Delivery:
    print(event.subject)
    return senders.send("copies", order, event_type=event.type, subject=event.subject, event_id=event.id)


def send_events(orders: list[Order]) -> Bulk:
    return senders.send_many("copies", [(order,) for order in orders], event_type="order.created", subject="eu")


class Session:
    def add(self, order: Order) -> None: ...


@contextmanager
def open_session() -> Iterator[Session]:
    yield Session()


@asynccontextmanager
async def open_on_a_loop() -> AsyncIterator[Session]:
    yield Session()


router = Router()


@router.handler("returns", value=orders, max_rate=Rate(200))
def take_back(order: Order, session: Annotated[Session, Provide(open_session)]) -> None:
    session.add(order)


@router.handler("returns-2", value=orders)
async def take_back_later(order: Order, session: Annotated[Session, Provide(open_on_a_loop, scope="app")]) -> None:
    session.add(order)


@router.every("0 8 * * mon-fri", tz="Europe/Berlin", id="daily-report", missed="one")
def report() -> None: ...


app.include(router)


@asynccontextmanager
async def lifespan(web: object) -> AsyncIterator[None]:
    async with app.lifespan(web):
        yield


def override() -> None:
    with app.override({open_session: open_session}):
        print(app.health().limited)


def steer() -> None:
    app.runner.pause(P0)
    app.runner.resume()
    app.runner.seek(P0, 0)
    print(app.runner.health().is_ready, app.runner.drain(5.0))


if __name__ == "__main__":
    app.run()
