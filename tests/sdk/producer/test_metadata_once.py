"""One producer asks for a topic's metadata once, however many threads or tasks send to it and how often."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ottla import AsyncProducer, Producer

SENDERS = 16
EACH = 250


class Asked:
    """Counts the Metadata requests that say something about a topic: those that name it, or ask for all."""

    def __init__(self, cluster: Any, topic: str) -> None:
        self._topic = topic
        # A millisecond late is nothing to the client, and makes the fault count.
        self._fault = cluster.faults.add(api="METADATA", delay_ms=1, when=self._is_about_it)

    def _is_about_it(self, request: Any) -> bool:
        return request.topics is None or self._topic in [topic.name for topic in request.topics]

    @property
    def times(self) -> int:
        times: int = self._fault.hits
        return times


@pytest.fixture
def cluster(make_cluster: Any) -> Any:
    cluster = make_cluster(brokers=1)
    cluster.create_topic("orders", partitions=6)
    return cluster


@pytest.mark.parametrize("is_started", [True, False], ids=["started", "not started"])
def test_threads_that_send_many_times_ask_once(cluster: Any, is_started: bool) -> None:
    asked = Asked(cluster, "orders")
    producer = Producer(cluster.bootstrap_servers)
    if is_started:
        producer.start(30)

    def send() -> None:
        for number in range(EACH):
            producer.send("orders", b"v", key=b"%d" % number)

    def send_from_all() -> None:
        threads = [threading.Thread(target=send) for _ in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        producer.flush(60)

    send_from_all()
    at_first = asked.times
    send_from_all()
    send_from_all()
    producer.close(60)

    # A client that finds no leader yet may ask once or twice more.
    assert 1 <= at_first < SENDERS / 2, "not once per thread"
    assert asked.times == at_first, "never again, while it is fresh"


async def test_tasks_that_send_many_times_ask_once(cluster: Any) -> None:
    asked = Asked(cluster, "orders")
    async with AsyncProducer(cluster.bootstrap_servers) as producer:

        async def send() -> None:
            for number in range(EACH):
                producer.send("orders", b"v", key=b"%d" % number)
                if number % 10 == 0:
                    await asyncio.sleep(0)

        async def send_from_all() -> None:
            await asyncio.gather(*(send() for _ in range(SENDERS)))
            await producer.flush(60)

        await send_from_all()
        at_first = asked.times
        await send_from_all()
        await send_from_all()

        assert 1 <= at_first < SENDERS / 2, "not once per task"
        assert asked.times == at_first, "never again, while it is fresh"


async def test_a_producer_that_starts_does_not_ask_for_all_topics(cluster: Any) -> None:
    """Of a cluster with thousands that takes seconds."""
    with (
        cluster.faults.add(api="METADATA", delay_ms=1, when=lambda request: request.topics is None) as of_all,
        cluster.faults.add(api="METADATA", delay_ms=1) as of_any,
    ):
        with Producer(cluster.bootstrap_servers):
            assert (of_all.hits, of_any.hits > 0) == (0, True)
        async with AsyncProducer(cluster.bootstrap_servers):
            assert of_all.hits == 0
