"""What must hold between settings; each error names the setting, what was found, and what was wanted."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.config import check_batch_size_against_limit, consumer_settings, producer_settings
from ottla.errors import ConfigError

SERVERS = "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"acks": 1}, r"acks: found 1 \(argument\), wanted all, because enable.idempotence=true"),
        (
            {"max.in.flight": 6},
            r"max.in.flight.requests.per.connection: found 6 \(argument\), wanted at most 5",
        ),
        ({"retries": 0}, r"retries: found 0 \(argument\), wanted at least 1"),
        (
            {"delivery.timeout.ms": 20_000},
            r"delivery.timeout.ms: found 20000 \(argument\), wanted at least linger.ms \+ request.timeout.ms = "
            r"5 \+ 30000 = 30005",
        ),
        ({"batch.size": 2_000_000}, r"batch.size: found 2000000 \(argument\), wanted at most max.request.size"),
        ({"batch.size": 61}, r"batch.size: found 61 \(argument\), wanted more than 61"),
        ({"buffer.memory": 500_000}, r"buffer.memory: found 500000 \(argument\), wanted at least max.request.size"),
        (
            {"transactional.id": "t", "enable.idempotence": False},
            r"enable.idempotence: found false \(argument\), wanted true",
        ),
        (
            {"transactional.id": "t", "delivery.timeout.ms": 90_000},
            r"delivery.timeout.ms: found 90000 \(argument\), wanted at most transaction.timeout.ms=60000",
        ),
        ({"queuing.strategy": "lifo"}, r"queuing.strategy: found lifo \(argument\), wanted fifo"),
        ({"sasl.username": "u"}, r"security.protocol: found PLAINTEXT \(default\), wanted SASL_SSL"),
        ({"ssl.ca.location": "f"}, r"security.protocol: found PLAINTEXT \(default\), wanted SSL or SASL_SSL"),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"},
            r"sasl.password: found nothing, wanted a value",
        ),
    ],
)
def test_a_producers_broken_rule_names_setting_found_and_wanted(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        producer_settings(SERVERS, settings=settings, environ={})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"enable.auto.commit": True},
            r"enable.auto.commit: found true \(argument\), wanted false: .* declare commit=AtMostOnce\(\)",
        ),
        (
            {"enable.auto.offset.store": "true"},
            r"enable.auto.offset.store: found true \(argument\), wanted false: an offset is stored when its record",
        ),
        (
            {"auto.commit.interval.ms": 100},
            r"auto.commit.interval.ms: found 100 \(argument\), wanted unset: .* declare commit=CommitPolicy\(every_s=",
        ),
        ({"heartbeat.interval.ms": 20_000}, r"heartbeat.interval.ms: found 20000 \(argument\), wanted at most a third"),
        ({"max.poll.interval.ms": 10_000}, r"max.poll.interval.ms: found 10000 \(argument\), wanted at least session"),
        ({"fetch.max.bytes": 1_000}, r"fetch.max.bytes: found 1000 \(argument\), wanted at least max.partition.fetch"),
        (
            {"group.protocol": "consumer", "session.timeout.ms": 9_000},
            r"session.timeout.ms: found 9000 \(argument\), wanted unset: under group.protocol=consumer",
        ),
    ],
)
def test_a_consumers_broken_rule_names_setting_found_and_wanted(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        consumer_settings(SERVERS, group_id="g", settings=settings, environ={})


def test_auto_commit_is_refused_out_of_the_environment_as_well() -> None:
    with pytest.raises(ConfigError, match=r"found true \(OTTLA_CONSUMER_ENABLE_AUTO_COMMIT\), wanted false"):
        consumer_settings(SERVERS, group_id="g", environ={"OTTLA_CONSUMER_ENABLE_AUTO_COMMIT": "true"})


def test_giving_up_safety_takes_two_settings_said_aloud() -> None:
    settings = producer_settings(SERVERS, settings={"acks": 1, "enable.idempotence": False}, environ={})
    assert (settings["acks"], settings["enable.idempotence"]) == ("1", False)


def test_a_transactional_producer_gives_records_up_before_the_transaction_times_out() -> None:
    settings = producer_settings(SERVERS, settings={"transactional.id": "t"}, environ={})
    setting = settings.setting("delivery.timeout.ms")
    assert setting is not None
    assert setting.value == 60_000
    assert "transaction.timeout.ms" in setting.why


def test_the_next_generation_group_protocol_drops_what_the_broker_decides() -> None:
    settings = consumer_settings(SERVERS, group_id="g", settings={"group.protocol": "consumer"}, environ={})
    assert not {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"} & settings.keys()


def test_a_batch_above_the_topics_limit_names_topic_limit_and_who_set_it() -> None:
    settings = producer_settings(SERVERS, environ={})
    check_batch_size_against_limit(settings, limit_bytes=131_072, topic="small", set_by="x")
    with pytest.raises(
        ConfigError,
        match=r"batch.size: found 131072 \(default\), wanted at most 100,000 for topic small, set by its own setting",
    ):
        check_batch_size_against_limit(settings, limit_bytes=100_000, topic="small", set_by="its own setting")


@pytest.mark.parametrize(
    ("given", "follows"),
    [
        ({"session.timeout.ms": 6_000}, {"heartbeat.interval.ms": 2_000}),
        ({"session.timeout.ms": 3}, {"heartbeat.interval.ms": 1}),
        ({"session.timeout.ms": 10_000}, {"heartbeat.interval.ms": 3_000, "max.poll.interval.ms": 300_000}),
        ({"session.timeout.ms": 900_000}, {"heartbeat.interval.ms": 3_000, "max.poll.interval.ms": 900_000}),
        ({"max.partition.fetch.bytes": 100_000_000}, {"fetch.max.bytes": 100_000_000}),
    ],
)
def test_a_consumers_defaults_follow_the_setting_that_they_depend_on(
    given: dict[str, int], follows: dict[str, int]
) -> None:
    settings = consumer_settings(SERVERS, group_id="g", settings=given, environ={})

    assert {name: settings[name] for name in follows} == follows


@pytest.mark.parametrize(
    ("given", "follows"),
    [
        ({"max.request.size": 50_000}, {"batch.size": 50_000}),
        ({"max.request.size": 200_000_000}, {"batch.size": 131_072, "buffer.memory": 200_000_000}),
        ({"request.timeout.ms": 300_000}, {"delivery.timeout.ms": 300_005}),
        ({"linger.ms": 100_000.5}, {"delivery.timeout.ms": 130_001}),
        (
            {"transactional.id": "t", "transaction.timeout.ms": 10_000},
            {"delivery.timeout.ms": 10_000, "request.timeout.ms": 4_995},
        ),
        (
            {"transactional.id": "t", "request.timeout.ms": 90_000},
            {"delivery.timeout.ms": 90_005, "transaction.timeout.ms": 90_005},
        ),
    ],
)
def test_a_producers_defaults_follow_the_setting_that_they_depend_on(
    given: dict[str, Any], follows: dict[str, int]
) -> None:
    settings = producer_settings(SERVERS, settings=given, environ={})

    assert {name: settings[name] for name in follows} == follows


def test_a_profile_follows_as_well_and_says_why() -> None:
    settings = producer_settings(SERVERS, profile="high_throughput", settings={"max.request.size": 50_000}, environ={})
    setting = settings.setting("batch.size")

    assert setting is not None
    assert (setting.value, setting.why) == (50_000, "max.request.size=50000: a batch must fit into a request")


@pytest.mark.parametrize(
    "given",
    [
        {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 3_000},
        {"session.timeout.ms": 900_000, "max.poll.interval.ms": 300_000},
        {"max.partition.fetch.bytes": 100_000_000, "fetch.max.bytes": 50_000_000},
        {"session.timeout.ms": 2},
    ],
)
def test_what_the_user_gave_is_refused_where_it_does_not_fit(given: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=r"found \d+ \(argument\)"):
        consumer_settings(SERVERS, group_id="g", settings=given, environ={})


def test_the_environment_is_followed_too() -> None:
    settings = consumer_settings(SERVERS, group_id="g", environ={"OTTLA_CONSUMER_SESSION_TIMEOUT_MS": "6000"})

    assert settings["heartbeat.interval.ms"] == 2_000
