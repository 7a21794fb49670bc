"""Logs that are cut, or replaced by another, or cannot be read, under a service that runs: seen through its clients."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from wire_client import WireClient

from ottla import App, CommitPolicy, Json, TopicPartition
from ottla.telemetry import Hooks
from ottla.testing.topics import create_topic
from ottla_wire.protocol import ApiKey
from ottla_wire.records import CompressionType, RecordData, crc32c, encode_batch

SHELLS = ["threads", "asyncio", "columns"]

OFTEN = CommitPolicy(every_s=0.05)


class Told(Hooks):
    def __init__(self) -> None:
        self.events: list[str] = []

    def event(self, *, group: str, event: str) -> None:
        self.events.append(event)


def delete_records(kafka: Any, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([ClientPartition(topic, 0, before)]).values():
        future.result(10)


def counting(kafka: Any, group: str, topic: str, **options: Any) -> tuple[App, Told, list[int]]:
    told = Told()
    seen: list[int] = []
    app = App(group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, hooks=told, **options)

    @app.handler(topic, value=Json())
    def handle(value: int) -> None:
        seen.append(value)

    return app, told, seen


@pytest.mark.representative("columns")
def test_records_that_retention_took_from_a_group_are_told(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any, committed: Any, capsys: Any
) -> None:
    kafka.produce(kafka_topic, range(500), value=Json(), partition=0)
    first, told, seen = counting(kafka, kafka_group, kafka_topic)
    shell.start(first)
    wait(lambda: committed(kafka_group, kafka_topic) == 500)
    shell.stop(first)
    assert told.events.count("records_lost_before_read") == 0
    kafka.produce(kafka_topic, range(500, 1_000), value=Json(), partition=0)
    delete_records(kafka, kafka_topic, 900)

    second, told, seen = counting(kafka, kafka_group, kafka_topic)
    shell.start(second)
    wait(lambda: "records_lost_before_read" in told.events)
    shell.stop(second)
    assert seen == list(range(900, 1_000))
    log = capsys.readouterr().err
    assert '"from": 500' in log
    assert '"to": 900' in log


def test_a_commit_beyond_the_end_of_the_log_is_told(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(5), value=Json(), partition=0)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": kafka_group})
    consumer.commit(offsets=[ClientPartition(kafka_topic, 0, 100)], asynchronous=False)
    consumer.close()
    app, told, seen = counting(kafka, kafka_group, kafka_topic)
    shell.start(app)
    wait(lambda: seen == list(range(5)))
    wait(lambda: "log_truncated" in told.events)
    shell.stop(app)


@pytest.mark.representative("threads")
def test_records_that_retention_took_from_a_running_member_are_told(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, range(10), value=Json(), partition=0)
    app, told, seen = counting(kafka, kafka_group, kafka_topic)
    shell.start(app)
    wait(lambda: len(seen) == 10)
    shell.ask(app, lambda runner: runner.pause(TopicPartition(kafka_topic, 0)))
    kafka.produce(kafka_topic, range(10, 100), value=Json(), partition=0)
    delete_records(kafka, kafka_topic, 90)
    shell.ask(app, lambda runner: runner.resume(TopicPartition(kafka_topic, 0)))

    wait(lambda: seen[-1:] == [99])
    # What the client had fetched before the pause reached it is not lost.
    wait(lambda: "records_lost_before_read" in told.events or len(seen) == 100)


@pytest.mark.representative("asyncio")
def test_a_topic_that_is_made_again_under_a_running_member_is_read_from_its_start(
    shell: Any, kafka: Any, kafka_group: str, wait: Any
) -> None:
    topic = kafka.fresh_name("again")
    create_topic(kafka.bootstrap_servers, topic)
    kafka.produce(topic, range(100), value=Json(), partition=0)
    app, _, seen = counting(kafka, kafka_group, topic)
    shell.start(app)
    wait(lambda: len(seen) == 100)
    wait(lambda: topic_is_known(app, topic))  # what is gone before the first look at its log cannot be told apart

    kafka.delete_topics([topic])
    create_topic(kafka.bootstrap_servers, topic)
    kafka.produce(topic, range(1_000, 1_300), value=Json(), partition=0)
    wait(lambda: set(range(1_000, 1_300)) <= set(seen), timeout_s=40)
    shell.stop(app)


def topic_is_known(app: App, topic: str) -> bool:
    (member,) = app.runner.members.values()
    return member._session._partitions[TopicPartition(topic, 0)].log.topic_id is not None


def produce_bytes(kafka: Any, topic: str, batch: bytes) -> None:
    client = WireClient(kafka.bootstrap_servers)
    body = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
    }
    answer = client.call(ApiKey.PRODUCE, 9, body)
    client.close()
    assert answer.responses[0].partition_responses[0].error_code == 0


def bomb() -> bytes:
    """200 MB of zeros, in a few kilobytes: more than librdkafka inflates. aiokafka inflates whatever it is given."""
    record = RecordData(0, 1_700_000_000_000, b"k", bytes(200_000_000), [])
    return encode_batch([record], compression=CompressionType.ZSTD)


def garbage() -> bytes:
    """A batch of a codec that its bytes are not of, with the right checksum."""
    batch = bytearray(encode_batch([RecordData(0, 1_700_000_000_000, b"k", b"v" * 100, [])]))
    batch[22] = CompressionType.ZSTD  # the low byte of the attributes
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    return bytes(batch)


@pytest.mark.representative("threads-garbage")
@pytest.mark.parametrize(
    ("shell", "batch"), [("threads", bomb), ("threads", garbage), ("asyncio", garbage)], indirect=["shell"]
)
def test_a_batch_that_the_client_cannot_read_makes_unready_with_the_reason(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None], batch: Callable[[], bytes]
) -> None:
    app, _, seen = counting(kafka, kafka_group, kafka_topic, unready_after_s=1.0)
    shell.start(app)
    kafka.produce(kafka_topic, [1], value=Json(), partition=0)
    wait(lambda: len(seen) == 1)
    produce_bytes(kafka, kafka_topic, batch())
    kafka.produce(kafka_topic, [2], value=Json(), partition=0)

    wait(lambda: not app.health().is_ready)
    (problem,) = app.health().problems
    assert f"{kafka_topic}-0: nothing comes from offset 1 on, although the log goes on to 3" in problem
    assert "the client says" in problem
    assert app.health().is_alive
    shell.ask(app, lambda runner: runner.seek(TopicPartition(kafka_topic, 0), 2))
    wait(lambda: seen == [1, 2] and app.health().is_ready)


def test_no_thread_that_looks_at_logs_outlives_its_app(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    kafka.produce(kafka_topic, [1], value=Json(), partition=0)
    app, _, seen = counting(kafka, kafka_group, kafka_topic)
    shell.start(app)
    wait(lambda: len(seen) == 1)
    wait(lambda: any(thread.name == f"ottla-{kafka_group}-logs" for thread in threading.enumerate()))
    shell.stop(app)

    assert not any(thread.name == f"ottla-{kafka_group}-logs" for thread in threading.enumerate())
