"""What completion offers of producers and consumers is what a program may call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import AsyncConsumer, AsyncProducer, Consumer, Producer

PRODUCER = {
    *("cancel", "close", "flush", "is_closed", "send", "send_many", "settings", "start", "throttling", "transaction"),
}
CONSUMER = {
    *("ack", "assignment", "close", "commit", "dead", "failed", "health", "pause", "poll", "position", "resume"),
    *("retry", "seek", "seek_to_time", "start"),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedCluster(1) as cluster:
        yield cluster.bootstrap_servers


def names_of(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def test_a_producer_of_threads_offers_its_verbs_alone(servers: str) -> None:
    with Producer(servers) as producer:
        assert names_of(producer) == PRODUCER
    assert names_of(Producer) < PRODUCER


async def test_a_producer_of_asyncio_offers_the_same(servers: str) -> None:
    async with AsyncProducer(servers) as producer:
        assert names_of(producer) == PRODUCER
    assert names_of(AsyncProducer) == names_of(Producer)


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_consumer_offers_its_verbs_alone(kind: Any, servers: str) -> None:
    assert names_of(kind("orders", group="billing", bootstrap_servers=servers)) == CONSUMER
