"""Setting names, positions in time, and the SASL exchanges: pure parts of the wire client."""

from __future__ import annotations

import base64
import datetime as dt

import pytest

from ottla.columnar import EARLIEST, LATEST, BrokerRefused, Isolation, wire_settings
from ottla.config.catalog import SPECS
from ottla.errors import ConfigError, InputError
from ottla.wire_client.client_settings import _NAMES, parse_servers
from ottla.wire_client.fetching.position_lookup import parse_position, parse_position_to_change
from ottla.wire_client.net.sasl import start_exchange


def test_kafkas_names_are_read_with_their_types():
    found = wire_settings(
        {
            "bootstrap.servers": "a:1,b",
            "isolation.level": "read_uncommitted",
            "acks": "all",
            "check.crcs": "false",
            "fetch.max.bytes": "77",
            "compression.type": "zstd",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert found.bootstrap_servers == (("a", 1), ("b", 9092))
    assert found.isolation is Isolation.READ_UNCOMMITTED
    assert (found.acks, found.check_crcs, found.fetch_max_bytes, found.compression) == (-1, False, 77, 4)
    assert not found.ssl_check_hostname


def test_the_sdks_security_settings_are_all_known_and_no_password_is_shown():
    of_the_sdk = [name for name in SPECS if name.startswith(("sasl.", "ssl.", "enable.ssl"))]
    unknown = [name for name in of_the_sdk if name not in _NAMES]
    assert unknown == ["sasl.kerberos.service.name", "ssl.endpoint.identification.algorithm"]  # refused; read apart
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.username": "a",
        "sasl.password": "hush-1",
        "ssl.key.password": "hush-2",
    }
    assert "hush" not in repr(wire_settings({"bootstrap.servers": "a:1"} | login))


def test_settings_of_other_clients_are_let_through():
    wire_settings({"bootstrap.servers": "a:1", "group.id": "g", "session.timeout.ms": 5, "linger.ms": None})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": "a:b"}, "found 'a:b', wanted host:port"),
        ({"bootstrap.servers": "a:70000"}, "wanted host:port"),
        ({"bootstrap.servers": " , "}, "address 1 of 2 is empty"),
        ({"bootstrap.servers": "a", "fetch.max.byte": 1}, "did you mean fetch.max.bytes"),
        ({"bootstrap.servers": "a", "fetch.max.bytes": "many"}, "fetch.max.bytes: found 'many', wanted a whole number"),
        ({"bootstrap.servers": "a", "acks": "2"}, "acks: found '2', wanted all, 1 or 0"),
        ({"bootstrap.servers": "a", "acks": "1"}, "enable.idempotence=true needs acks=all"),
        ({"bootstrap.servers": "a", "max.in.flight.requests.per.connection": 6}, "wanted 1 to 5"),
        ({"bootstrap.servers": "a", "sasl.mechanism": "GSSAPI"}, "PLAIN or SCRAM-SHA-256 or SCRAM-SHA-512"),
        ({"bootstrap.servers": "a", "sasl.password": "x"}, "security.protocol: found PLAINTEXT, wanted SASL_SSL"),
        (
            {"bootstrap.servers": "a", "security.protocol": "SASL_PLAINTEXT", "ssl.ca.location": "x"},
            "security.protocol: found SASL_PLAINTEXT, wanted SSL or SASL_SSL, because ssl.ca.location is set",
        ),
    ],
)
def test_a_wrong_setting_names_itself_what_was_found_and_what_was_wanted(settings, reason):
    with pytest.raises(ConfigError, match=reason):
        wire_settings(settings)


def test_addresses_may_have_schemes_and_be_ipv6():
    assert parse_servers("PLAINTEXT://a:1, [::1]:9093 ,[::2]") == (("a", 1), ("::1", 9093), ("::2", 9092))


def test_positions_are_words_times_ago_or_moments():
    assert parse_position(None, default=LATEST) == LATEST
    assert parse_position("earliest", default=LATEST) == EARLIEST
    assert parse_position("-90s", default=LATEST, now_ms=100_000) == 10_000
    assert parse_position("1970-01-01T00:00:01", default=LATEST) == 1000
    assert parse_position("1970-01-01T01:00:01+01:00", default=LATEST) == 1000
    assert parse_position(dt.datetime(1970, 1, 1, 0, 0, 2), default=LATEST) == 2000
    assert parse_position("now", default=EARLIEST) == LATEST
    with pytest.raises(ConfigError, match="found 'yesterday', wanted earliest, latest"):
        parse_position("yesterday", default=LATEST)
    with pytest.raises(ConfigError, match="found 7, wanted earliest, latest"):
        parse_position(7, default=LATEST)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "1969-12-31T23:59:59.998", "1960-01-01", "-1d", "-99w"])
def test_a_time_before_1970_is_never_the_end_of_the_log(text):
    assert parse_position(text, default=LATEST, now_ms=1_000) == 0
    with pytest.raises(InputError, match=r"wanted a time since 1970 \(this machine's clock says 1970-01-01T00:00:01"):
        parse_position_to_change(text, now_ms=1_000)


def test_scram_follows_the_example_of_rfc_7677():
    exchange = start_exchange("SCRAM-SHA-256", username="user", password="pencil", nonce="rOprNGfwEbeRWgbNEkqO")
    assert next(exchange) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert exchange.send(challenge) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge",
    [b"r=somebody-elses,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"r=mine-and-more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1"],
)
def test_scram_refuses_a_challenge_that_is_not_for_it_or_too_weak(challenge):
    exchange = start_exchange("SCRAM-SHA-256", username="user", password="pencil", nonce="mine")
    next(exchange)
    with pytest.raises(BrokerRefused, match="challenge"):
        exchange.send(challenge)


def test_scram_refuses_a_broker_that_does_not_know_the_password():
    exchange = start_exchange("SCRAM-SHA-512", username="user", password="pencil", nonce="mine")
    next(exchange)
    exchange.send(b"r=mine-and-more,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(BrokerRefused, match="could not prove"):
        exchange.send(b"v=" + base64.b64encode(bytes(64)))


def test_sasl_without_a_name_says_what_is_missing():
    with pytest.raises(ConfigError, match=r"sasl\.username and sasl\.password"):
        start_exchange("PLAIN", username=None, password="x")
