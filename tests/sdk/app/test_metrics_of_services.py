"""Metrics of services through real clients, against a plain recount of what happened."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from metric_values import Collected, collected_metrics

from ottla import (
    App,
    AsyncProducer,
    CommitPolicy,
    DeliveryError,
    Json,
    Producer,
    RecordTooLarge,
    RetryPolicy,
    Skip,
    TopicPartition,
)
from ottla.telemetry import Counters, Hooks
from ottla.telemetry.metrics.metrics_table import METRICS

OFTEN = CommitPolicy(every_s=0.05)
TWICE = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)
SHELLS = ["threads", "asyncio", "columns"]


@pytest.fixture
def metrics() -> Iterator[Collected]:
    with collected_metrics() as made:
        yield made


@pytest.mark.representative("asyncio")
def test_counters_are_a_recount_of_what_happened(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, metrics: Collected
) -> None:
    topic, dead = make_topic("orders", partitions=2), make_topic("dead")
    told: Counter[str] = Counter()
    own = Counters()
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=OFTEN,
        retry=TWICE,
        dead_letter_topic=dead,
        hooks=own,
    )

    @app.handler(topic, value=Json(), name="handle")
    def handle(value: int) -> Any:
        told["called"] += 1
        if value % 10 == 1:
            told["raised"] += 1
            raise RuntimeError("never")
        if value % 10 == 2:
            told["skipped"] += 1
            return Skip("old")
        told["handled"] += 1
        return None

    with Producer(kafka.bootstrap_servers) as producer:
        for value in range(100):
            producer.send(topic, b"%d" % value if value % 10 != 3 else b"no json", partition=value % 2)
    shell.start(app)
    wait(lambda: committed(app.group, topic, 0) == committed(app.group, topic, 1) == 50, timeout_s=40)
    shell.stop(app)
    letters = len(kafka.consume_all(dead))

    def value(name: str, **labels: Any) -> float | None:
        return metrics.value(name, messaging__consumer__group__name=kafka_group, **labels)

    def records(outcome: str) -> float | None:
        return value("ottla.handler.records", ottla__outcome=outcome)

    assert told == {"called": 100, "raised": 20, "skipped": 10, "handled": 70}
    assert value("messaging.client.consumed.messages") == 100
    assert records("handled") == told["handled"] + told["skipped"]
    assert records("skipped") == told["skipped"]
    assert records("failed") == told["raised"] + 10  # and the malformed ones
    assert records("malformed") == 10
    decided = {
        (labels["ottla.event"], labels["ottla.failure.kind"], labels["ottla.attempt"]): point.value
        for labels, point in metrics.points("ottla.consumer.failures", messaging__consumer__group__name=kafka_group)
    }
    assert decided == {
        ("record_retried", "failed", "1"): 10,
        ("record_dead_lettered", "failed", "2"): 10,
        ("record_dead_lettered", "malformed", "1"): 10,
    }
    assert letters == 20
    assert metrics.value("messaging.client.sent.messages", messaging__destination__name=topic) == 100
    assert metrics.value("messaging.client.sent.messages", messaging__destination__name=dead) == 20
    assert value("ottla.consumer.events", ottla__event="record_dead_lettered") == 20
    assert value("messaging.process.duration") == value("ottla.consumer.end_to_end.duration")
    assert (own["handled"], own["failed"], own["malformed"], own["record_dead_lettered"]) == (80, 30, 10, 20)
    assert value("ottla.consumer.commits", error__type=None) == own["commits"]
    commits = value("messaging.client.operation.duration", messaging__operation__name="commit", error__type=None)
    assert commits == own["commits"]
    assert value("ottla.consumer.rebalance.duration", ottla__rebalance__kind="assigned") is not None
    assert value("ottla.consumer.lag.records") is None, "the member is gone"


@pytest.mark.representative("asyncio")
def test_lag_stays_right_while_a_partition_is_paused_and_goes_when_it_is_done(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, metrics: Collected
) -> None:
    topic = make_topic("orders", partitions=2)
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, unready_after_s=2)

    @app.handler(topic, name="handle")
    def handle(value: bytes) -> None:
        return

    def lag(name: str, partition: int) -> float | None:
        labels = {"messaging__destination__name": topic, "messaging__destination__partition__id": str(partition)}
        return metrics.value(f"ottla.consumer.lag.{name}", **labels)

    def paused_by_user() -> float | None:
        labels = {"messaging__destination__name": topic, "ottla__pause__reason": "user"}
        return metrics.value("ottla.consumer.partitions.paused", **labels)

    shell.start(app)
    wait(lambda: lag("records", 0) == 0 and lag("records", 1) == 0, timeout_s=30)
    shell.ask(app, lambda runner: runner.pause(TopicPartition(topic, 0)))
    sent_s = time.time()
    kafka.produce(topic, [b"x"] * 30, partition=0)
    kafka.produce(topic, [b"x"] * 30, partition=1)
    wait(lambda: lag("records", 0) == 30 and lag("records", 1) == 0, timeout_s=30)
    paused = paused_by_user()
    wait(lambda: (lag("age", 0) or 0) > 1.5, timeout_s=30)
    age, passed_s = lag("age", 0), time.time() - sent_s
    shell.ask(app, lambda runner: runner.resume())
    wait(lambda: lag("records", 0) == 0 and lag("age", 0) == 0, timeout_s=30)

    assert paused == 1
    assert age is not None
    assert age <= passed_s + 0.1
    assert paused_by_user() is None


@pytest.mark.representative("columns")
def test_the_oldest_record_and_its_age_are_seen_while_a_handler_keeps_it(
    shell: Any, kafka: Any, kafka_group: str, kafka_topic: str, wait: Any, metrics: Collected
) -> None:
    import threading

    may_go = threading.Event()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(kafka_topic, name="handle")
    def handle(value: bytes) -> None:
        assert may_go.wait(60)

    def value(name: str) -> float:
        return metrics.value(f"ottla.{name}", messaging__consumer__group__name=kafka_group) or 0

    minute_ago_ms = round(time.time() * 1_000) - 60_000
    with Producer(kafka.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send(kafka_topic, b"1", timestamp_ms=minute_ago_ms)
    shell.start(app)
    try:
        wait(lambda: value("consumer.oldest_unfinished.age") > 0.5, timeout_s=30)
        wait(lambda: value("consumer.lag.age") >= 60, timeout_s=30)
        wait(lambda: value("consumer.buffer.records") == 5, timeout_s=30)  # they may come one by one
        assert value("consumer.lag.records") == 5
        assert value("handler.batches.in_flight") == 1
    finally:
        may_go.set()
    shell.stop(app)
    end_to_end = metrics.points("ottla.consumer.end_to_end.duration", messaging__consumer__group__name=kafka_group)
    (point,) = [point for _, point in end_to_end]
    assert point.min >= 60


@pytest.mark.representative("asyncio")
def test_every_metric_and_label_is_in_the_table(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, metrics: Collected
) -> None:
    topic, dead = make_topic("orders"), make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, retry=TWICE, dead_letter_topic=dead)

    @app.handler(topic, name="handle")
    def handle(value: bytes) -> None:
        raise RuntimeError("never")

    kafka.produce(topic, [b"1"])
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 1, timeout_s=30)
    of_topic = {"messaging__destination__name": topic}
    wait(lambda: metrics.value("ottla.consumer.lag.records", **of_topic) == 0, timeout_s=30)
    names = metrics.names()
    shell.stop(app)

    known = METRICS | {row.before: row for row in METRICS.values() if row.before}
    assert set(names) <= set(known)
    assert len(names) > 15
    for name, labels in names.items():
        assert labels <= set(known[name].attributes), name


class Broken(Hooks):
    """Hooks that raise whatever they are told."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise ValueError("broken hooks")


@pytest.mark.representative("columns")
def test_broken_hooks_stop_nothing(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any
) -> None:
    topic, dead = make_topic("orders"), make_topic("dead")
    app = App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=OFTEN,
        retry=TWICE,
        dead_letter_topic=dead,
        hooks=Broken(),
    )
    handled: list[bytes] = []

    @app.handler(topic, name="handle")
    def handle(value: bytes) -> None:
        if value == b"2":
            raise RuntimeError("never")
        handled.append(value)

    kafka.produce(topic, [b"1", b"2", b"3"])
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 3, timeout_s=30)
    assert app.health().is_ready
    shell.stop(app)

    assert handled == [b"1", b"3"]
    assert len(kafka.consume_all(dead)) == 1


def test_what_was_sent_and_what_failed_is_counted_once(kafka: Any, make_topic: Any, metrics: Collected) -> None:
    topic = make_topic("orders")
    with Producer(kafka.bootstrap_servers, settings={"client.id": topic}) as producer:
        for _ in range(1_000):
            producer.send(topic, b"1")
        producer.send_many(topic, [(b"2",)] * 500).result(30)
        with pytest.raises(RecordTooLarge):
            producer.send(topic, b"x" * 3_000_000)
        producer.flush()

    assert metrics.value("messaging.client.sent.messages", messaging__client__id=topic) == 1_500
    assert metrics.value("ottla.producer.queue", messaging__client__id=topic) == 0
    timed = metrics.value("messaging.client.operation.duration", messaging__client__id=topic)
    assert timed is not None
    assert 1 <= timed < 1_000, "one in many"


def test_records_that_are_given_up_are_counted_by_their_error(metrics: Collected) -> None:
    settings = {"client.id": "gives-up", "delivery.timeout.ms": 300, "linger.ms": 0, "request.timeout.ms": 200}
    producer = Producer("127.0.0.1:1", settings=settings)
    for _ in range(7):
        producer.send("orders", b"1")
    with pytest.raises(DeliveryError):
        producer.close()

    (found,) = metrics.points("messaging.client.sent.messages", messaging__client__id="gives-up")
    labels, point = found
    assert (labels["messaging.destination.name"], point.value) == ("orders", 7)
    assert labels["error.type"]


async def test_async_sends_are_counted_too(kafka: Any, kafka_topic: str, metrics: Collected) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, settings={"client.id": kafka_topic}) as producer:
        for _ in range(100):
            producer.send(kafka_topic, b"1")
        await (await producer.send_many(kafka_topic, [(b"2",)] * 50))

    assert metrics.value("messaging.client.sent.messages", messaging__client__id=kafka_topic) == 150
    assert metrics.value("messaging.client.operation.duration", messaging__client__id=kafka_topic) is not None
