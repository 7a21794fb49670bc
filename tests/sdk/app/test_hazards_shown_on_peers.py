"""What `docs/comparison.md` says that other clients do to records, where no other test of ours has the case yet."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ottla import App, CommitPolicy, Json


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
