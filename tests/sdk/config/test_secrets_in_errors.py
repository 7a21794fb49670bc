"""What a program passed by mistake may hold a secret: no error shows it, and the error says what to pass."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, AsyncConsumer, AsyncProducer, ConfigError, Consumer, Producer
from ottla.admin import Admin
from ottla.config import producer_settings
from ottla.showing import shown
from ottla.wire_client import wire_settings

SECRET = "hunter2"
OF_CONFLUENT = {"bootstrap.servers": "localhost:9092", "sasl.username": "billing", "sasl.password": SECRET}
OF_A_URL = f"billing:{SECRET}@localhost:9092"


def run_app(servers: Any) -> None:
    app = App("g", bootstrap_servers=servers, start_timeout_s=0)
    app.handler("orders")(lambda value: None)
    app.run(handle_signals=False)


def consume(servers: Any) -> None:
    pytest.importorskip("ottla.columnar").consume("orders", group="g", bootstrap_servers=servers)


def read(servers: Any) -> None:
    pytest.importorskip("ottla.columnar").read("orders", bootstrap_servers=servers)


AT_ITS_PLACE: dict[str, Callable[[Any], Any]] = {
    "Producer": Producer,
    "AsyncProducer": AsyncProducer,
    "Consumer": lambda servers: Consumer("orders", group="g", bootstrap_servers=servers),
    "AsyncConsumer": lambda servers: AsyncConsumer("orders", group="g", bootstrap_servers=servers),
    "App": run_app,
    "Admin": Admin,
    "columnar.consume": consume,
    "columnar.read": read,
    "settings": lambda servers: Producer(settings={"bootstrap.servers": servers}),
}
ELSEWHERE: dict[str, Callable[[Any], Any]] = {
    "a topic of Consumer": lambda value: Consumer(value, group="g"),
    "a topic of AsyncConsumer": lambda value: AsyncConsumer(value, group="g"),
    "a topic of a handler": lambda value: App("g").handler(value)(lambda value: None),
    "topics to create": lambda value: App("g", create_topics=[value]),  # type: ignore[arg-type]
    "a text setting": lambda value: Producer("h:1", settings={"acks": value}),
    "a number": lambda value: Producer("h:1", settings={"linger.ms": value}),
    "a boolean": lambda value: Producer("h:1", settings={"enable.idempotence": value}),
    "a secret": lambda value: Producer("h:1", settings={"sasl.password": [value]}),
    "two places": lambda value: Producer("h:1", settings={"bootstrap.servers": value}),
    "a profile": lambda value: Producer("h:1", profile=value),
    "settings": lambda value: Producer("h:1", settings=[value]),  # type: ignore[arg-type]
    "settings of an app": lambda value: App("g", settings=[value]),  # type: ignore[arg-type]
}


def error_of(call: Callable[[Any], Any], value: Any) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        call(value)
    text = "".join(traceback.format_exception_only(raised.value))
    assert SECRET not in text
    cause = raised.value.__cause__ or (None if raised.value.__suppress_context__ else raised.value.__context__)
    assert cause is None or SECRET not in str(cause)
    return raised.value


@pytest.mark.parametrize("call", AT_ITS_PLACE.values(), ids=AT_ITS_PLACE)
def test_settings_of_another_client_are_not_shown_and_their_place_is_said(call: Callable[[Any], Any]) -> None:
    assert "settings are given as settings={...}" in str(error_of(call, OF_CONFLUENT))


@pytest.mark.parametrize("call", AT_ITS_PLACE.values(), ids=AT_ITS_PLACE)
def test_a_password_in_an_address_is_not_shown_and_its_setting_is_said(call: Callable[[Any], Any]) -> None:
    found = str(error_of(call, OF_A_URL))

    assert "found '********@localhost:9092'" in found
    assert "sasl.username and sasl.password" in found


@pytest.mark.parametrize("value", [OF_CONFLUENT, OF_A_URL, str(OF_CONFLUENT), repr(OF_CONFLUENT).encode()], ids=type)
@pytest.mark.parametrize("call", ELSEWHERE.values(), ids=ELSEWHERE)
def test_nothing_that_may_hold_a_secret_is_shown_anywhere(call: Callable[[Any], Any], value: Any) -> None:
    error_of(call, value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("localhost", "'localhost'"),
        (7, "7"),
        (None, "None"),
        (["a", "b"], "['a', 'b']"),
        (("a", 1), "('a', 1)"),
        ({"a": 1}, "a dict of 1"),
        (b"abc", "bytes"),
        (str, "the class str"),
        ("x" * 100, "'" + "x" * 59 + "…"),
        (10**5_000, "a number of 16,610 bits"),
        (object(), "an object"),
        ("SASL_SSL://user:p@ss,w@host:1", "'********@host:1'"),
        ("@daily", "'@daily'"),
    ],
    ids=range(13),
)
def test_what_holds_no_secret_is_shown(value: Any, text: str) -> None:
    assert shown(value) == text


@pytest.mark.parametrize("use", [Producer, AsyncProducer, Admin, wire_settings])
def test_a_name_that_is_a_pair_is_refused_without_the_value(use: Any) -> None:
    settings = {f"sasl.password={SECRET}": ""}
    with pytest.raises(ConfigError, match=r"sasl\.password=: .*; did you mean sasl\.password") as refused:
        use({"bootstrap.servers": "h:1", **settings}) if use is wire_settings else use("h:1", settings=settings)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("name", [5, None, b"acks", ("acks",)])
def test_a_name_of_a_setting_that_is_no_text_is_refused(name: Any) -> None:
    for use in (Producer, AsyncProducer, Admin):
        with pytest.raises(ConfigError, match=r"settings: found .* as a name, wanted Kafka's names"):
            use("h:1", settings={name: SECRET})


def test_an_explained_setting_is_printed_without_its_secret() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.username": "billing", "sasl.password": SECRET}
    explained = producer_settings("h:1", settings={**given, "sasl.mechanism": "PLAIN"}, environ={}).explain()
    assert SECRET not in repr(explained)
    assert "Setting(name='sasl.password', source=" in repr(explained)


@pytest.mark.parametrize(
    "name", ["request.timeout.ms", "sasl.mechanism", "acks", "fetch.max.bytes", "enable.idempotence"]
)
def test_a_value_of_the_wire_client_is_not_shown_where_it_speaks_of_a_secret(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        wire_settings({"bootstrap.servers": "h:1", name: f"password={SECRET}"})
    assert SECRET not in str(refused.value)
