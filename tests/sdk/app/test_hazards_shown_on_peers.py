"""What `docs/comparison.md` says that other clients do to records, where no other test of ours has the case yet."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from ottla import App, Avro, CommitPolicy, Json
from ottla.serdes import SerdeContext
from ottla.testing.registry import EmbeddedRegistry
from ottla.testing.registry.state import RegistryRefusal

LONG = '"long"'
QUICK_SESSIONS = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}


def _app(group: str, kafka: Any, **options: Any) -> App:
    return App(group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05), **options)


def test_headers_that_are_no_text_reach_the_handler_as_they_are(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    from confluent_kafka import Producer

    headers = [
        [("trace", b"text")],
        [("trace", b"\xff\xfe")],
        [("trace", None)],
        [("trace", b"1"), ("trace", b"2")],
        [],
    ]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for each in headers:
        producer.produce(kafka_topic, b"x", partition=0, headers=each)
    producer.flush(10)
    seen: list[Any] = []
    app = _app(kafka_group, kafka)

    @app.handler(kafka_topic)
    def handle(record: Any) -> None:
        seen.append(list(record.headers))

    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == len(headers))

    assert seen == headers


def test_what_is_committed_at_a_stop_was_handled_although_handlers_run_side_by_side(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    kafka.produce(kafka_topic, list(range(200)), value=Json())
    handled: set[int] = set()
    app = _app(kafka_group, kafka)

    @app.handler(kafka_topic, value=Json(), concurrency=4, ordering="unordered")
    async def handle(value: int) -> None:
        await asyncio.sleep(0.05)
        handled.add(value)

    shell.start(app)
    wait(lambda: len(handled) >= 20)
    shell.stop(app)

    offset = committed(kafka_group, kafka_topic)
    assert offset > 0
    assert set(range(offset)) <= handled


def test_no_offset_is_committed_over_a_record_that_is_under_way(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    kafka.produce(kafka_topic, list(range(10)), value=Json())
    handled: dict[str, set[int]] = {"first": set(), "second": set()}
    may_end = threading.Event()

    def make(name: str) -> App:
        app = _app(kafka_group, kafka, drain_s=0.2, settings=QUICK_SESSIONS)

        @app.handler(kafka_topic, value=Json(), concurrency=2, ordering="unordered", max_records_per_turn=1)
        def handle(value: int) -> None:
            if name == "first" and value == 0:
                may_end.wait(60)  # as if the process died here: it does not come back while the member lives
                raise RuntimeError("too late")
            handled[name].add(value)

        return app

    first = shell.start(make("first"))
    wait(lambda: handled["first"] == set(range(1, 10)), timeout_s=60)
    shell.stop(first)
    assert committed(kafka_group, kafka_topic) <= 0
    second = shell.start(make("second"))
    wait(lambda: committed(kafka_group, kafka_topic) == 10, timeout_s=60)
    may_end.set()
    shell.stop(second)

    assert 0 in handled["second"]


@pytest.mark.representative("asyncio-Unauthorized")
@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError("away"),
        RegistryRefusal(401, 40101, "Unauthorized"),
        RegistryRefusal(403, 40301, "User is denied operation Read on Subject"),
        RegistryRefusal(404, 50001, "Error in the backend datastore"),
    ],
    ids=str,
)
def test_a_registry_that_is_away_makes_records_wait_and_an_unknown_schema_does_not(
    problem: Exception, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    class Registry(EmbeddedRegistry):
        is_away = False

        def answer(self, method: str, path: str, body: Any) -> Any:
            if self.is_away:
                self.refused += 1
                raise problem.with_traceback(None)
            return super().answer(method, path, body)

        refused = 0

    topic, dead_topic = make_topic("orders"), make_topic("dead")
    handled: list[int] = []
    with Registry() as registry:
        good = Avro(LONG, registry=registry.url).serialize(7, SerdeContext(topic))
        kafka.produce(topic, [good, b"\0\0\0\0\x63\x02", good], value=bytes)
        registry.is_away = True
        app = _app(kafka_group, kafka)

        @app.handler(topic, value=Avro(LONG, registry=registry.url), dead_letter_topic=dead_topic)
        def handle(value: int) -> None:
            handled.append(value)

        shell.start(app)
        wait(lambda: registry.refused >= 2, timeout_s=60)
        assert handled == []
        assert kafka.consume_all(dead_topic) == []
        registry.is_away = False
        wait(lambda: committed(kafka_group, topic) == 3, timeout_s=60)
        shell.stop(app)

    assert handled == [7, 7]
    assert [letter.raw_value for letter in kafka.consume_all(dead_topic)] == [b"\0\0\0\0\x63\x02"]


async def test_a_backlog_leaves_the_event_loop_to_other_tasks(kafka: Any, kafka_topic: str, kafka_group: str) -> None:
    records = 20_000
    kafka.produce(kafka_topic, [b"x"] * records, value=bytes)
    seen = 0
    app = _app(kafka_group, kafka)

    @app.handler(kafka_topic)
    async def handle(value: bytes) -> None:
        nonlocal seen
        seen += 1

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(app.serve())
        while not seen:  # noqa: ASYNC110 - polling is what another task would do
            await asyncio.sleep(0.001)
        turns, began = 0, time.perf_counter()
        while seen < records:
            await asyncio.sleep(0)
            turns += 1
        took_s = time.perf_counter() - began
        app.stop()
        await serving

    # Every few milliseconds; a loop that is kept until the backlog is done gives a handful of turns in all.
    assert turns >= took_s / 0.1


def test_a_group_of_the_next_generation_protocol_starts_and_commits(
    kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    from ottla.testing.running import RunningApp

    kafka.produce(kafka_topic, [1, 2, 3], value=Json())
    seen: list[int] = []
    app = _app(kafka_group, kafka, settings={"group.protocol": "consumer"})

    @app.handler(kafka_topic, value=Json())
    def handle(value: int) -> None:
        seen.append(value)

    with RunningApp(app, kafka.bootstrap_servers):
        wait(lambda: committed(kafka_group, kafka_topic) == 3)

    assert seen == [1, 2, 3]
