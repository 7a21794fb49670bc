"""What a client is told when its settings do not fit the broker's: a clear error, and soon."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from ottla import AsyncProducer
from ottla.columnar import read
from ottla.errors import BrokerUnavailable
from ottla.testing import SecureKafka, secure_kafka
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


async def test_ottlas_asyncio_producer_says_so_when_it_starts(kafka: SecureKafka, wrong: dict[str, str]) -> None:
    producer = AsyncProducer(kafka.bootstrap_servers, settings=wrong)
    protocol = wrong["security.protocol"]
    with pytest.raises(BrokerUnavailable, match=rf"Kafka listener.*security\.protocol={protocol}"):
        await asyncio.wait_for(producer.start(), 60)
    await producer.close()


def test_the_columnar_client_says_why(
    request: pytest.FixtureRequest, kafka: SecureKafka, wrong: dict[str, str]
) -> None:
    what = request.node.callspec.params["wrong"]
    with pytest.raises(BrokerRefused if what in SAID else BrokerUnavailable, match=(SAID | UNSAID)[what]):
        read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=wrong | {"default.api.timeout.ms": 500})


def test_after_the_right_password_the_same_broker_serves(kafka: SecureKafka) -> None:
    table = read("orders", bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings).read_all()
    assert table.num_rows == 0
