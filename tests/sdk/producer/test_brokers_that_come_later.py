"""A producer that starts waits for a broker as an app does: one rule, and one argument, in both shells."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, AsyncProducer, BrokerUnavailable, ConfigError, DeliveryPending, Producer, RetriableError
from ottla.producer.core import ProducerCore
from ottla.testing.topics import create_topic
from ottla.testing.waiting import wait_until
from ottla.wire_client.net.reachability import START_TIMEOUT_S

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka


def send_by_threads(servers: str) -> None:
    with Producer(servers) as producer:
        producer.send("orders", b"v").result(60)


def send_by_tasks(servers: str) -> None:
    async def run() -> None:
        async with AsyncProducer(servers) as producer:
            await producer.send("orders", b"v")

    asyncio.run(run())


@pytest.mark.parametrize("send", [send_by_threads, send_by_tasks])
def test_a_broker_that_comes_within_the_time_is_waited_for(
    closed_port: str, send: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    errors: list[BaseException] = []

    def sends() -> None:
        try:
            send(closed_port)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=sends)
    thread.start()
    said: list[str] = []
    wait_until(lambda: said.append(capsys.readouterr().err) or "broker_awaited" in "".join(said), 30, what="a warning")
    with EmbeddedCluster(brokers=1, port=int(closed_port.rpartition(":")[2])) as cluster:
        create_topic(cluster.bootstrap_servers, "orders")
        thread.join(60)
    assert not errors


def test_without_a_broker_the_error_says_how_long_it_was_waited_for(closed_port: str) -> None:
    text = rf"no Kafka broker answered at {closed_port} within 0.2 s .* needs a longer start_timeout_s"
    with pytest.raises(BrokerUnavailable, match=text), Producer(closed_port, start_timeout_s=0.2):
        pass

    async def run() -> None:
        async with AsyncProducer(closed_port, start_timeout_s=0.2):
            pass

    with pytest.raises(BrokerUnavailable, match=text):
        asyncio.run(run())


def test_producers_wait_as_long_as_apps_if_nobody_chose() -> None:
    chosen = inspect.signature(ProducerCore.__init__).parameters["start_timeout_s"].default
    assert chosen == START_TIMEOUT_S == 10.0
    app = App("g", bootstrap_servers="localhost:9092", start_timeout_s=3)
    made = app.producer()._made()
    assert made._start_timeout_s == 3
    made.close(0)


@pytest.mark.parametrize("given", [-1, float("nan"), "10", True])
@pytest.mark.parametrize("make", [Producer, AsyncProducer])
def test_a_time_that_is_none_is_refused(make: Any, given: Any) -> None:
    with pytest.raises(ConfigError, match="start_timeout_s must"):
        make("localhost:9092", start_timeout_s=given)


def test_a_record_that_is_still_on_its_way_is_no_reason_to_send_it_again(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers, settings={"linger.ms": 5_000}) as producer:
        delivery = producer.send(kafka_topic, b"v")
        bulk = producer.send_many(kafka_topic, [(b"v",)])
        for wait in (lambda: delivery.result(0), lambda: bulk.result(0), lambda: bulk.exception(0)):
            with pytest.raises(DeliveryPending, match="still being tried") as caught:
                wait()
            assert isinstance(caught.value, TimeoutError)
            assert not isinstance(caught.value, RetriableError)
        producer.flush(60)
        assert delivery.result(60).offset == 0
        assert bulk.result(60) == 1
