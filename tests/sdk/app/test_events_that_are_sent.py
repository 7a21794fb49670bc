"""`send(..., event_type=)`: the record is a CloudEvent, whoever sends it."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla import (
    App,
    AsyncProducer,
    CloudEvents,
    Context,
    ExactlyOnce,
    InputError,
    Int64,
    Outbox,
    Outgoing,
    Producer,
    Record,
    RetryPolicy,
)
from ottla.outbox.outbox import headers_of
from ottla.stores import Sqlite
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, consumer_for
from tests.kit.both_shells import PRODUCERS

EVENTS = CloudEvents(Int64(), source="/shop", content_type="application/x-int64")
OPTIONS: dict[str, Any] = {"event_type": "order.created", "subject": "eu/1", "event_id": "7"}


def assert_is_the_event(record: Record[Any]) -> None:
    """The record is the event of OPTIONS, for Ottla and for the official SDK."""
    event = record.event
    assert event is not None
    assert (event.source, event.id, event.type, event.subject) == ("/shop", "7", "order.created", "eu/1")
    assert (event.datacontenttype, event.time is not None) == ("application/x-int64", True)
    kafka = pytest.importorskip("cloudevents.core.bindings.kafka", reason="the official SDK is not installed")
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent as OfSdk

    headers = {name: value for name, value in record.headers if value is not None}
    read = kafka.from_binary(kafka.KafkaMessage(headers, record.raw_key, record.raw_value), JSONFormat(), OfSdk)
    assert (read.get_source(), read.get_id()) == ("/shop", "7")
    assert (read.get_type(), read.get_subject()) == ("order.created", "eu/1")


def read_one(kafka: Kafka, topic: str) -> Record[Any]:
    (record,) = kafka.consume_all(topic, value=EVENTS, at_least=1)
    assert record.value == 5
    return record


async def send_on_a_loop(servers: str, topic: str, value: Any = EVENTS, **options: Any) -> None:
    async with AsyncProducer(servers, value=value) as producer:
        await producer.send(topic, 5, **options)


def send_in_threads(servers: str, topic: str, value: Any = EVENTS, **options: Any) -> None:
    with Producer(servers, value=value) as producer:
        producer.send(topic, 5, **options).result(30)


def send(shell: str, *arguments: Any, **options: Any) -> None:
    if shell == "asyncio":
        asyncio.run(send_on_a_loop(*arguments, **options))
    else:
        send_in_threads(*arguments, **options)


both = pytest.mark.parametrize("of", ["threads", "asyncio"])


@both
def test_a_producer_sends_an_event(kafka: Kafka, kafka_topic: str, of: str) -> None:
    send(of, kafka.bootstrap_servers, kafka_topic, headers=[("trace", b"1")], message_id="m", **OPTIONS)
    record = read_one(kafka, kafka_topic)
    assert_is_the_event(record)
    assert (record.header("trace"), record.header("ottla-id")) == (b"1", b"m")


@both
def test_each_event_has_an_id_of_its_own_if_none_is_given(kafka: Kafka, kafka_topic: str, of: str) -> None:
    for _ in range(2):
        send(of, kafka.bootstrap_servers, kafka_topic, event_type="order.created")
    events = [record.event for record in kafka.consume_all(kafka_topic, value=EVENTS, at_least=2)]
    assert len({event.id for event in events if event is not None}) == 2
    assert [event.subject for event in events if event is not None] == [None, None]


WITH_KEY = EVENTS.headers(type="order.created", id="7", partitionkey="eu-1")


@pytest.mark.parametrize("shell", [*PRODUCERS])
@pytest.mark.parametrize("serde", [None, str], ids=["no serde", "text"])
async def test_an_event_without_a_key_has_its_partition_key(
    kafka: Kafka, kafka_topic: str, shell: str, serde: Any
) -> None:
    own: Any = b"own" if serde is None else "own"
    async with PRODUCERS[shell](kafka.bootstrap_servers, value=EVENTS, key=serde) as producer:
        await (await producer.send_many(kafka_topic, [(1, None, WITH_KEY), (2, own, WITH_KEY)]))
        await producer.send(kafka_topic, 3, headers=WITH_KEY)
        await producer.send(kafka_topic, 4, event_type="order.created")
    found: list[Record[Any]] = kafka.consume_all(kafka_topic, at_least=4)
    assert {record.raw_value[-1]: record.raw_key for record in found} == {1: b"eu-1", 2: b"own", 3: b"eu-1", 4: None}  # type: ignore[index]


@pytest.mark.parametrize("serde", [None, str], ids=["no serde", "text"])
def test_an_event_of_an_outbox_without_a_key_has_its_partition_key(
    kafka: Kafka, kafka_topic: str, tmp_path: Path, serde: Any
) -> None:
    outbox = Outbox(Sqlite(str(tmp_path / "shop.db")), value=EVENTS, key=serde)
    outbox.create_tables()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        outbox.add(connection, kafka_topic, 1, headers=WITH_KEY)
        outbox.add(connection, kafka_topic, 2, key=b"own" if serde is None else "own", headers=WITH_KEY)
        outbox.add(connection, kafka_topic, 3, event_type="order.created")
        connection.commit()
    relay = OutboxRelay(outbox, kafka.bootstrap_servers)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        found: list[Record[Any]] = kafka.consume_all(kafka_topic, at_least=3)
    finally:
        relay.stop()
        thread.join()
    assert {record.raw_value[-1]: record.raw_key for record in found} == {1: b"eu-1", 2: b"own", 3: None}  # type: ignore[index]


def test_the_official_sdk_takes_the_same_key() -> None:
    kafka = pytest.importorskip("cloudevents.core.bindings.kafka", reason="the official SDK is not installed")
    from cloudevents.core.formats.json import JSONFormat
    from cloudevents.core.v1.event import CloudEvent as OfSdk

    attributes = {"id": "7", "source": "/shop", "type": "order.created", "specversion": "1.0", "partitionkey": "eu-1"}
    message = kafka.to_binary(OfSdk(attributes, b"5"), JSONFormat())
    app = App("billing")
    producer = app.producer(value=EVENTS)

    @app.handler("orders", value=Int64())
    def handle(number: int) -> Any:
        return producer.send("invoices", number, headers=WITH_KEY)

    consumer = consumer_for(app)
    consumer.deliver(5)
    (sent,) = consumer.sent
    wanted = message.key.encode() if isinstance(message.key, str) else message.key
    assert sent.raw_key == wanted == b"eu-1"


@pytest.mark.parametrize("shell", [*PRODUCERS])
@pytest.mark.parametrize("is_partitioned_here", [False, True], ids=["by the client", "by Ottla"])
async def test_each_record_of_many_is_an_event(
    kafka: Kafka, kafka_topic: str, shell: str, is_partitioned_here: bool
) -> None:
    options: dict[str, Any] = {"partitioner": lambda *given: 0} if is_partitioned_here else {}
    records: list[Any] = [(1,), [2, b"k"], Outgoing(3, headers=[("trace", b"1")]), (4, None, (), 0, 1_000)]
    async with PRODUCERS[shell](kafka.bootstrap_servers, value=EVENTS, **options) as producer:
        await (await producer.send_many(kafka_topic, records, event_type="order.created", subject="eu/1"))
    found = kafka.consume_all(kafka_topic, value=EVENTS, at_least=4)
    assert sorted(record.value for record in found) == [1, 2, 3, 4]
    events = [record.event for record in found if record.event is not None]
    assert [(event.type, event.subject, event.source) for event in events] == [("order.created", "eu/1", "/shop")] * 4
    assert len({event.id for event in events}) == 4
    by_value = {record.value: record for record in found}
    assert (by_value[2].raw_key, by_value[3].header("trace"), by_value[4].timestamp_ms) == (b"k", b"1", 1_000)


@pytest.mark.parametrize("shell", [*PRODUCERS])
async def test_a_record_of_many_that_makes_no_event_raises_and_those_before_it_are_sent(
    kafka: Kafka, kafka_topic: str, shell: str
) -> None:
    async with PRODUCERS[shell](kafka.bootstrap_servers, value=EVENTS) as producer:
        with pytest.raises(InputError, match="found subject= without event_type="):
            await producer.send_many(kafka_topic, [(1,)], subject="eu/1")
        records: list[Any] = [(1,), (2, None, [("ce_type", b"b")]), (3,)]
        with pytest.raises(InputError, match="found event_type= and the header 'ce_type'") as raised:
            await producer.send_many(kafka_topic, records, event_type="order.created")
    assert any("1 records before this one" in note for note in raised.value.__notes__)
    assert [record.value for record in kafka.consume_all(kafka_topic, value=EVENTS, at_least=1)] == [1]


REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"subject": "eu/1"}, EVENTS, "found subject= without event_type=, wanted the type of the event too"),
    ({"event_id": "7"}, EVENTS, "found event_id= without event_type="),
    ({"event_type": "a"}, Int64(), "event_type=: found value=Int64, wanted value=CloudEvents"),
    ({"event_type": "a"}, CloudEvents(Int64()), "orders: CloudEvents: .*source"),
    ({"event_type": ""}, EVENTS, "orders: CloudEvents: .*type"),
    ({"event_type": "a", "headers": [("ce_type", b"b")]}, EVENTS, "found event_type= and the header 'ce_type'"),
    ({"event_type": "a", "headers": [("content-type", b"b")]}, EVENTS, "and the header 'content-type', wanted one"),
    ({"event_type": "a", "headers": {"trace": b"1"}}, EVENTS, r"write list\(headers.items\(\)\)"),
    ({"event_type": "a", "headers": 5}, EVENTS, r"expected \(name, value\) pairs, got 5"),
]


@both
@pytest.mark.parametrize(("options", "serde", "says"), REFUSED)
def test_what_makes_no_event_is_refused(kafka: Kafka, of: str, options: dict[str, Any], serde: Any, says: str) -> None:
    with pytest.raises(InputError, match=says):
        send(of, kafka.bootstrap_servers, "orders", serde, **options)


def test_producers_without_a_serde_are_refused_too(kafka: Kafka) -> None:
    with Producer(kafka.bootstrap_servers) as producer, pytest.raises(InputError, match="found no value=, wanted"):
        producer.send("orders", b"5", event_type="order.created")


def test_what_handlers_send_is_an_event(
    shell: Any, kafka: Kafka, make_topic: Callable[..., str], kafka_group: str
) -> None:
    source, target = make_topic("orders"), make_topic("invoices")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    if shell.name == "asyncio":
        on_loop = app.async_producer(value=EVENTS)

        @app.handler(source, value=Int64())
        async def handle_async(number: int) -> None:
            await on_loop.send(target, number, **OPTIONS)
    else:
        in_threads = app.producer(value=EVENTS)

        @app.handler(source, value=Int64())
        def handle(number: int) -> Any:
            return in_threads.send(target, number, **OPTIONS)

    kafka.produce(source, [5], value=Int64())
    shell.start(app)
    assert_is_the_event(read_one(kafka, target))
    shell.stop(app)


@pytest.mark.parametrize("serde", [EVENTS, None], ids=["events", "bytes"])
def test_what_a_handler_sends_exactly_once_is_an_event(
    shell: Any, kafka: Kafka, make_topic: Callable[..., str], kafka_group: str, serde: Any
) -> None:
    source, target, dead = make_topic("orders"), make_topic("invoices"), make_topic("dead")
    keyed = make_topic("keyed")
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead,
        retry=RetryPolicy(max_attempts=1),
    )

    def send_on(number: int, context: Context) -> None:
        context.out.send(target, number if serde else b"5", **OPTIONS)
        if serde:
            context.out.send(keyed, number, headers=WITH_KEY)

    async def send_on_async(number: int, context: Context) -> None:
        send_on(number, context)

    handler = send_on_async if shell.name == "asyncio" else send_on
    app.handler(source, value=Int64(), exactly_once=ExactlyOnce(value=serde))(handler)
    kafka.produce(source, [5], value=Int64())
    shell.start(app)
    if serde is None:
        (letter,) = kafka.consume_all(dead, at_least=1)
        assert "event_type=: found no value=" in (letter.header_text("ottla-dlq-error") or str(letter.headers))
    else:
        assert_is_the_event(read_one(kafka, target))
        assert read_one(kafka, keyed).raw_key == b"eu-1"
    shell.stop(app)


def test_what_an_outbox_keeps_is_an_event(tmp_path: Path) -> None:
    outbox = Outbox(Sqlite(str(tmp_path / "shop.db")), value=EVENTS)
    outbox.create_tables()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        outbox.add(connection, "orders", 5, **OPTIONS)
        with pytest.raises(InputError, match="found subject= without event_type="):
            outbox.add(connection, "orders", 5, subject="eu/1")
        connection.commit()
    session = outbox.session()
    (row,) = session.read(skipped=[], most_rows=10, most_bytes=10**6)
    session.close()
    assert_is_the_event(Record("orders", 0, 0, 0, None, 5, headers_of(row), None, row.value))


def test_what_is_captured_in_a_test_is_an_event() -> None:
    app = App("billing")
    invoices = app.producer(value=EVENTS)

    @app.handler("orders", value=Int64())
    def handle(number: int) -> Any:
        return invoices.send("invoices", number, **OPTIONS)

    consumer = consumer_for(app)
    consumer.deliver(5)
    (sent,) = consumer.sent
    assert_is_the_event(sent)


def test_what_is_captured_of_many_is_an_event_each() -> None:
    app = App("billing")
    invoices = app.producer(value=EVENTS)

    @app.handler("orders", value=Int64())
    def handle(number: int) -> Any:
        return invoices.send_many("invoices", [(number,), (number,)], event_type="order.created")

    consumer = consumer_for(app)
    consumer.deliver(5)
    events = [sent.event for sent in consumer.sent if sent.event is not None]
    assert [event.type for event in events] == ["order.created"] * 2
    assert len({event.id for event in events}) == 2


def test_a_delayed_event_is_one_when_it_is_delivered(kafka: Kafka, make_topic: Callable[..., str]) -> None:
    topic, name = make_topic("orders"), kafka.fresh_name("later")
    with Scheduler(kafka.bootstrap_servers, name=name) as scheduler:
        serving = threading.Thread(target=scheduler.run)
        serving.start()
        try:
            with Producer(kafka.bootstrap_servers, value=EVENTS, schedule=name) as producer:
                producer.send(topic, 5, deliver_after=0.01, **OPTIONS)
            assert_is_the_event(read_one(kafka, topic))
        finally:
            scheduler.stop()
            serving.join()
