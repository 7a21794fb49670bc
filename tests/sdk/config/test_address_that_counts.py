"""Which address is taken where several are given, and that a log event says so."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ottla import App, AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.config import admin_settings, chosen_address, consumer_settings, producer_settings
from ottla.config.settings import Settings

OF_ALL = "OTTLA_BOOTSTRAP_SERVERS"
ALIAS = "OTTLA_CLIENT_BOOTSTRAP_SERVERS"
OF_PRODUCERS = "OTTLA_PRODUCER_BOOTSTRAP_SERVERS"


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen_address, "_said", set())
    for name in (OF_ALL, ALIAS, OF_PRODUCERS):
        monkeypatch.delenv(name, raising=False)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, Any]]:
    events = [record for record in caplog.records if getattr(record, "event", "") == "address_chosen"]
    return [(each.__dict__["taken"], each.__dict__["from"], each.__dict__["passed_over"]) for each in events]


@pytest.mark.parametrize(
    "resolve",
    [
        lambda environ: producer_settings(environ=environ),
        lambda environ: consumer_settings(group_id="g", environ=environ),
        lambda environ: admin_settings(environ=environ),
    ],
    ids=["producer", "consumer", "admin"],
)
@pytest.mark.parametrize(
    ("environ", "taken", "origin"),
    [
        ({OF_ALL: "a:1"}, "a:1", OF_ALL),
        ({ALIAS: "b:1"}, "b:1", ALIAS),
        ({OF_ALL: "a:1", ALIAS: "b:1"}, "a:1", OF_ALL),
        ({OF_ALL: "", ALIAS: "b:1"}, "b:1", ALIAS),
    ],
)
def test_one_variable_is_for_all(
    resolve: Callable[[Mapping[str, str]], Settings], environ: dict[str, str], taken: str, origin: str
) -> None:
    setting = resolve(environ).setting("bootstrap.servers")

    assert setting is not None
    assert (setting.value, setting.origin) == (taken, origin)


def test_that_of_one_kind_of_client_counts_more_and_the_code_most() -> None:
    environ = {OF_ALL: "a:1", OF_PRODUCERS: "c:1"}

    assert producer_settings(environ=environ)["bootstrap.servers"] == "c:1"
    assert consumer_settings(group_id="g", environ=environ)["bootstrap.servers"] == "a:1"
    assert producer_settings("d:1", environ=environ)["bootstrap.servers"] == "d:1"


CLIENTS: dict[str, Callable[..., Any]] = {
    "Producer": lambda **servers: Producer(**servers).close(),
    "AsyncProducer": lambda **servers: AsyncProducer(**servers),
    "Consumer": lambda **servers: Consumer("orders", group="g", **servers),
    "AsyncConsumer": lambda **servers: AsyncConsumer("orders", group="g", **servers),
}


@pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS)
def test_a_log_event_says_once_that_the_code_beats_the_environment(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, make: Callable[..., Any]
) -> None:
    monkeypatch.setenv(OF_ALL, "127.0.0.1:2")
    monkeypatch.setenv(ALIAS, "127.0.0.1:3")
    caplog.set_level(logging.INFO, logger="ottla")

    for _ in range(2):
        make(bootstrap_servers="127.0.0.1:1")

    passed_over = {OF_ALL: "127.0.0.1:2", ALIAS: "127.0.0.1:3"}
    assert said(caplog) == [("127.0.0.1:1", "the code", passed_over)]


@pytest.mark.parametrize("make", CLIENTS.values(), ids=CLIENTS)
def test_where_nothing_differs_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, make: Callable[..., Any]
) -> None:
    monkeypatch.setenv(OF_ALL, "127.0.0.1:1, 127.0.0.1:2")
    caplog.set_level(logging.INFO, logger="ottla")

    make()
    make(bootstrap_servers=["127.0.0.1:2", "127.0.0.1:1"])

    assert said(caplog) == []


def test_an_app_without_an_address_takes_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, kafka: Any, kafka_topic: str
) -> None:
    monkeypatch.setenv(OF_ALL, kafka.bootstrap_servers)
    app = App("g")
    seen: list[bytes] = []

    @app.handler(kafka_topic)
    def on_order(value: bytes) -> None:
        seen.append(value)
        app.stop()

    kafka.produce(kafka_topic, [b"1"])
    app.run(handle_signals=False)

    assert seen == [b"1"]
