"""Wrong addresses, wrong topics, wrong settings: an error that names what was found and what to do, in both shells."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from ottla import (
    App,
    AsyncConsumer,
    BrokerUnavailable,
    ConfigError,
    Consumer,
    Json,
    LifecycleError,
    NoCommittedOffset,
    RetryTopics,
    UnknownTopic,
)
from ottla.browse.topic_writer import write_all
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]


def app_for(servers: str | None, topic: str = "orders", **options: Any) -> App:
    app = App("billing", bootstrap_servers=servers, **options)

    @app.handler(topic, value=Json())
    def handle(value: int) -> None: ...

    return app


@pytest.fixture
def events() -> Iterator[list[Any]]:
    with capture_logs() as captured:
        yield captured


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("has_retry_topics", [False, True], ids=["plain", "retry topics"])
def test_an_address_where_nobody_listens_is_an_error_without_delay(
    shell: Any, closed_port: str, has_retry_topics: bool, events: list[Any]
) -> None:
    opened: list[str] = []
    app = App("billing", bootstrap_servers=closed_port, start_timeout_s=0)
    app.handler("orders", retry_topics=RetryTopics(delays_s=(1,)) if has_retry_topics else None)(lambda value: None)
    app.on_start(lambda: opened.append("start"))
    app.on_stop(lambda: opened.append("stop"))
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, BrokerUnavailable)
    assert f"at {closed_port} within 0 s" in str(error)
    assert re.search("Connection refused|Connect call failed", str(error))
    assert opened == [], "nothing is opened for a service that cannot run"
    assert "broker_awaited" not in [event["event"] for event in events], "it did not wait"


@pytest.mark.parametrize("shell", ["threads", "asyncio"], indirect=True)
def test_a_consumer_whose_address_nobody_listens_at_says_so(shell: Any, closed_port: str) -> None:
    options: dict[str, Any] = {"group": "billing", "bootstrap_servers": closed_port, "start_timeout_s": 0}

    async def poll() -> None:
        await AsyncConsumer("orders", **options).poll(0.1)

    with pytest.raises(BrokerUnavailable, match=closed_port):
        Consumer("orders", **options).poll(0.1) if shell.name == "threads" else asyncio.run(poll())


def test_a_broker_that_starts_after_the_app_is_waited_for(
    shell: Any, make_cluster: Any, wait: Any, events: list[Any]
) -> None:
    cluster = make_cluster(brokers=1)
    servers = cluster.bootstrap_servers
    create_topic(servers, "orders")
    write_all(servers, "orders", [1], value=Json())
    cluster.stop_broker(1)
    seen: list[int] = []
    app = App("billing", bootstrap_servers=servers, start_timeout_s=60)
    app.handler("orders", value=Json())(lambda value: seen.append(value))
    shell.start(app)
    wait(lambda: [event for event in events if event["event"] == "broker_awaited"], timeout_s=60)
    cluster.start_broker(1)
    wait(lambda: seen == [1], timeout_s=60)
    shell.stop(app)

    awaited = [event for event in events if event["event"] == "broker_awaited"]
    assert len(awaited) == 1, "said at once, and once"
    assert servers in awaited[0]["problem"]
    assert awaited[0]["log_level"] == "warning"


def test_a_stop_is_heard_while_a_broker_is_waited_for(
    shell: Any, closed_port: str, wait: Any, events: list[Any]
) -> None:
    app = app_for(closed_port, start_timeout_s=600)
    shell.start(app)
    wait(lambda: [event for event in events if event["event"] == "broker_awaited"], timeout_s=60)
    app.stop()
    error = shell.error_of(app, 60)

    assert isinstance(error, BrokerUnavailable)


def test_a_negative_wait_for_a_broker_is_refused() -> None:
    with pytest.raises(ConfigError, match="start_timeout_s must not be negative"):
        App("billing", start_timeout_s=-1)


def test_no_address_at_all_is_an_error_that_says_where_one_can_be_given(
    shell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_CLIENT_BOOTSTRAP_SERVERS", raising=False)
    app = app_for(None)
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, ConfigError)
    assert "bootstrap.servers: found nothing" in str(error)
    assert "OTTLA_CLIENT_BOOTSTRAP_SERVERS" in str(error)


@pytest.mark.representative("asyncio")
def test_an_unknown_topic_is_named_when_the_cluster_does_not_create_topics(shell: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=1, config={"auto.create.topics.enable": False})
    app = app_for(cluster.bootstrap_servers, "nowhere")
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, UnknownTopic)
    assert "nowhere" in str(error)


def test_a_group_without_offsets_and_without_a_place_to_start_is_an_error(shell: Any, make_cluster: Any) -> None:
    cluster = make_cluster(brokers=1)
    create_topic(cluster.bootstrap_servers, "orders")
    write_all(cluster.bootstrap_servers, "orders", [1], value=Json())
    app = app_for(cluster.bootstrap_servers, settings={"auto.offset.reset": "error"})
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, NoCommittedOffset)
    assert "auto.offset.reset" in str(error)


def test_latest_starts_at_the_end(shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any) -> None:
    kafka.produce(kafka_topic, [1, 2], value=Json())
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, settings={"auto.offset.reset": "latest"})
    seen: list[int] = []
    app.handler(kafka_topic, value=Json())(lambda value: seen.append(value))
    shell.start(app)
    wait(lambda: app._runner is not None and app.health().partitions)
    number = 10

    def one_more() -> bool:
        nonlocal number
        number += 1
        kafka.produce(kafka_topic, [number], value=Json())
        return bool(seen)

    wait(one_more)
    assert 1 not in seen
    assert 2 not in seen


def test_a_setting_that_nobody_has_is_refused_by_name(shell: Any, kafka: Any) -> None:
    app = app_for(kafka.bootstrap_servers, settings={"session.timeout": 10})
    shell.start(app)
    error = shell.error_of(app)

    assert isinstance(error, ConfigError)
    assert "session.timeout" in str(error)


def test_an_app_without_handlers_does_not_run(shell: Any, kafka: Any) -> None:
    app = App("billing", bootstrap_servers=kafka.bootstrap_servers)
    shell.start(app)

    assert isinstance(shell.error_of(app), ConfigError)


def test_an_app_runs_once_at_a_time(shell: Any, kafka: Any, kafka_topic: str, wait: Any) -> None:
    app = app_for(kafka.bootstrap_servers, kafka_topic)
    shell.start(app)
    wait(lambda: app.health().is_alive)

    with pytest.raises(LifecycleError, match="running already"):
        app.run(handle_signals=False)
    shell.stop(app)
    with pytest.raises(LifecycleError, match="not running"):
        _ = app.runner


def test_signals_need_the_main_thread(shell: Any, kafka: Any, kafka_topic: str) -> None:
    import threading

    app = app_for(kafka.bootstrap_servers, kafka_topic)
    caught: list[BaseException] = []

    def run() -> None:
        try:
            app.run()
        except ConfigError as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)

    assert "main thread" in str(caught[0])


def test_stopping_before_the_start_stops_at_once(shell: Any, kafka: Any, kafka_topic: str) -> None:
    app = app_for(kafka.bootstrap_servers, kafka_topic)
    app.stop()
    shell.start(app)

    assert shell.error_of(app) is None
