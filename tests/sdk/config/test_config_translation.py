"""The same settings in each client's words, and proof that each client takes them."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient

from ottla.config import PROFILES, Shell, admin_settings, consumer_settings, producer_settings
from ottla.errors import ConfigError

SERVERS = "127.0.0.1:1"
QUIET = {"log_level": 0}


@pytest.mark.parametrize("profile", [None, *PROFILES])
def test_librdkafka_accepts_a_producers_settings(profile: str | None) -> None:
    config = producer_settings(SERVERS, profile=profile, environ={}).to_confluent()
    assert config["acks"] == "all"
    ConfluentProducer(config | QUIET)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_accepts_a_consumers_settings(protocol: str) -> None:
    settings = consumer_settings(SERVERS, group_id="g", settings={"group.protocol": protocol}, environ={})
    ConfluentConsumer(settings.to_client(Shell.THREADS) | QUIET).close()


def test_librdkafka_accepts_a_transactional_producer_and_an_admin_client() -> None:
    ConfluentProducer(producer_settings(SERVERS, settings={"transactional.id": "t"}, environ={}).to_confluent() | QUIET)
    AdminClient(admin_settings(SERVERS, environ={}).to_confluent() | QUIET)


async def test_aiokafka_accepts_a_producers_and_a_consumers_settings() -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient

    for profile in (None, *PROFILES):
        producer = AIOKafkaProducer(**producer_settings(SERVERS, profile=profile, environ={}).to_aiokafka())
        await producer.stop()
    producer = AIOKafkaProducer(
        **producer_settings(SERVERS, settings={"transactional.id": "t"}, environ={}).to_client(Shell.ASYNCIO)
    )
    await producer.stop()
    consumer = AIOKafkaConsumer(**consumer_settings(SERVERS, group_id="g", environ={}).to_aiokafka())
    await consumer.stop()
    await AIOKafkaAdminClient(**admin_settings(SERVERS, environ={}).to_aiokafka()).close()


def test_kafkas_names_become_librdkafkas() -> None:
    config = producer_settings(
        SERVERS,
        settings={"max.request.size": 2_000_000, "buffer.memory": 10_000_001, "metadata.max.age.ms": 60_000},
        environ={},
    ).to_confluent()
    assert config["message.max.bytes"] == 2_000_000
    assert config["queue.buffering.max.kbytes"] == 9_766  # rounded up
    assert config["topic.metadata.refresh.interval.ms"] == 60_000
    assert config["metadata.max.age.ms"] == 180_000
    assert not {"max.request.size", "buffer.memory", "max.block.ms", "partitioner"} & config.keys()


def test_kafkas_names_become_aiokafkas() -> None:
    config = producer_settings(
        ["a:1", "b:2"], settings={"acks": "0", "enable.idempotence": False, "compression.type": "none"}, environ={}
    ).to_aiokafka()
    assert config["bootstrap_servers"] == ["a:1", "b:2"]
    assert config["acks"] == 0
    assert config["compression_type"] is None
    assert config["enable_idempotence"] is False
    assert not {"delivery_timeout_ms", "buffer_memory"} & config.keys()


def test_starting_with_an_error_has_each_clients_word() -> None:
    settings = consumer_settings(SERVERS, group_id="g", settings={"auto.offset.reset": "error"}, environ={})
    assert settings.to_confluent()["auto.offset.reset"] == "error"
    assert settings.to_aiokafka()["auto_offset_reset"] == "none"


def test_librdkafkas_own_settings_pass_through_to_the_threaded_client_alone() -> None:
    settings = producer_settings(SERVERS, settings={"sticky.partitioning.linger.ms": 3}, environ={})
    assert settings.to_confluent()["sticky.partitioning.linger.ms"] == 3
    with pytest.raises(ConfigError, match=r"sticky.*: found 3 \(argument\), but only the threaded client"):
        settings.to_aiokafka()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compression.level": 3}, "compression.level: found 3 .* aiokafka has no counterpart"),
        ({"retries": 3}, "retries: found 3 .* aiokafka retries until delivery.timeout.ms"),
    ],
)
def test_what_aiokafka_cannot_do_is_refused_when_it_was_asked_for(settings: dict[str, Any], message: str) -> None:
    producer_settings(SERVERS, environ={}).to_aiokafka()
    with pytest.raises(ConfigError, match=message):
        producer_settings(SERVERS, settings=settings, environ={}).to_aiokafka()


def test_the_next_generation_group_protocol_is_refused_by_the_asyncio_client() -> None:
    settings = consumer_settings(SERVERS, group_id="g", settings={"group.protocol": "consumer"}, environ={})
    with pytest.raises(ConfigError, match=r"group.protocol: .* aiokafka knows only group.protocol=classic"):
        settings.to_aiokafka()


def test_what_aiokafka_takes_as_an_object_is_refused_by_the_threaded_client() -> None:
    provider = object()
    settings = producer_settings(SERVERS, settings={"sasl.oauth.token.provider": provider}, environ={})
    assert settings.to_aiokafka()["sasl_oauth_token_provider"] is provider
    with pytest.raises(ConfigError, match="only the asyncio client"):
        settings.to_confluent()


def test_security_passes_to_both_clients() -> None:
    settings = producer_settings(
        SERVERS,
        settings={
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "u",
            "sasl.password": "p",
        },
        environ={},
    )
    confluent, aiokafka = settings.to_confluent(), settings.to_aiokafka()
    assert confluent["security.protocol"] == "sasl_plaintext"
    assert (confluent["sasl.mechanism"], confluent["sasl.username"]) == ("SCRAM-SHA-256", "u")
    assert aiokafka["security_protocol"] == "SASL_PLAINTEXT"
    assert (aiokafka["sasl_mechanism"], aiokafka["sasl_plain_username"]) == ("SCRAM-SHA-256", "u")


def test_tls_settings_become_a_context_for_asyncio() -> None:
    import ssl

    settings = {"security.protocol": "SSL"}
    context = producer_settings(SERVERS, settings=settings, environ={}).to_aiokafka()["ssl_context"]
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    unchecked = settings | {"enable.ssl.certificate.verification": False}
    context = producer_settings(SERVERS, settings=unchecked, environ={}).to_aiokafka()["ssl_context"]
    assert context.verify_mode is ssl.CERT_NONE
    missing = settings | {"ssl.ca.location": "no-such-file.pem"}
    with pytest.raises(ConfigError, match=r"ssl: found ssl.ca.location=no-such-file.pem, wanted readable"):
        producer_settings(SERVERS, settings=missing, environ={}).to_aiokafka()
