"""What users connect with, on brokers that want TLS, a certificate or a password: raw clients and Ottla's own."""

from __future__ import annotations

import ssl
import warnings
from itertools import islice
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from token_clients import tokens_for

from ottla import AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.testing import SecureKafka
from ottla.tokens.aiokafka import AiokafkaTokens

with warnings.catch_warnings():  # it reads its schemas in a way that Python 3.11 deprecates and 3.13 has again
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

VALUES = [f"value {number}".encode() for number in range(20)]
LARGE = b"x" * 700_000
"""More than is sent in one piece."""


def test_confluent_kafka_creates_a_topic_writes_it_and_reads_it_in_a_group(secure: SecureKafka) -> None:
    client: dict[str, Any] = {"bootstrap.servers": secure.bootstrap_servers, **secure.settings}
    topic = secure.fresh_name("confluent")
    admin = AdminClient(client)
    (created,) = admin.create_topics([NewTopic(topic, 2, 1)]).values()
    created.result(30)
    producer = ConfluentProducer(client)
    for value in (*VALUES, LARGE):
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = ConfluentConsumer({**client, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    while len(found) < len(VALUES) + 1:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} records came"
        if message.error() is None:
            found.append(message.value())
    consumer.close()
    assert sorted(found) == sorted([*VALUES, LARGE])


@pytest.mark.representative("mtls")
def test_ottlas_producer_and_consumer(secure: SecureKafka, topic: str) -> None:
    with Producer(secure.bootstrap_servers, settings=secure.settings) as producer:
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(30)
    with Consumer(topic, group=topic, bootstrap_servers=secure.bootstrap_servers, settings=secure.settings) as consumer:
        found = [record.value for record in islice(consumer, len(VALUES))]
    assert found == VALUES


async def test_ottlas_asyncio_producer_and_consumer(secure: SecureKafka, topic: str) -> None:
    async with AsyncProducer(secure.bootstrap_servers, settings=secure.settings) as producer:
        for value in VALUES:
            await producer.send(topic, value)
    found: list[Any] = []
    async with AsyncConsumer(
        topic, group=topic, bootstrap_servers=secure.bootstrap_servers, settings=secure.settings
    ) as consumer:
        async for record in consumer:
            found.append(record.value)
            if len(found) == len(VALUES):
                break
    assert found == VALUES


def in_keyword_arguments(secure: SecureKafka) -> dict[str, Any]:
    """As clients in pure Python want their settings."""
    given = secure.settings
    arguments: dict[str, Any] = {
        "bootstrap_servers": secure.bootstrap_servers,
        "security_protocol": given["security.protocol"],
    }
    if given.get("sasl.mechanism") == "OAUTHBEARER":
        arguments |= {"sasl_mechanism": "OAUTHBEARER"}
    elif "sasl.mechanism" in given:
        arguments |= {
            "sasl_mechanism": given["sasl.mechanism"],
            "sasl_plain_username": given["sasl.username"],
            "sasl_plain_password": given["sasl.password"],
        }
    if secure.certificates is not None:
        context = ssl.create_default_context(cafile=given["ssl.ca.location"])
        if "ssl.certificate.location" in given:
            context.load_cert_chain(given["ssl.certificate.location"])
        arguments["ssl_context"] = context
    return arguments


async def test_aiokafka(secure: SecureKafka, topic: str) -> None:
    arguments = in_keyword_arguments(secure)
    if secure.endpoint is not None:
        arguments["sasl_oauth_token_provider"] = AiokafkaTokens(tokens_for(secure.endpoint, **secure.settings))
    async with AIOKafkaProducer(**arguments) as producer:
        for value in (*VALUES, LARGE):
            await producer.send_and_wait(topic, value)
    async with AIOKafkaConsumer(topic, **arguments, auto_offset_reset="earliest") as consumer:
        found = [(await consumer.getone()).value for _ in range(len(VALUES) + 1)]
    assert found == [*VALUES, LARGE]


@pytest.mark.representative("scram-256")
@pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")
def test_kafka_python(secure: SecureKafka, topic: str) -> None:
    arguments = in_keyword_arguments(secure)
    if (endpoint := secure.endpoint) is not None:

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return endpoint.issue("alice").value

        arguments["sasl_oauth_token_provider"] = Provider()
    producer = KafkaProducer(**arguments)
    for value in (*VALUES, LARGE):
        producer.send(topic, value)
    producer.flush(timeout=30)
    producer.close()
    consumer = KafkaConsumer(topic, **arguments, auto_offset_reset="earliest", consumer_timeout_ms=90_000)
    found = [record.value for record in islice(consumer, len(VALUES) + 1)]
    consumer.close()
    assert found == [*VALUES, LARGE]
