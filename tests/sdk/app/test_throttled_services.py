"""A client that is held for its quotas says so: in figures, in the log, and to whoever counts a group's events.

The broker's time is faster than theirs, or moved, so that nobody waits for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla import App, AsyncProducer, Producer
from ottla.telemetry import Counters, Throttling

SHELLS = ["threads", "asyncio", "columns"]

RECORD = b"x" * 30_000
QUICK = {"client.id": "orders-service"}
PLAIN = {**QUICK, "compression.type": "none"}


@pytest.fixture
def kafka() -> Iterator[EmbeddedCluster]:
    config = {"broker.session.timeout.ms": 86_400_000}
    with EmbeddedCluster(clock=VirtualClock(speed=300), config=config) as running:
        running.create_topic("orders")
        yield running


def wait_until(is_so: Callable[[], Any], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def test_a_producer_says_how_often_and_how_long_it_was_held(kafka: EmbeddedCluster) -> None:
    kafka.set_quotas({"client-id": "orders-service"}, producer_byte_rate=1_000)
    heard: list[Any] = []
    settings = {**PLAIN, "throttle_cb": heard.append}
    with capture_logs() as logs, Producer(kafka.bootstrap_servers, settings=settings) as producer:
        assert producer.throttling.times == 0
        producer.send("orders", RECORD)
        producer.flush(60)
        wait_until(lambda: producer.throttling.times)
        assert producer.throttling.total_ms >= producer.throttling.last_ms > 0
    assert heard[0].throttle_time > 0
    (event, *_) = [each for each in logs if each["event"] == "client_throttled"]
    assert event["broker"] == 1
    assert event["servers"] == kafka.bootstrap_servers
    assert event["throttle_ms"] > 0


async def test_an_asyncio_producer_says_it_too(kafka: EmbeddedCluster) -> None:
    kafka.set_quotas({"client-id": "orders-service"}, producer_byte_rate=1_000)
    async with AsyncProducer(kafka.bootstrap_servers, settings=PLAIN) as producer:
        await producer.send("orders", RECORD)
        assert producer.throttling.times == 1
        assert 19_000 < producer.throttling.last_ms == producer.throttling.total_ms < 21_000


def test_a_service_counts_it_among_the_events_of_its_group(shell: Any) -> None:
    clock = VirtualClock()  # a group cannot keep up with a fast one
    with EmbeddedCluster(clock=clock) as kafka:
        kafka.create_topic("orders")
        with Producer(kafka.bootstrap_servers, settings={"compression.type": "none"}) as feeder:
            for _ in range(3):
                feeder.send("orders", b"x" * 6_000)
                feeder.flush(60)
        kafka.set_quotas({"client-id": "orders-service"}, consumer_byte_rate=1_000)
        counters = Counters()
        seen: list[bytes] = []
        app = App("billing", bootstrap_servers=kafka.bootstrap_servers, settings=QUICK, hooks=counters)

        @app.handler("orders")
        def handle(order: bytes) -> None:
            seen.append(order)

        shell.start(app)
        wait_until(lambda: counters["client_throttled"])
        assert app.runner is not None
        kafka.set_quotas({"client-id": "orders-service"}, consumer_byte_rate=None)
        clock.advance(11_000)  # what is held already is held to the end
        wait_until(lambda: len(seen) == 3)
        shell.stop(app)


def test_what_librdkafka_says_when_it_is_over_counts_as_nothing() -> None:
    throttling = Throttling({}, now_ms=lambda: 0)
    throttling.on_throttled(broker=1, throttle_ms=0)
    assert (throttling.times, throttling.total_ms, throttling.last_ms) == (0, 0, 0)


def test_the_log_has_one_line_in_ten_seconds_and_counts_the_others() -> None:
    times_ms = [0, 1, 9_999, 10_000]
    throttling = Throttling({"group": "g"}, now_ms=iter(times_ms).__next__)
    with capture_logs() as logs:
        for _ in times_ms:
            throttling.on_throttled(broker=1, throttle_ms=5)
    assert [(each["throttle_ms"], each["held_back"]) for each in logs] == [(5, 0), (5, 2)]
    assert (throttling.times, throttling.total_ms) == (4, 20)
