"""Safe defaults, each with its reason; profiles that change what they say and nothing else."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.config import (
    COMMON_DEFAULTS,
    CONSUMER_DEFAULTS,
    PRODUCER_DEFAULTS,
    PROFILES,
    SPECS,
    SettingSource,
    consumer_settings,
    producer_settings,
)
from ottla.config.defaults import PRIORITY_DEFAULTS, TRANSACTION_DEFAULTS
from ottla.errors import ConfigError

SERVERS = "127.0.0.1:9092"


def test_a_producer_is_safe_without_any_setting() -> None:
    settings = producer_settings(SERVERS, environ={})
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True
    assert settings["max.in.flight.requests.per.connection"] <= 5
    assert settings["retries"] == 2_147_483_647
    assert settings["delivery.timeout.ms"] == 120_000
    assert settings["compression.type"] != "none"


def test_a_consumer_neither_commits_nor_skips_by_itself() -> None:
    settings = consumer_settings(SERVERS, group_id="billing", environ={})
    assert settings["enable.auto.commit"] is False
    assert settings["enable.auto.offset.store"] is False
    assert settings["auto.offset.reset"] == "earliest"
    assert settings["isolation.level"] == "read_committed"


@pytest.mark.parametrize(
    "table",
    [
        COMMON_DEFAULTS,
        PRODUCER_DEFAULTS,
        TRANSACTION_DEFAULTS,
        CONSUMER_DEFAULTS,
        PRIORITY_DEFAULTS,
        *PROFILES.values(),
    ],
)
def test_every_default_has_a_reason_and_a_known_name(table: object) -> None:
    for default in table.values():  # type: ignore[attr-defined]
        assert len(default.why.split()) >= 4, default.name
        assert default.name in SPECS


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_profile_passes_all_checks_and_names_itself_as_the_origin(profile: str) -> None:
    settings = producer_settings(SERVERS, profile=profile, environ={})
    for name in PROFILES[profile]:
        setting = settings.setting(name)
        assert setting is not None
        assert (setting.source, setting.origin) == (SettingSource.PROFILE, f"profile {profile}")


def test_low_latency_does_not_linger_and_high_throughput_does() -> None:
    low = producer_settings(SERVERS, profile="low_latency", environ={})
    high = producer_settings(SERVERS, profile="high_throughput", environ={})
    assert low["linger.ms"] == 0
    assert high["linger.ms"] > 10
    assert high["batch.size"] > low["batch.size"]
    assert high["buffer.memory"] > low["buffer.memory"]


def test_a_transactional_producer_closes_idle_connections_unless_told_otherwise() -> None:
    def idle_ms(**chosen: object) -> object:
        settings = {name.replace("_", "."): value for name, value in chosen.items()}
        return producer_settings(SERVERS, settings=settings, environ={}).get("connections.max.idle.ms")

    assert idle_ms() is None, "the client's own default"
    assert idle_ms(transactional_id="billing") == 3_000
    assert idle_ms(transactional_id="billing", connections_max_idle_ms=60_000) == 60_000


def test_every_profile_keeps_batches_below_the_smallest_limit_in_common_use() -> None:
    smallest_limit = 1_000_012  # message.max.bytes of Kafka before 2.4
    for profile in (None, *PROFILES):
        assert producer_settings(SERVERS, profile=profile, environ={})["batch.size"] < smallest_limit


def test_an_unknown_profile_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"profile: found 'fast', wanted one of low_latency, high_throughput"):
        producer_settings(SERVERS, profile="fast", environ={})


def test_settings_print_without_secrets() -> None:
    settings = producer_settings(
        SERVERS,
        settings={
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": "hunter2",
        },
        environ={},
    )
    assert "hunter2" not in repr(settings)
    assert all("hunter2" not in setting.shown_value for setting in settings.explain())


def _fetch_token(secret: str, config: str) -> tuple[str, float]:
    return secret, 0


@pytest.mark.parametrize(
    ("name", "value", "is_shown_as"),
    [
        ("sasl.oauthbearer.config", "principal=me clientSecret=hunter2", "********"),
        ("sasl.kerberos.kinit.cmd", "echo hunter2 | kinit me", "********"),
        ("sasl.oauthbearer.client.secret", "hunter2", "********"),
        ("sasl.oauthbearer.token.endpoint.url", "https://me:hunter2@issuer/token", "https://********@issuer/token"),
        ("oauth_cb", partial(_fetch_token, "hunter2"), "partial"),
    ],
)
def test_what_may_hold_a_secret_is_not_printed(name: str, value: object, is_shown_as: str) -> None:
    mechanism = "OAUTHBEARER" if name == "oauth_cb" else "GSSAPI"
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, name: value}
    settings = producer_settings(SERVERS, settings=given, environ={})
    shown = settings.setting(name)
    assert shown is not None
    assert shown.shown_value == is_shown_as
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in str(settings)
