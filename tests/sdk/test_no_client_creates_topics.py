"""A name that is misspelt is an error, never a new topic: also on a cluster that creates whatever clients ask for."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from acl_client import SETTINGS, TOPIC, USERS, WRITE, Grant, UserClient
from click.testing import CliRunner
from confluent_kafka import Producer as ConfluentProducer

from ottla import App, AsyncConsumer, AsyncProducer, Consumer, Outbox, Producer, UnknownTopic, columnar
from ottla.admin import Admin
from ottla.browse.redrive import redrive
from ottla.cli import main
from ottla.errors import DeliveryError
from ottla.stores import Sqlite
from ottla.sync.serve.outbox_relay import OutboxRelay
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import secure_kafka
from ottla.testing.kafka import running_kafka
from ottla.testing.waiting import wait_until

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka

SOON = {"topic.metadata.propagation.max.ms": 300}
IN_TRANSACTIONS = {**SOON, "transactional.id": "typo"}


@pytest.fixture(scope="module")
def creating() -> Iterator[Kafka]:
    """A broker as Kafka's are by default: a client that asks for a topic and does not forbid it has it created."""
    with running_kafka("embedded", config={"auto.create.topics.enable": "true"}) as kafka:
        kafka.create_topic("orders")
        kafka.produce("orders", [b"1"])
        ConfluentProducer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0}).list_topics("proof")
        assert "proof" in topics_of(kafka), "this broker does create topics"
        yield kafka


def topics_of(kafka: Kafka) -> set[str]:
    with Admin(kafka.bootstrap_servers) as admin:
        return {topic.name for topic in admin.list_topics(internal=True) if not topic.name.startswith("__")}


def threads(send: Callable[[Producer], Any], **options: Any) -> Callable[[Kafka], Any]:
    def act(kafka: Kafka) -> None:
        with Producer(kafka.bootstrap_servers, **{"settings": SOON, **options}) as producer:
            send(producer)

    return act


def tasks(send: Callable[[AsyncProducer], Any], **options: Any) -> Callable[[Kafka], Any]:
    async def run(kafka: Kafka) -> None:
        async with AsyncProducer(kafka.bootstrap_servers, **{"settings": SOON, **options}) as producer:
            await send(producer)

    return lambda kafka: asyncio.run(run(kafka))


def in_a_transaction(producer: Producer) -> None:
    with producer.transaction():
        producer.send("typo", b"v")


async def in_a_transaction_of_tasks(producer: AsyncProducer) -> None:
    async with producer.transaction():
        producer.send("typo", b"v")


def app(run: Callable[[App], Any], topic: str = "typo", **options: Any) -> Callable[[Kafka], Any]:
    def act(kafka: Kafka) -> None:
        service = App("billing", bootstrap_servers=kafka.bootstrap_servers, topics_timeout_s=0.3, **options)
        service.handler(topic)(lambda value: None)
        run(service)

    return act


def pulled(kafka: Kafka) -> None:
    with Consumer("typo", group="g", bootstrap_servers=kafka.bootstrap_servers, topics_timeout_s=0.3):
        pass


def pulled_by_tasks(kafka: Kafka) -> None:
    async def run() -> None:
        async with AsyncConsumer("typo", group="g", bootstrap_servers=kafka.bootstrap_servers, topics_timeout_s=0.3):
            pass

    asyncio.run(run())


def relayed(kafka: Kafka) -> None:
    with tempfile.TemporaryDirectory() as folder:
        outbox = Outbox(Sqlite(Path(folder) / "outbox.db"))
        outbox.create_tables()
        with contextlib.closing(sqlite3.connect(Path(folder) / "outbox.db")) as connection:
            outbox.add(connection, "typo", b"v")
            connection.commit()
        relay = OutboxRelay(outbox, kafka.bootstrap_servers, settings=SOON)
        wait_until(lambda: relay.turn() or bool(relay._relaying.problems), 30, what="the topic's problem")
        (reason,) = relay._relaying.problems.values()
        relay.stop()
        relay.run()
        raise UnknownTopic(reason)


def columns(kafka: Kafka) -> None:
    columnar.write("typo", pa.table({"value": ["v"]}), bootstrap_servers=kafka.bootstrap_servers)


def read_columns(kafka: Kafka) -> None:
    columnar.read("typo", bootstrap_servers=kafka.bootstrap_servers)


def command(*arguments: str) -> Callable[[Kafka], Any]:
    def act(kafka: Kafka) -> None:
        done = CliRunner().invoke(main, [*arguments, "--bootstrap-servers", kafka.bootstrap_servers], input="1\n2\n")
        assert done.exit_code, done.output
        raise UnknownTopic(done.output)

    return act


ACTIONS: dict[str, Callable[[Kafka], Any]] = {
    "send": threads(lambda producer: producer.send("typo", b"v").result(30)),
    "send_many": threads(lambda producer: producer.send_many("typo", [(b"v",)]).result(30)),
    "send with a partitioner of Ottla's": threads(
        lambda producer: producer.send("typo", b"v").result(30),
        partitioner="round_robin",
    ),
    "send in a transaction": threads(in_a_transaction, settings=IN_TRANSACTIONS),
    "asyncio: send": tasks(lambda producer: producer.send("typo", b"v")),
    "asyncio: send_many": tasks(lambda producer: producer.send_many("typo", [(b"v",)])),
    "asyncio: send in a transaction": tasks(in_a_transaction_of_tasks, settings=IN_TRANSACTIONS),
    "an app": app(lambda service: service.run(handle_signals=False)),
    "asyncio: an app": app(lambda service: asyncio.run(service.serve())),
    "dead letters": app(lambda service: service.run(handle_signals=False), "orders", dead_letter_topic="typo"),
    "asyncio: dead letters": app(lambda service: asyncio.run(service.serve()), "orders", dead_letter_topic="typo"),
    "a consumer": pulled,
    "asyncio: a consumer": pulled_by_tasks,
    "an outbox": relayed,
    "columns: write": columns,
    "columns: read": read_columns,
    "a redrive": lambda kafka: redrive(kafka.bootstrap_servers, "typo"),
    "the test kit: produce": lambda kafka: kafka.produce("typo", [b"v"]),
    "the test kit: consume": lambda kafka: kafka.consume_all("typo"),
    "the command produce": command("produce", "typo"),
    "the command consume": command("consume", "typo"),
    "the command topics show": command("topics", "show", "typo"),
    "the command dlq list": command("dlq", "list", "typo"),
    "the command groups reset": command("groups", "reset", "g", "--topic", "typo", "--to", "earliest", "--yes"),
    "the command topics copy": command("topics", "copy", "typo", "typo2", "--yes"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_name_that_is_misspelt_is_no_new_topic(creating: Kafka, action: str) -> None:
    before = topics_of(creating)
    with pytest.raises((UnknownTopic, DeliveryError)) as caught:
        ACTIONS[action](creating)
    assert "typo" in str(caught.value)
    assert topics_of(creating) == before


def test_who_asks_for_a_topic_to_be_created_has_it_created(creating: Kafka) -> None:
    asked = {**SOON, "allow.auto.create.topics": True}
    with Producer(creating.bootstrap_servers, settings=asked) as producer:
        producer.send("asked-by-threads", b"v").result(30)

    async def run() -> None:
        async with AsyncProducer(creating.bootstrap_servers, settings=asked) as producer:
            await producer.send("asked-by-tasks", b"v")

    asyncio.run(run())
    assert {"asked-by-threads", "asked-by-tasks"} <= topics_of(creating)


@pytest.mark.parametrize("shell", ["threads", "asyncio"])
def test_the_first_delayed_message_has_the_topic_of_its_schedule_created_as_a_scheduler_does(
    creating: Kafka, shell: str
) -> None:
    name = f"of-{shell}"

    async def run() -> None:
        async with AsyncProducer(creating.bootstrap_servers, schedule=name) as producer:
            await producer.send("orders", b"v", deliver_after=60)

    if shell == "threads":
        with Producer(creating.bootstrap_servers, schedule=name) as producer:
            producer.send("orders", b"v", deliver_after=60).result(30)
    else:
        asyncio.run(run())
    with Scheduler(creating.bootstrap_servers, name=name, create=False) as scheduler:  # refuses one that is not right
        assert scheduler.topic in topics_of(creating)
    assert f"ottla.schedule.{name}.dead-letters" in topics_of(creating)


@pytest.mark.parametrize("shell", ["threads", "asyncio"])
def test_who_may_not_create_the_topic_of_a_schedule_is_told_what_to_run(shell: str) -> None:
    with secure_kafka("SASL_PLAINTEXT", mechanism="PLAIN", users=USERS, config=SETTINGS) as kafka:
        kafka.create_topic("orders")
        admin = UserClient(kafka.bootstrap_servers, "admin")
        admin.grant(Grant(WRITE, TOPIC, "orders"), Grant(WRITE, TOPIC, "ottla.schedule.default"))
        admin.close()
        settings = {**SOON, **kafka.settings_of("bob", USERS["bob"])}

        async def run() -> None:
            async with AsyncProducer(kafka.bootstrap_servers, settings=settings) as producer:
                await producer.send("orders", b"v", deliver_after=60)

        def send() -> None:
            if shell == "asyncio":
                asyncio.run(run())
                return
            with Producer(kafka.bootstrap_servers, settings=settings) as producer:
                producer.send("orders", b"v", deliver_after=60).result(30)

        with pytest.raises(UnknownTopic, match=r"could not create it .*`ottla schedule run --name default") as caught:
            send()
        assert "ottla.schedule.default" in str(caught.value)
