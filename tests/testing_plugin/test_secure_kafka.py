"""`secure_kafka` and `make_secure_kafka`: what a user's test gets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla import ConfigError
from ottla.testing import SecureKafka, make_certificates, secure_kafka


def test_a_test_gets_a_kafka_and_the_settings_to_go_with_it(make_secure_kafka: Callable[..., SecureKafka]) -> None:
    kafka = make_secure_kafka()
    assert kafka.certificates is not None
    assert kafka.settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
        "ssl.ca.location": str(kafka.certificates.ca),
    }
    kafka.create_topic("orders", partitions=2)
    kafka.produce("orders", ["one", "two"], partition=1)
    assert [record.value for record in kafka.consume_all("orders", at_least=2)] == [b"one", b"two"]


def test_topics_are_made_and_deleted_as_on_any_kafka(make_secure_kafka: Callable[..., SecureKafka]) -> None:
    kafka = make_secure_kafka("SSL", client_auth="required")
    kafka.create_topic("orders", config={"retention.ms": 1_000})
    kafka.delete_topics(["orders", "never-there"])
    kafka.create_topic("orders")  # the name is free


def test_several_users_and_mechanisms(make_secure_kafka: Callable[..., SecureKafka]) -> None:
    users = {"alice": "a", "bob": "b"}
    kafka = make_secure_kafka("SASL_PLAINTEXT", mechanism=("SCRAM-SHA-256", "PLAIN"), users=users)
    assert kafka.settings["sasl.mechanism"] == "SCRAM-SHA-256"
    assert kafka.settings_of("bob", "b", mechanism="PLAIN") == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "b",
    }


def test_certificates_go_when_the_block_ends() -> None:
    with secure_kafka("SSL", client_auth="required") as kafka:
        assert kafka.certificates is not None
        files = [kafka.certificates.ca, kafka.certificates.server, kafka.certificates.client]
        assert all(path.exists() for path in files)
        assert kafka.settings["ssl.key.location"] == str(kafka.certificates.client)
    assert not any(path.exists() for path in files)


def test_keys_are_in_the_form_that_java_reads_too(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, client="billing")
    for path in (made.server, made.client):
        assert path.read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
        assert path.stat().st_mode & 0o077 == 0


def test_without_trustme_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ConfigError, match=r"pip install 'ottla\[tls\]'"):
        make_certificates(tmp_path)
