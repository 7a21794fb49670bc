"""The caller's own callbacks of librdkafka are called, and what they raise ends nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker_embedded.cluster import EmbeddedCluster
from ottla import Consumer, Producer
from ottla.sync.client.callbacks import guarded
from ottla.testing import Kafka


class Heard:
    """A callback that counts its calls, and raises at each."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls: list[Any] = []
        self.is_called = threading.Event()
        self._error = error

    def __call__(self, *arguments: Any) -> None:
        self.calls.append(arguments)
        self.is_called.set()
        if self._error is not None:
            raise self._error


def test_statistics_that_raise_do_not_end_the_delivery_reports(kafka: Kafka, kafka_topic: str) -> None:
    stats = Heard(ZeroDivisionError("in stats_cb"))
    with capture_logs() as logs:
        with Producer(kafka.bootstrap_servers, settings={"stats_cb": stats, "statistics.interval.ms": 10}) as producer:
            assert stats.is_called.wait(30)
            for number in range(1_000):  # sends poll as well, in passing
                producer.send(kafka_topic, b"%d" % number)
            assert producer.send(kafka_topic, b"last").result(30).offset is not None
        failed = [each for each in logs if each["event"] == "client_callback_failed"]
    assert failed[0]["callback"] == "stats_cb"
    assert "ZeroDivisionError" in failed[0]["error"]


def test_why_there_is_no_token_is_said() -> None:
    """librdkafka drops what the callback raises, and says ten seconds later that no token was set."""
    tokens = Heard(ZeroDivisionError("no token server"))
    config = guarded({"oauth_cb": tokens, "acks": "all"})
    with capture_logs() as logs, pytest.raises(ZeroDivisionError):
        config["oauth_cb"]("sasl.oauthbearer.config")
    (failed,) = logs
    assert (failed["event"], failed["callback"]) == ("client_callback_failed", "oauth_cb")
    assert tokens.calls == [("sasl.oauthbearer.config",)]
    assert guarded({"oauth_cb": lambda _: ("token", 1.0)})["oauth_cb"]("") == ("token", 1.0)


@pytest.mark.parametrize("error", [ZeroDivisionError(), SystemExit(3)], ids=repr)
def test_a_delivery_callback_that_raises_anything_ends_nothing(
    kafka: Kafka, kafka_topic: str, error: BaseException
) -> None:
    callback = Heard(error)
    with capture_logs(), Producer(kafka.bootstrap_servers) as producer:
        producer.send(kafka_topic, b"1", on_delivery=callback).result(30)
        assert callback.is_called.wait(30)
        told = Heard()
        producer.send(kafka_topic, b"2", on_delivery=told)
        assert told.is_called.wait(30)


def test_what_nobody_expected_does_not_end_the_delivery_reports(kafka: Kafka, kafka_topic: str) -> None:
    with capture_logs() as logs, Producer(kafka.bootstrap_servers) as producer:
        has_raised = threading.Event()

        def raise_once() -> None:
            producer._reports.on_each_round = lambda: None
            has_raised.set()
            raise ZeroDivisionError

        producer._reports.on_each_round = raise_once
        assert has_raised.wait(30)
        assert producer.send(kafka_topic, b"1").result(30).offset == 0
    assert [each["error"] for each in logs if each["event"] == "delivery_reports_failed"] == ["ZeroDivisionError()"]


def test_a_producers_error_callback_is_called_and_may_raise(closed_port: str) -> None:
    errors = Heard(ZeroDivisionError())
    with capture_logs():
        producer = Producer(closed_port, settings={"error_cb": errors})
        producer.send("t", b"v")
        assert errors.is_called.wait(30)
        producer._buffer._client.purge()
        with pytest.raises(Exception, match="1 record"):
            producer.close(0)


def test_a_consumers_callbacks_are_called_and_may_raise(kafka: Kafka, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, [b"1"])
    callbacks = {name: Heard(ZeroDivisionError(name)) for name in ("on_commit", "stats_cb")}
    settings = {**callbacks, "statistics.interval.ms": 10}
    with capture_logs() as logs:
        with Consumer(
            kafka_topic, group=kafka_topic, bootstrap_servers=kafka.bootstrap_servers, settings=settings
        ) as consumer:
            (record,) = poll(consumer)
            consumer.ack(record)
            consumer.commit()
            for callback in callbacks.values():
                assert callback.is_called.wait(30)
            assert consumer.health().is_alive
        assert {each["callback"] for each in logs if each["event"] == "client_callback_failed"} == set(callbacks)
    (error, partitions) = callbacks["on_commit"].calls[0]
    assert error is None
    assert [(each.topic, each.offset) for each in partitions] == [(kafka_topic, 1)]


def test_a_consumers_error_callback_is_called(make_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_cluster(brokers=1)
    cluster.create_topic("orders")
    errors = Heard(ZeroDivisionError())
    with (
        capture_logs(),
        Consumer(
            "orders", group="g", bootstrap_servers=cluster.bootstrap_servers, settings={"error_cb": errors}
        ) as consumer,
    ):
        cluster.kill(1)
        assert errors.is_called.wait(30)
        assert consumer.health().is_alive
        cluster.start_broker(1)


def poll(consumer: Consumer) -> list[Any]:
    deadline = time.monotonic() + 60
    while not (records := consumer.poll(0.2)):
        assert time.monotonic() < deadline, "no record came"
    return records
