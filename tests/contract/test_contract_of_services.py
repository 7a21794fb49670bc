"""Services of the SDK on either broker: both shells, retry topics, delayed messages, batches and columns."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from apache_kafka import wanted
from apps_in_threads import serving

from ottla import (
    App,
    AsyncConsumer,
    AsyncProducer,
    BrokerTooOld,
    Consumer,
    Dead,
    Json,
    Producer,
    Record,
    RetryPolicy,
    RetryTopics,
    Str,
)
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import wait_until

pytestmark = [pytest.mark.client_contract, pytest.mark.timeout(300)]

WAIT_S = 120.0
SHELLS = pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])


class Refused(Exception):
    """What a handler raises where no retry helps."""


def await_all(ended: list[Exception], condition: Callable[[], bool], what: str) -> None:
    wait_until(lambda: bool(ended) or condition(), timeout_s=WAIT_S, what=what)
    assert ended == []


def records_of(servers: str, topic: str) -> list[Record[Any]]:
    """All records of a topic, once it has some."""
    with Consumer(topic, group=uuid.uuid4().hex, bootstrap_servers=servers, value=Json(), key=Str()) as consumer:
        return [next(iter(consumer))]


@pytest.mark.representative("asyncio")
@SHELLS
def test_failures_go_through_retry_topics_and_dead_letters(kafka: Any, bootstrap_servers: str, is_async: bool) -> None:
    topic, dead = kafka.create_topic(partitions=2), kafka.create_topic()
    group = f"services-{uuid.uuid4().hex[:8]}"
    app = App(group, bootstrap_servers=bootstrap_servers, dead_letter_topic=dead, create_topics=True)
    tried: Counter[int] = Counter()

    def handle(record: Record[int]) -> None:
        tried[record.value] += 1
        if record.value == 3 and tried[3] < 3:
            raise TimeoutError("the database is away")
        if record.value == 5:
            raise Refused("never")

    async def handle_async(record: Record[int]) -> None:
        handle(record)

    app.handler(
        topic,
        value=Json(int),
        key=Str(),
        retry=RetryPolicy(max_attempts=1),
        retry_topics=RetryTopics(delays_s=(0.2, 0.5)),
        on_error={Refused: Dead("refused")},
    )(handle_async if is_async else handle)
    with Producer(bootstrap_servers, value=Json(), key=Str()) as producer:
        producer.send_many(topic, [(number, str(number % 4)) for number in range(8)])
    with serving(app, is_async=is_async) as ended:
        await_all(ended, lambda: tried[3] == 3 and len(tried) == 8, "all records, and the third attempt of one")
        (letter,) = records_of(bootstrap_servers, dead)
    assert (letter.value, letter.key) == (5, "1")
    assert {number: times for number, times in tried.items() if times > 1} == {3: 3}


@SHELLS
def test_batches_commit_what_they_handled(kafka: Any, bootstrap_servers: str, is_async: bool) -> None:
    topic, group = kafka.create_topic(partitions=2), f"services-{uuid.uuid4().hex[:8]}"
    seen: list[int] = []

    def made() -> App:
        app = App(group, bootstrap_servers=bootstrap_servers)

        @app.handler(topic, value=Json(int), batch=True, max_batch=50)
        def handle(numbers: list[int]) -> None:
            seen.extend(numbers)

        return app

    with Producer(bootstrap_servers, value=Json()) as producer:
        producer.send_many(topic, [(number,) for number in range(200)])
        with serving(made(), is_async=is_async) as ended:
            await_all(ended, lambda: len(seen) >= 200, "two hundred records")
        producer.send_many(topic, [(number,) for number in range(200, 210)])
    with serving(made(), is_async=is_async) as ended:
        await_all(ended, lambda: len(seen) >= 210, "those that came later")
    assert sorted(seen) == list(range(210))


def test_columns_are_read_and_written(kafka: Any, bootstrap_servers: str) -> None:
    source, target = kafka.create_topic(partitions=2), kafka.create_topic()
    app = App(f"services-{uuid.uuid4().hex[:8]}", bootstrap_servers=bootstrap_servers)

    @app.handler(source, value=Json(int), columns=True, to=target)
    def double(batch: pa.RecordBatch) -> pa.Table:
        doubled = pa.compute.multiply(batch.column("value"), 2)
        return pa.table({"value": pa.array([str(number).encode() for number in doubled.to_pylist()])})

    with Producer(bootstrap_servers, value=Json()) as producer:
        producer.send_many(source, [(number,) for number in range(100)])
    with (
        serving(app, is_async=False) as ended,
        Consumer(target, group=uuid.uuid4().hex, bootstrap_servers=bootstrap_servers, value=Json(int)) as consumer,
    ):
        found: list[Any] = [record.value for _, record in zip(range(100), consumer, strict=False)]
        assert ended == []
    assert sorted(found) == [2 * number for number in range(100)]


def test_a_delayed_message_is_delivered_when_it_is_due(kafka: Any, bootstrap_servers: str) -> None:
    topic, schedule = kafka.create_topic(), f"schedule-{uuid.uuid4().hex[:8]}"
    with Scheduler(bootstrap_servers, name=schedule) as scheduler:
        thread = threading.Thread(target=scheduler.run, daemon=True)
        thread.start()
        begun_ms = time.time() * 1_000
        with Producer(bootstrap_servers, value=Json(), schedule=schedule) as producer:
            producer.send(topic, 1, deliver_after=0.5).result(60)
        (record,) = records_of(bootstrap_servers, topic)
        scheduler.stop()
        thread.join(WAIT_S)
    assert record.value == 1
    assert record.timestamp_ms >= begun_ms + 500


def test_the_asyncio_clients_write_and_read(kafka: Any, bootstrap_servers: str) -> None:
    topic = kafka.create_topic(partitions=2)

    async def run() -> list[int]:
        async with AsyncProducer(bootstrap_servers, value=Json(), key=Str()) as producer:
            await producer.send_many(topic, [(number, "a") for number in range(20)])
        found: list[Any] = []
        async with AsyncConsumer(
            topic, group=uuid.uuid4().hex, bootstrap_servers=bootstrap_servers, value=Json(int)
        ) as consumer:
            async for record in consumer:
                found.append(record.value)
                if len(found) == 20:
                    break
        return found

    assert asyncio.run(asyncio.wait_for(run(), WAIT_S)) == list(range(20))


@pytest.mark.parametrize("columns", [False, True], ids=["threads", "columns"])
def test_the_next_generation_protocol_works_or_is_refused_at_the_start(
    kafka: Any, bootstrap_servers: str, columns: bool
) -> None:
    topic = kafka.create_topic()
    settings = {"group.protocol": "consumer"}
    app = App(f"services-{uuid.uuid4().hex[:8]}", bootstrap_servers=bootstrap_servers, settings=settings)
    seen: list[Any] = []
    if columns:

        @app.handler(topic, value=Json(int), columns=True)
        def handle_batch(batch: pa.RecordBatch) -> None:
            seen.extend(batch.column("value").to_pylist())

    else:

        @app.handler(topic, value=Json(int))
        def handle(number: int) -> None:
            seen.append(number)

    if (version := wanted() or "4") < "4":
        with pytest.raises(BrokerTooOld, match=rf"group\.protocol.*Kafka {version[:3]}.*Kafka 4\.0 or newer"):
            app.run(handle_signals=False)
        return
    with Producer(bootstrap_servers, value=Json()) as producer:
        producer.send(topic, 1).result(60)
    with serving(app, is_async=False) as ended:
        await_all(ended, lambda: bool(seen), "a record")
