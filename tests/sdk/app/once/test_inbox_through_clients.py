"""The inbox through the real clients, in both shells, with every kind of store."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from metric_values import collected_metrics

from ottla import (
    App,
    AsyncProducer,
    CommitPolicy,
    Context,
    Dead,
    Inbox,
    Json,
    Producer,
    Record,
    RetryPolicy,
    Skip,
)
from ottla.stores import Memory
from ottla.telemetry.metrics.hooks import Counters

from .conftest import make_store

SHELLS = ["threads", "asyncio", "columns"]
OFTEN = CommitPolicy(every_s=0.05)
QUICK = RetryPolicy(max_attempts=3, initial_s=0.01)


def send(kafka: Any, topic: str, *messages: tuple[Any, str | None]) -> None:
    with Producer(kafka.bootstrap_servers, value=Json()) as producer:
        for value, message_id in messages:
            producer.send(topic, value, message_id=message_id)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres", "redis"])
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
@pytest.mark.representative(
    "asyncio-async def-memory", "threads-def-sqlite", "columns-def-postgres", "threads-def-redis"
)
def test_a_copy_of_a_message_is_not_handled_again(
    kind: str,
    is_async: bool,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    committed: Any,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    counters = Counters()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, hooks=counters)
    handled: list[int] = []
    inbox = Inbox(make_store(kind, tmp_path, request))

    def handle(value: int) -> None:
        handled.append(value)

    async def handle_async(value: int) -> None:
        handled.append(value)

    app.handler(kafka_topic, value=Json(), inbox=inbox)(handle_async if is_async else handle)
    send(kafka, kafka_topic, (1, "one"), (2, "two"), (3, "one"), (4, None))
    with collected_metrics() as metrics:  # set up after the handler was declared, as an application may
        shell.start(app)
        wait(lambda: committed(kafka_group, kafka_topic) == 4, timeout_s=20)
        send(kafka, kafka_topic, (5, "two"), (6, "six"))
        wait(lambda: committed(kafka_group, kafka_topic) == 6, timeout_s=20)
        shell.stop(app)
        shown = metrics.value(
            "ottla.handler.records", ottla__outcome="duplicate", messaging__destination__name=kafka_topic
        )

    assert handled == [1, 2, 4, 6]
    assert counters["duplicates"] == shown == 2


@pytest.mark.representative("columns-sqlite")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_marks_and_work_are_one_transaction(
    kind: str,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    committed: Any,
    make_topic: Any,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    store = make_store(kind, tmp_path, request)
    session = store.session()
    table = f"done_{kafka_group.replace('-', '_')}"
    session.transaction.execute(f"create table {table} (n int)")
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead, retry=QUICK)

    @app.handler(kafka_topic, value=Json(), inbox=Inbox(store))
    def handle(value: int, transaction: Any) -> Any:
        transaction.execute(f"insert into {table} values ({value})")
        if value == 3:
            raise RuntimeError("poison")
        return Skip() if value == 4 else None

    send(kafka, kafka_topic, *((number, str(number)) for number in range(8)), (99, "5"))
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 9, timeout_s=20)
    shell.stop(app)
    rows = [row[0] for row in session.transaction.execute(f"select n from {table} order by n").fetchall()]
    session.close()

    assert rows == [0, 1, 2, 4, 5, 6, 7], "once each; what the poison record wrote was rolled back"
    assert [letter.value for letter in kafka.consume_all(dead)] == [b"3"]


def test_a_record_that_fails_is_handled_again_and_marked_once_it_is_done(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    attempts: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, retry=QUICK)

    @app.handler(kafka_topic, value=Json(), inbox=Inbox(Memory()))
    def handle(value: int, context: Context) -> None:
        attempts.append(context.attempt)
        if context.attempt < 3:
            raise RuntimeError("not yet")

    send(kafka, kafka_topic, (1, "one"), (1, "one"))
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 2, timeout_s=20)
    shell.stop(app)
    assert attempts == [1, 2, 3]


def test_duplicates_go_to_the_dead_letter_topic_on_request(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, make_topic: Any, wait: Any
) -> None:
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead)
    handled: list[int] = []

    @app.handler(kafka_topic, value=Json(), inbox=Inbox(Memory(), on_duplicate=Dead("seen before")))
    def handle(value: int) -> None:
        handled.append(value)

    send(kafka, kafka_topic, (1, "one"), (2, "one"), (3, "three"))
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 3, timeout_s=20)
    shell.stop(app)
    (letter,) = kafka.consume_all(dead)
    assert handled == [1, 3]
    assert letter.value == b"2"
    assert dict(letter.headers)["ottla-dlq-error-message"] == b"seen before"


@pytest.mark.representative("threads")
def test_two_members_never_handle_one_message_at_the_same_time(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    """Copies of one message lie in two partitions; the second waits for the first, and is a duplicate then."""
    topic = make_topic("two", partitions=2)
    store, may_go, busy = Memory(), threading.Event(), []
    most: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(topic, value=Json(), concurrency=2, inbox=Inbox(store, lease_s=0.3))
    def handle(value: int) -> None:
        busy.append(value)
        most.append(len(busy))
        may_go.wait(10)
        busy.remove(value)

    with Producer(kafka.bootstrap_servers, value=Json()) as producer:
        for partition in (0, 1):
            producer.send(topic, partition, message_id="same", partition=partition)
    shell.start(app)
    wait(lambda: bool(most), timeout_s=20)
    # Longer than the lease: the claim is renewed while the handler works.
    threading.Event().wait(0.8)
    assert most == [1]
    may_go.set()
    wait(lambda: [committed(kafka_group, topic, partition) for partition in (0, 1)] == [1, 1], timeout_s=20)
    shell.stop(app)
    assert most == [1]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_batches_get_each_message_once(
    kind: str,
    shell: Any,
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    committed: Any,
    wait: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    handled: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(kafka_topic, value=Json(), batch=True, inbox=Inbox(make_store(kind, tmp_path, request)))
    def handle(values: list[int]) -> None:
        handled.extend(values)

    send(kafka, kafka_topic, *((number, str(number % 5)) for number in range(20)))
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 20, timeout_s=20)
    shell.stop(app)
    assert handled == [0, 1, 2, 3, 4]


def test_ids_come_from_values_where_a_function_says_so(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, make_topic: Any, wait: Any
) -> None:
    handled: list[Any] = []
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead, retry=QUICK)

    def order_id(record: Record[Any]) -> Any:
        return record.value["id"]

    @app.handler(kafka_topic, value=Json(), inbox=Inbox(Memory(), id=order_id))
    def handle(value: dict[str, int]) -> None:
        handled.append(value["id"])

    kafka.produce(kafka_topic, [b'{"id":1}', b"not json", b'{"id":1}', b'{"no":1}', b'{"id":2}'])
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 5, timeout_s=20)
    shell.stop(app)
    assert handled == [1, 2]
    assert [letter.value for letter in kafka.consume_all(dead)] == [b"not json", b'{"no":1}']


def test_producers_write_ids(kafka: Any, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, message_ids=True) as producer:
        producer.send(kafka_topic, b"made")
        producer.send(kafka_topic, b"given", message_id="mine")
        producer.send_many(kafka_topic, [(b"many",), (b"own", None, [("ottla-id", b"x")])])

    async def send_async() -> None:
        async with AsyncProducer(kafka.bootstrap_servers, message_ids=True) as producer:
            await producer.send(kafka_topic, b"made")
            await producer.send(kafka_topic, b"given", message_id="mine")
            await (await producer.send_many(kafka_topic, [(b"many",), (b"own", None, [("ottla-id", b"x")])]))

    asyncio.run(send_async())
    found = [dict(record.headers)["ottla-id"] for record in kafka.consume_all(kafka_topic)]
    assert found[1::4] == [b"mine", b"mine"]
    assert found[3::4] == [b"x", b"x"]
    made = found[0::4] + found[2::4]
    assert len(set(made)) == 4, "every made id differs"
