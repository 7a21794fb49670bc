"""What handlers send, without a broker: the app's own producers are captured, any other one is named at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from ottla import App, AsyncProducer, Json, LifecycleError, Producer, SerializationError, Str
from ottla.testing import OfflineConsumer, consumer_for

NOWHERE = "127.0.0.1:1"


@dataclass
class Order:
    id: int


@dataclass
class Invoice:
    order: int


def app_that_bills(**options: Any) -> App:
    app = App("billing", bootstrap_servers=NOWHERE, **options)
    invoices = app.producer(value=Json(Invoice), key=Str())

    @app.handler("orders", value=Json(Order))
    def bill(order: Order) -> Any:
        return invoices.send("invoices", Invoice(order.id), key=str(order.id), headers=[("shop", b"7")])

    return app


def test_what_the_apps_producer_sends_is_kept_with_its_bytes() -> None:
    consumer = consumer_for(app_that_bills())

    assert [one.outcome for one in consumer.deliver_all([Order(1), Order(2)])] == ["done", "done"]

    first, second = consumer.sent
    assert (first.topic, first.key, first.value, first.offset) == ("invoices", "1", Invoice(1), 0)
    assert (first.raw_key, first.raw_value, first.headers) == (b"1", b'{"order":1}', [("shop", b"7")])
    assert (second.value, second.offset) == (Invoice(2), 1)


def test_a_handler_may_wait_for_what_it_sent_and_send_many() -> None:
    app = App("billing")
    raw = app.producer()
    reports = []

    @app.handler("orders")
    def forward(value: bytes) -> None:
        reports.append(raw.send("copies", value, partition=3).result(5))
        raw.send_many("many", [(value, b"key"), (value,)]).result(5)
        raw.flush()

    consumer = consumer_for(app)
    consumer.deliver(b"one")

    assert [(report.topic, report.partition, report.offset) for report in reports] == [("copies", 3, 0)]
    assert [(record.topic, record.raw_value) for record in consumer.sent] == [
        ("copies", b"one"),
        ("many", b"one"),
        ("many", b"one"),
    ]


async def test_async_handlers_send_with_the_apps_async_producer() -> None:
    app = App("billing")
    invoices = app.async_producer(value=Json(Invoice))

    @app.handler("orders", value=Json(Order))
    async def bill(order: Order) -> Any:
        report = await invoices.send("invoices", Invoice(order.id))
        assert report.offset == 0
        await invoices.send_many("invoices", [(Invoice(order.id + 1),)])
        await invoices.flush()
        return invoices.send("invoices", Invoice(order.id + 2))

    consumer = consumer_for(app)

    assert (await consumer.deliver_async(Order(1))).outcome == "done"
    assert [record.value for record in consumer.sent] == [Invoice(1), Invoice(2), Invoice(3)]


def test_what_a_producer_would_refuse_is_refused_here_too() -> None:
    app = App("billing", dead_letter_topic="dead", retry=None)
    invoices = app.producer(value=Json(Invoice))
    errors: list[Exception] = []

    @app.handler("orders")
    def bill(value: bytes) -> None:
        try:
            invoices.send("invoices", Order(1))  # type: ignore[arg-type]
        except SerializationError as error:
            errors.append(error)

    consumer_for(app).deliver(b"one")

    assert "cannot be decoded again as Invoice" in str(errors[0])


@pytest.mark.parametrize("swallows", [False, True])
def test_a_producer_of_the_handlers_own_is_named_at_once(swallows: bool) -> None:
    producer = Producer(NOWHERE)

    def forward(value: bytes) -> Any:
        try:
            return producer.send("invoices", value)
        except Exception:
            if swallows:
                return None
            raise

    named = rf"called send\('invoices'\) of a Producer of its own \(for {NOWHERE}\).*app\.producer"
    with pytest.raises(LifecycleError, match=named):
        consumer_for(forward).deliver(b"one")
    producer.close()  # raises DeliveryError if it had a record to deliver


def test_one_that_is_made_in_the_handler_is_named_before_it_connects() -> None:
    def forward(value: bytes) -> None:
        with Producer(NOWHERE) as producer:
            producer.send("invoices", value)

    with pytest.raises(LifecycleError, match=r"called start\(''\) of a Producer of its own"):
        consumer_for(forward).deliver(b"one")


async def test_an_async_one_is_named_too() -> None:
    producer = AsyncProducer(NOWHERE)

    async def forward(value: bytes) -> None:
        await producer.start()

    with pytest.raises(LifecycleError, match=r"AsyncProducer of its own.*app\.async_producer"):
        await consumer_for(forward).deliver_async(b"one")


def test_producers_send_again_after_the_delivery(kafka: Any, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:

        def forward(value: bytes) -> Any:
            return producer.send(kafka_topic, value)

        with pytest.raises(LifecycleError, match="of its own"):
            consumer_for(forward).deliver(b"one")
        assert consumer_for(forward, real_producers=True).deliver(b"two").outcome == "done"
        producer.send(kafka_topic, b"three")
    assert [record.raw_value for record in kafka.consume_all(kafka_topic)] == [b"two", b"three"]


def test_the_apps_producers_are_captured_only_while_handlers_run() -> None:
    app = App("billing")
    raw = app.producer()
    app.handler("orders")(lambda value: raw.send("copies", value))
    consumer = OfflineConsumer(app)
    consumer.deliver(b"one")

    with pytest.raises(LifecycleError, match="works only while app 'billing' runs"):
        raw.send("copies", b"two")
    assert len(consumer.sent) == 1
