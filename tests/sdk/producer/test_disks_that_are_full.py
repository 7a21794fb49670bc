"""A broker that answers and takes no records is not one that does not answer: its error is named, in both shells."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ottla import App, AsyncProducer, BrokerUnavailable, Producer, RetriableError
from ottla.testing.running import RunningApp
from ottla.testing.waiting import wait_until

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster

SHORT = {"delivery.timeout.ms": 1_500, "request.timeout.ms": 700, "linger.ms": 0}
NAMED = r"orders: not acknowledged within delivery.timeout.ms=1500: the brokers at .* answer, .*KAFKA_STORAGE_ERROR"


@pytest.fixture
def cluster(make_cluster: Any) -> EmbeddedCluster:
    made: EmbeddedCluster = make_cluster(brokers=1)
    made.create_topic("orders", partitions=1)
    return made


def events_of(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr().err
    return [name for line in said.splitlines() for name in ("writes_refused", "writes_taken_again") if name in line]


def test_the_brokers_error_is_named_and_said_once(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    with Producer(cluster.bootstrap_servers, settings=SHORT) as producer:
        producer.send("orders", b"1").result(60)
        with cluster.disks.full(1):
            deliveries = [producer.send("orders", b"2") for _ in range(3)]
            for delivery in deliveries:
                with pytest.raises(RetriableError, match=NAMED) as caught:
                    delivery.result(60)
                assert not isinstance(caught.value, BrokerUnavailable)
            assert producer._problems
        producer.send("orders", b"3").result(60)
        wait_until(lambda: not producer._problems, 60, what="the end of the refusals")
    assert events_of(capsys) == ["writes_refused", "writes_taken_again"]


async def test_the_brokers_error_is_named_and_said_once_on_asyncio(
    cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    async with AsyncProducer(cluster.bootstrap_servers, settings=SHORT) as producer:
        await producer.send("orders", b"1")
        with cluster.disks.full(1):
            deliveries = [producer.send("orders", b"2") for _ in range(3)]
            for delivery in deliveries:
                with pytest.raises(RetriableError, match=NAMED) as caught:
                    await delivery
                assert not isinstance(caught.value, BrokerUnavailable)
            assert producer._problems
        await producer.send("orders", b"3")
        assert not producer._problems
    await asyncio.sleep(0)
    assert events_of(capsys) == ["writes_refused", "writes_taken_again"]


@pytest.mark.complete
def test_a_service_whose_records_are_not_taken_is_not_ready_long_before_they_fail(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("in", partitions=1)
    app = App("g", bootstrap_servers=cluster.bootstrap_servers)
    producer = app.producer()
    app.handler("in")(lambda value: None)
    with RunningApp(app, cluster.bootstrap_servers, is_watched=False):
        wait_until(lambda: app.health().is_ready, 60, what="a service that is ready")
        with cluster.disks.full(1):
            delivery = producer.send("orders", b"v")
            wait_until(lambda: not app.health().is_ready, 60, what="a service that is not ready")
            (problem,) = app.health().problems
            assert "orders: brokers do not take records: KAFKA_STORAGE_ERROR" in problem
            assert not delivery.done()
        delivery.result(60)
        wait_until(lambda: app.health().is_ready, 60, what="a service that is ready again")
