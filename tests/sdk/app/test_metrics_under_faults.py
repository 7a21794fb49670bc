"""Metrics against a recount while members come and go, brokers refuse and die, and records cannot be decoded."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from metric_values import Collected, collected_metrics

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla import App, AsyncProducer, CommitPolicy, DeliveryError, Int64, Json, LifecycleError, Producer, RetryPolicy
from ottla.telemetry import Counters

OFTEN = CommitPolicy(every_s=0.05)
QUICK = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)
ENOUGH = 90
SHELLS = ["threads", "asyncio", "columns"]


@pytest.fixture
def metrics() -> Iterator[Collected]:
    with collected_metrics() as made:
        yield made


class OfGroup:
    """The metrics of one group."""

    def __init__(self, metrics: Collected, group: str) -> None:
        self._metrics, self._group = metrics, group

    def value(self, name: str, **labels: Any) -> float:
        return self._metrics.value(name, messaging__consumer__group__name=self._group, **labels) or 0

    def by(self, name: str, label: str) -> dict[str, float]:
        """The figure of each value of a label."""
        found: Counter[str] = Counter()
        for labels, point in self._metrics.points(name, messaging__consumer__group__name=self._group):
            found[labels[label]] += point.value if hasattr(point, "value") else point.count
        return dict(found)


@pytest.mark.representative("asyncio")
def test_members_that_come_and_go_are_counted_and_lag_stays_right(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, metrics: Collected
) -> None:
    topic, of_group = make_topic("orders", partitions=4), OfGroup(metrics, kafka_group)
    partitions = range(4)
    own, lock = Counters(), threading.Lock()
    called: Counter[bytes] = Counter()
    may_go = threading.Event()
    may_go.set()

    def member() -> App:
        settings = {"heartbeat.interval.ms": 200}
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, hooks=own, settings=settings)

        @app.handler(topic, name="handle")
        def handle(value: bytes) -> None:
            assert may_go.wait(ENOUGH)
            with lock:
                called[value] += 1

        return app

    def send(first: int) -> None:
        with Producer(kafka.bootstrap_servers) as producer:
            for number in range(first, first + 100):
                producer.send(topic, b"%d" % number, partition=number % 4)

    def assigned() -> float:
        return of_group.value("ottla.consumer.partitions")

    def settled(records: int) -> None:
        wait(lambda: all(committed(kafka_group, topic, each) == records // 4 for each in partitions), timeout_s=ENOUGH)

    def owned(app: App) -> int:
        try:
            return len(app.runner.members[kafka_group].assignment())
        except LifecycleError:  # it does not run yet
            return 0

    def lag() -> dict[str, float]:
        return of_group.by("ottla.consumer.lag.records", "messaging.destination.partition.id")

    first, second = member(), member()
    shell.start(first)
    send(0)
    settled(100)
    wait(lambda: assigned() == 4, timeout_s=ENOUGH)
    before = of_group.by("ottla.consumer.rebalance.duration", "ottla.rebalance.kind")
    shell.start(second)
    wait(lambda: owned(second) == 2, timeout_s=ENOUGH)
    wait(lambda: assigned() == 4, timeout_s=ENOUGH)
    may_go.clear()
    send(100)
    wait(lambda: lag() == {str(each): 25 for each in partitions}, timeout_s=ENOUGH)
    may_go.set()
    settled(200)
    wait(lambda: lag() == {str(each): 0 for each in partitions}, timeout_s=ENOUGH)
    shell.stop(first)
    send(200)
    settled(300)
    wait(lambda: assigned() == 4 and lag() == {str(each): 0 for each in partitions}, timeout_s=ENOUGH)
    shell.stop(second)

    assert set(before) == {"assigned"}
    after = of_group.by("ottla.consumer.rebalance.duration", "ottla.rebalance.kind")
    assert after["assigned"] >= 3
    assert after["revoked"] >= 1
    assert len(called) == 300
    assert of_group.value("ottla.handler.records", ottla__outcome="handled") == called.total() == own["handled"]
    assert of_group.value("ottla.handler.records", ottla__outcome="failed") == 0
    assert of_group.value("messaging.client.consumed.messages") == own["fetched"] >= called.total()
    assert of_group.value("ottla.consumer.commits", error__type=None) == own["commits"] > 0
    assert (lag(), assigned()) == ({}, 0)


@pytest.mark.representative("columns")
def test_what_brokers_refuse_is_counted_and_nothing_twice(shell: Any, wait: Any, metrics: Collected) -> None:
    of_group = OfGroup(metrics, "refused")
    own, called = Counters(), Counter[int]()
    with EmbeddedCluster() as kafka:
        for topic in ("orders", "dead"):
            kafka.create_topic(topic)
        app = App(
            "refused",
            bootstrap_servers=kafka.bootstrap_servers,
            commit=OFTEN,
            retry=QUICK,
            dead_letter_topic="dead",
            hooks=own,
        )

        @app.handler("orders", value=Json(), name="handle")
        def handle(value: int) -> None:
            called[value] += 1
            if value % 10 == 0:
                raise RuntimeError("never")

        with (
            kafka.faults.add(
                api="OFFSET_COMMIT", group="refused", error="GROUP_AUTHORIZATION_FAILED", count=2
            ) as commits,
            kafka.faults.add(api="PRODUCE", topic="dead", error="NOT_ENOUGH_REPLICAS", count=3) as letters,
            kafka.faults.add(api="PRODUCE", topic="orders", disconnect=True, after_apply=True, count=1) as lost,
            kafka.faults.add(api="FETCH", topic="orders", error="NOT_LEADER_OR_FOLLOWER", count=2) as fetches,
        ):
            shell.start(app)
            with Producer(kafka.bootstrap_servers, value=Json(), settings={"client.id": "refused"}) as producer:
                for number in range(50):
                    producer.send("orders", number)
            wait(lambda: of_group.value("ottla.handler.records", ottla__outcome="handled") == 45, timeout_s=ENOUGH)
            wait(lambda: own["record_dead_lettered"] == 5, timeout_s=ENOUGH)
            wait(lambda: of_group.value("ottla.consumer.commits", error__type="refused") == 2, timeout_s=ENOUGH)
            for fault in (commits, letters, lost, fetches):
                fault.wait(hits=1)
        wait(lambda: of_group.value("ottla.consumer.lag.records") == 0, timeout_s=ENOUGH)
        shell.stop(app)

    assert called == Counter({number: 2 if number % 10 == 0 else 1 for number in range(50)})
    assert of_group.value("ottla.handler.records", ottla__outcome="failed") == 10
    assert of_group.by("ottla.consumer.failures", "ottla.event") == {"record_retried": 5, "record_dead_lettered": 5}
    assert of_group.value("ottla.consumer.commits", error__type=None) == own["commits"]
    assert metrics.value("messaging.client.sent.messages", messaging__client__id="refused", error__type=None) == 50
    assert metrics.value("messaging.client.sent.messages", messaging__destination__name="dead", error__type=None) == 5


def test_what_cannot_be_decoded_is_counted_by_its_serde(
    shell: Any, kafka: Any, kafka_group: str, make_topic: Any, committed: Any, wait: Any, metrics: Collected
) -> None:
    topic, dead, batched = make_topic("orders"), make_topic("dead"), make_topic("batched")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead)

    @app.handler(topic, value=Json(int), key=Int64(), name="handle")
    def handle(value: int) -> None:
        return

    @app.handler(batched, value=Json(int), name="handle_batch", batch=True)
    def handle_batch(values: list[int]) -> None:
        return

    good = (3).to_bytes(8, "big")
    with Producer(kafka.bootstrap_servers) as producer:
        for value, key in ((b"1", good), (b"no json", good), (b'"text"', good), (b"{", good), (b"2", b"short")):
            producer.send(topic, value, key=key)
        for value in (b"1", b"[", b"2"):
            producer.send(batched, value)
    shell.start(app)
    wait(lambda: committed(app.group, topic) == 5 and committed(app.group, batched) == 3, timeout_s=ENOUGH)
    shell.stop(app)

    labels = ("ottla.handler", "ottla.serde", "ottla.record.part", "ottla.failure.kind")
    found = {
        tuple(own[label] for label in labels): point.value
        for own, point in metrics.points("ottla.consumer.malformed", messaging__consumer__group__name=kafka_group)
    }
    assert found == {
        ("handle", "Json", "value", "malformed"): 2,
        ("handle", "Json", "value", "invalid"): 1,
        ("handle", "Int64", "key", "malformed"): 1,
        ("handle_batch", "Json", "value", "malformed"): 1,
    }


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_what_a_quota_holds_back_is_timed(metrics: Collected, kind: str) -> None:
    with EmbeddedCluster(clock=VirtualClock(speed=300), config={"broker.session.timeout.ms": 86_400_000}) as kafka:
        kafka.create_topic("orders")
        kafka.set_quotas({"client-id": "held"}, producer_byte_rate=1_000)
        settings = {"client.id": "held", "compression.type": "none"}
        told: Any
        if kind == "threads":
            with Producer(kafka.bootstrap_servers, settings=settings) as producer:
                producer.send("orders", b"x" * 30_000)
                told = producer.throttling
        else:
            async with AsyncProducer(kafka.bootstrap_servers, settings=settings) as async_producer:
                await async_producer.send("orders", b"x" * 30_000)
                told = async_producer.throttling

    ((labels, point),) = metrics.points("ottla.client.throttle.duration", messaging__client__id="held")
    assert (point.count, point.sum) == (told.times, told.total_ms / 1_000)
    assert told.times >= 1
    assert labels == {"messaging.client.id": "held", "ottla.broker": "1"}


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_what_is_given_up_when_its_broker_dies_is_counted_by_its_error(metrics: Collected, kind: str) -> None:
    settings = {
        "client.id": f"orphan-{kind}",
        "delivery.timeout.ms": 2_000,
        "request.timeout.ms": 1_000,
        "linger.ms": 0,
        "enable.idempotence": False,
    }
    with EmbeddedCluster() as kafka:
        kafka.create_topic("orders")
        if kind == "threads":
            producer = Producer(kafka.bootstrap_servers, settings=settings)
            producer.send("orders", b"1").result(30)
            kafka.kill(1)
            for _ in range(3):
                producer.send("orders", b"2")
            producer.send_many("orders", [(b"3",)] * 4)
            with pytest.raises(DeliveryError):
                producer.close()
        else:
            async_producer = AsyncProducer(kafka.bootstrap_servers, settings=settings)
            await async_producer.start()
            await async_producer.send("orders", b"1")
            kafka.kill(1)
            for _ in range(3):
                async_producer.send("orders", b"2")
            await async_producer.send_many("orders", [(b"3",)] * 4)
            with pytest.raises(DeliveryError):
                await async_producer.close()

    sent = {
        labels.get("error.type", ""): point.value
        for labels, point in metrics.points(
            "messaging.client.sent.messages", messaging__client__id=settings["client.id"]
        )
    }
    assert sent.pop("") == 1
    assert sum(sent.values()) == 7
    assert "" not in sent


@pytest.mark.representative("threads")
def test_how_brokers_answer_is_told_while_a_member_lives(shell: Any, wait: Any, metrics: Collected) -> None:
    with EmbeddedCluster() as kafka:
        kafka.create_topic("orders")
        settings: dict[str, Any] = {"client.id": "answers"}
        if shell.name == "threads":
            settings["statistics.interval.ms"] = 500  # in place of 10 s
        app = App("answers", bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, settings=settings)

        @app.handler("orders", name="handle")
        def handle(value: bytes) -> None:
            return

        def of_client(name: str) -> float | None:
            return metrics.value(f"ottla.client.broker.{name}", messaging__client__id="answers", ottla__broker="1")

        shell.start(app)
        wait(lambda: of_client("up") == 1, timeout_s=ENOUGH)
        assert (of_client("connects") or 0) >= 1
        assert (of_client("rtt") or 0) >= 0
        assert of_client("timeouts") == 0
        shell.stop(app)
        assert of_client("up") is None


@pytest.mark.representative("asyncio")
@pytest.mark.parametrize("kind", ["threads", "asyncio"])
async def test_how_full_batches_are_is_told_while_a_producer_lives(metrics: Collected, kind: str) -> None:
    client = f"batches-{kind}"
    settings: dict[str, Any] = {"client.id": client, "compression.type": "none"}
    records = [(b"x" * 100,)] * 10

    def told() -> tuple[float, float] | None:
        labels = {"messaging__client__id": client, "messaging__destination__name": "orders"}
        found = [metrics.value(f"ottla.producer.batch.{name}", **labels) for name in ("records", "size")]
        return None if None in found else (found[0] or 0, found[1] or 0)

    deadline_s = time.monotonic() + ENOUGH
    with EmbeddedCluster() as kafka:
        kafka.create_topic("orders")
        if kind == "threads":
            often = {**settings, "statistics.interval.ms": 500}
            with Producer(kafka.bootstrap_servers, settings=often) as producer:
                while (found := told()) is None and time.monotonic() < deadline_s:
                    producer.send_many("orders", records).result(30)
        else:
            async with AsyncProducer(kafka.bootstrap_servers, settings=settings) as async_producer:
                while (found := told()) is None and time.monotonic() < deadline_s:
                    await async_producer.send_many("orders", records)
                    await async_producer.flush()
    assert found is not None
    records_per_batch, size_bytes = found
    assert 1 <= records_per_batch <= len(records)
    assert size_bytes >= 100 * records_per_batch
    assert metrics.value("ottla.producer.batch.records", messaging__client__id=client) is None
