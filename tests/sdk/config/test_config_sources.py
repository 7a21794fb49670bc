"""Where a value comes from: default < profile < environment < argument; unknown names are refused with a hint."""

from __future__ import annotations

import pytest

from ottla.config import SettingSource, admin_settings, consumer_settings, for_admin, producer_settings
from ottla.errors import ConfigError

SERVERS = "127.0.0.1:9092"


def test_an_argument_wins_over_the_environment_which_wins_over_a_profile() -> None:
    environ = {"OTTLA_PRODUCER_LINGER_MS": "7", "OTTLA_PRODUCER_BATCH_SIZE": "70000"}
    settings = producer_settings(SERVERS, profile="high_throughput", settings={"batch.size": 80_000}, environ=environ)
    linger, batch, memory, acks = (
        settings.setting(name) for name in ("linger.ms", "batch.size", "buffer.memory", "acks")
    )
    assert linger is not None
    assert batch is not None
    assert memory is not None
    assert acks is not None
    assert (linger.value, linger.source, linger.origin) == (7, SettingSource.ENVIRONMENT, "OTTLA_PRODUCER_LINGER_MS")
    assert (batch.value, batch.source) == (80_000, SettingSource.ARGUMENT)
    assert memory.source is SettingSource.PROFILE
    assert acks.source is SettingSource.DEFAULT


def test_a_client_variable_is_for_every_role_and_a_role_variable_is_closer() -> None:
    environ = {"OTTLA_CLIENT_BOOTSTRAP_SERVERS": "a:1", "OTTLA_CONSUMER_BOOTSTRAP_SERVERS": "b:2"}
    assert producer_settings(environ=environ)["bootstrap.servers"] == "a:1"
    assert consumer_settings(environ=environ)["bootstrap.servers"] == "b:2"
    assert admin_settings(environ=environ)["bootstrap.servers"] == "a:1"


def test_a_variable_of_another_role_is_not_looked_at() -> None:
    environ = {"OTTLA_CONSUMER_FETCH_MIN_BYTES": "5", "OTTLA_CLIENT_LINGER_MS": "3", "OTTLA_LOG": "x"}
    assert "fetch.min.bytes" not in producer_settings(environ=environ)
    assert "linger.ms" not in consumer_settings(environ=environ)


def test_a_misspelt_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"OTTLA_PRODUCER_LINGR_MS: .*did you mean OTTLA_PRODUCER_LINGER_MS\?"):
        producer_settings(environ={"OTTLA_PRODUCER_LINGR_MS": "3"})


@pytest.mark.parametrize(
    ("found", "meant"),
    [("lingerms", "linger.ms"), ("linger_ms", "linger.ms"), ("ack", "acks"), ("compresion.type", "compression.type")],
)
def test_an_unknown_setting_is_refused_with_the_nearest_name(found: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{found}: no producer setting has this name; did you mean {meant}"):
        producer_settings(SERVERS, settings={found: "1"}, environ={})


def test_a_setting_of_another_client_is_refused_and_says_whose_it_is() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms: found for a consumer, but it is a setting of a producer"):
        consumer_settings(SERVERS, settings={"linger.ms": 1}, environ={})


def test_librdkafkas_name_for_a_setting_is_the_same_setting() -> None:
    settings = producer_settings(SERVERS, settings={"message.max.bytes": 2_000_000}, environ={})
    assert settings["max.request.size"] == 2_000_000
    assert settings["message.max.bytes"] == 2_000_000
    with pytest.raises(ConfigError, match="found twice"):
        producer_settings(SERVERS, settings={"message.max.bytes": 1_000_000, "max.request.size": 2_000_000}, environ={})


def test_naming_a_setting_in_two_places_must_agree() -> None:
    assert producer_settings("a:1", settings={"bootstrap.servers": "a:1"}, environ={})["bootstrap.servers"] == "a:1"
    with pytest.raises(ConfigError, match="wanted it in one place"):
        producer_settings("a:1", settings={"bootstrap.servers": "b:1"}, environ={})


def test_none_means_not_set() -> None:
    settings = producer_settings(SERVERS, settings={"acks": None, "transactional.id": None}, environ={})
    assert settings["acks"] == "all"
    assert "transactional.id" not in settings


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("linger.ms", "soon", "a number"),
        ("linger.ms", float("nan"), "a finite number"),
        ("batch.size", "12.5", "a whole number"),
        ("batch.size", 12.5, "a whole number"),
        ("batch.size", True, "a whole number"),
        ("batch.size", -1, "at least 1"),
        ("enable.idempotence", "maybe", "true or false"),
        ("compression.type", "brotli", "one of none, gzip, snappy, lz4, zstd"),
        ("acks", "2", "one of all, -1, 0, 1"),
        ("client.id", object(), "text"),
    ],
)
def test_a_value_of_the_wrong_kind_names_the_setting_the_value_and_what_was_wanted(
    name: str, value: object, wanted: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        producer_settings(SERVERS, settings={name: value}, environ={})
    text = str(caught.value)
    assert text.startswith(f"{name} (argument): found ")
    assert f"wanted {wanted}" in text


def test_text_from_the_environment_becomes_values() -> None:
    environ = {
        "OTTLA_PRODUCER_ENABLE_IDEMPOTENCE": "false",
        "OTTLA_PRODUCER_ACKS": "1",
        "OTTLA_PRODUCER_LINGER_MS": "0.5",
        "OTTLA_PRODUCER_BATCH_SIZE": "100_000",
    }
    settings = producer_settings(SERVERS, environ=environ)
    assert settings["enable.idempotence"] is False
    assert settings["acks"] == "1"
    assert settings["linger.ms"] == 0.5
    assert settings["batch.size"] == 100_000


def test_servers_may_be_a_list() -> None:
    assert producer_settings(["a:1", "b:2"], environ={})["bootstrap.servers"] == "a:1,b:2"


def test_an_admin_client_beside_a_producer_keeps_address_and_security_only() -> None:
    settings = producer_settings(SERVERS, settings={"ssl.ca.location": "ca", "security.protocol": "SSL"}, environ={})
    admin = for_admin(settings)
    assert admin["ssl.ca.location"] == "ca"
    assert "acks" not in admin
    assert "linger.ms" not in admin


@pytest.mark.parametrize("servers", ["", " ", ",", "a:1,", "host:port", "host:0", "host:65536", ":9092", "a b:1", []])
def test_servers_that_cannot_be_addresses_are_refused_before_anything_is_connected(servers: str | list[str]) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers \(argument\): found .*, wanted host:port"):
        consumer_settings(servers, environ={})


@pytest.mark.parametrize(
    "servers",
    ["localhost", "a:1, b:2", "10.0.0.1:65535", "[::1]:9092", "[fe80::1%eth0]", "PLAINTEXT://kafka-0.example.com:9093"],
)
def test_servers_in_every_form_that_clients_take_are_accepted(servers: str) -> None:
    assert consumer_settings(servers, environ={})["bootstrap.servers"] == servers


def test_settings_take_units_wherever_they_come_from() -> None:
    environ = {"OTTLA_PRODUCER_BATCH_SIZE": "64KiB", "OTTLA_CLIENT_REQUEST_TIMEOUT_MS": "20s"}
    found = producer_settings(SERVERS, settings={"linger.ms": "0.05s"}, environ=environ)
    assert (found["batch.size"], found["request.timeout.ms"], found["linger.ms"]) == (65_536, 20_000, 50)
    with pytest.raises(ConfigError, match=r"linger\.ms .*: found '7parsecs', wanted a whole number|wanted a number"):
        producer_settings(SERVERS, settings={"linger.ms": "7parsecs"}, environ={})
