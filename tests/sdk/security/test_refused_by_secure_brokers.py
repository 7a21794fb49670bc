"""What a client is told when its settings do not fit the broker's: a clear error, and soon."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import click
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla import App, AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.browse.redrive import redrive
from ottla.browse.topic_reader import TopicReader
from ottla.browse.topic_writer import write_all
from ottla.cli.shared.cluster_options import open_admin
from ottla.columnar import read
from ottla.config import admin_settings
from ottla.errors import AuthenticationError, BrokerUnavailable, ConfigError, DeliveryError
from ottla.testing import SecureKafka, secure_kafka
from ottla.testing.topics import check_reachable, create_topic
from ottla.wire_client.errors import BrokerRefused

Change = Callable[[SecureKafka], dict[str, Any]]


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-256", client_auth="required") as running:
        running.create_topic("orders")
        yield running


def stranger(kafka: SecureKafka) -> str:
    assert kafka.certificates is not None
    return str(kafka.certificates.stranger)


WRONG: dict[str, Change] = {
    "password": lambda kafka: {"sasl.password": "guess"},
    "user": lambda kafka: {"sasl.username": "nobody"},
    "mechanism": lambda kafka: {"sasl.mechanism": "PLAIN"},
    "authority": lambda kafka: {"ssl.ca.location": stranger(kafka)},
    "no certificate": lambda kafka: {"ssl.certificate.location": None, "ssl.key.location": None},
    "no tls": lambda kafka: {
        "security.protocol": "SASL_PLAINTEXT",
        **dict.fromkeys(("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")),
    },
    "no sasl": lambda kafka: {
        "security.protocol": "SSL",
        **dict.fromkeys(("sasl.mechanism", "sasl.username", "sasl.password")),
    },
}
"""What is wrong, as changes of the right settings; None takes a setting away."""

CUT_OFF = r"(?i:lost the connection.*(closed the connection|reset|broken pipe|EOF))"
SAID = {
    "password": "refused 'alice': Authentication failed",
    "user": "refused 'nobody': Authentication failed",
    "mechanism": "does not offer sasl.mechanism PLAIN; it offers SCRAM-SHA-256",
    "authority": r"its certificate is not trusted: self-signed certificate in certificate chain \(ssl\.ca\.location",
}
"""What does not change by asking again."""
UNSAID = {
    "no certificate": rf"{CUT_OFF}.*is security\.protocol right",
    "no tls": rf"{CUT_OFF}.*is security\.protocol right",
    "no sasl": CUT_OFF,
}
"""What the broker cannot say in Kafka's protocol, as it is not spoken yet."""


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest, kafka: SecureKafka) -> dict[str, str]:
    changed = kafka.settings | WRONG[request.param](kafka)
    return {name: value for name, value in changed.items() if value is not None}


def test_confluent_kafka_is_told(kafka: SecureKafka, wrong: dict[str, str]) -> None:
    errors: list[str] = []
    client = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "error_cb": lambda error: errors.append(error.str()),
        "log_level": 0,
        **wrong,
    }
    admin = AdminClient(client)
    deadline = time.monotonic() + 30
    while not errors and time.monotonic() < deadline:
        admin.poll(0.1)
    assert errors
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=0.1)


OTTLA_SAYS: dict[str, tuple[type[ConfigError], str]] = {
    "password": (AuthenticationError, "refused 'alice': Authentication failed"),
    "user": (AuthenticationError, "refused 'nobody': Authentication failed"),
    "mechanism": (AuthenticationError, "does not offer sasl.mechanism PLAIN; it offers SCRAM-SHA-256"),
    "authority": (AuthenticationError, "its certificate is not trusted: self-signed certificate"),
    "no certificate": (AuthenticationError, "wants a certificate of the client"),
    "no tls": (ConfigError, "security.protocol: found SASL_PLAINTEXT, but .* speaks TLS, wanted SASL_SSL"),
    "no sasl": (
        ConfigError,
        "found SSL, but .* wants a login, wanted SASL_SSL with .*SCRAM-SHA-256",
    ),
}


def start_producer(servers: str, settings: dict[str, str]) -> None:
    producer = Producer(servers, settings=settings)
    try:
        producer.start()
    finally:
        producer.close(0)  # else it says to whoever runs next that its broker is gone


async def start_async_producer(servers: str, settings: dict[str, str]) -> None:
    async with AsyncProducer(servers, settings=settings):
        pass


async def start_async_consumer(servers: str, settings: dict[str, str]) -> None:
    async with AsyncConsumer("orders", group="billing", bootstrap_servers=servers, settings=settings):
        pass


def app_of(servers: str, settings: dict[str, str]) -> App:
    app = App("billing", bootstrap_servers=servers, settings=settings)
    app.handler("orders")(lambda value: None)
    return app


def list_acls(servers: str, settings: dict[str, Any]) -> None:
    with click.Context(click.Command("acls")), open_admin(admin_settings(servers, settings=settings)) as admin:
        admin.find_acls()


CLIENTS: dict[str, Callable[[str, dict[str, str]], Any]] = {
    "Producer": start_producer,
    "AsyncProducer": lambda servers, settings: asyncio.run(start_async_producer(servers, settings)),
    "Consumer": lambda servers, settings: Consumer(
        "orders", group="billing", bootstrap_servers=servers, settings=settings
    ).start(),
    "AsyncConsumer": lambda servers, settings: asyncio.run(start_async_consumer(servers, settings)),
    "App.run": lambda servers, settings: app_of(servers, settings).run(handle_signals=False),
    "App.serve": lambda servers, settings: asyncio.run(app_of(servers, settings).serve()),
    "ottla acls": lambda servers, settings: list_acls(servers, settings),
    "create_topic": lambda servers, settings: create_topic(servers, "new", settings=settings),
    "check_reachable": lambda servers, settings: check_reachable(servers, settings=settings),
    "TopicReader": lambda servers, settings: TopicReader(servers, "orders", settings=settings).close(),
    "redrive": lambda servers, settings: redrive(servers, "orders", settings=settings),
    "write_all": lambda servers, settings: write_all(servers, "orders", [b"x"], settings=settings, timeout_s=2),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_says_what_is_wrong_when_it_starts(
    request: pytest.FixtureRequest, kafka: SecureKafka, wrong: dict[str, str], client: str
) -> None:
    kind, said = OTTLA_SAYS[request.node.callspec.params["wrong"]]
    began = time.monotonic()
    with pytest.raises(kind, match=said) as caught:
        CLIENTS[client](kafka.bootstrap_servers, wrong)
    assert type(caught.value) is not BrokerUnavailable
    assert time.monotonic() - began < 8, "sooner than a client gives an address up"


def test_a_login_that_fails_later_is_the_error_of_what_was_sent(kafka: SecureKafka) -> None:
    settings = {**kafka.settings, "sasl.password": "guess", "delivery.timeout.ms": 3_000, "request.timeout.ms": 2_000}
    producer = Producer(kafka.bootstrap_servers, settings=settings)
    delivery = producer.send("orders", b"x")
    with pytest.raises(
        AuthenticationError, match=r"authentication of User:alice at .* failed: .*Authentication failed"
    ):
        delivery.result(60)
    with contextlib.suppress(DeliveryError):
        producer.close(0)


def test_the_columnar_client_says_why(
    request: pytest.FixtureRequest, kafka: SecureKafka, wrong: dict[str, str]
) -> None:
    what = request.node.callspec.params["wrong"]
    with pytest.raises(BrokerRefused if what in SAID else BrokerUnavailable, match=(SAID | UNSAID)[what]):
        read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=wrong | {"default.api.timeout.ms": 500})


def test_after_the_right_password_the_same_broker_serves(kafka: SecureKafka) -> None:
    table = read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings).read_all()
    assert table.num_rows == 0
