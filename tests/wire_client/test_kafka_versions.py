"""Which Kafka a broker's API versions show, and what the errors say that follow from it."""

from __future__ import annotations

import pytest

from ottla.errors import BrokerTooOld, ConfigError
from ottla.wire_client.errors import ApiNotServed, group_protocol_refused
from ottla.wire_client.net.kafka_versions import FIRST_SERVED, api_not_served, kafka_version
from ottla_wire.protocol import ApiKey

APIS = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.JOIN_GROUP,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_TRANSACTIONS,
)
NEWEST_SERVED = {
    "3.0.2": (9, 12, 7, 11, 7, 3, 2, 0),
    "3.1.2": (9, 13, 7, 12, 7, 3, 2, 0),
    "3.2.3": (9, 13, 7, 12, 9, 3, 3, 0),
    "3.3.2": (9, 13, 7, 12, 9, 3, 4, 0),
    "3.4.1": (9, 13, 7, 12, 9, 3, 4, 0),
    "3.5.2": (9, 15, 8, 12, 9, 3, 4, 0),
    "3.6.2": (9, 15, 8, 12, 9, 4, 4, 0),
    "3.7.2": (10, 16, 8, 12, 9, 4, 4, 0),
    "3.8.1": (11, 16, 8, 12, 9, 5, 4, 0),
    "3.9.1": (11, 17, 9, 12, 9, 5, 4, 0),
    "4.1.0": (13, 18, 10, 13, 9, 5, 4, 0),
    "4.4.0": (13, 18, 11, 13, 9, 5, 5, 0),
}
"""The newest versions of `APIS` that Apache Kafka of each release answered ApiVersions with."""


def served(kafka: str) -> dict[int, tuple[int, int]]:
    return {int(api): (0, newest) for api, newest in zip(APIS, NEWEST_SERVED[kafka], strict=True)}


@pytest.mark.parametrize("kafka", NEWEST_SERVED)
def test_each_release_of_apache_kafka_is_recognised(kafka: str) -> None:
    found = kafka_version(served(kafka)).removeprefix("Kafka ")
    assert kafka.startswith(tuple(found.split(" or "))), found


def test_every_release_in_the_table_was_seen() -> None:
    shown = {kafka_version(served(kafka)) for kafka in NEWEST_SERVED}
    assert shown == {f"Kafka {kafka}" for _, _, kafka in FIRST_SERVED}


def test_an_older_kafka_is_not_given_a_version() -> None:
    assert kafka_version({int(ApiKey.PRODUCE): (0, 8)}) == "Kafka older than 3.0"
    assert kafka_version({}) == "Kafka older than 3.0"


def test_an_api_that_is_not_served_names_kafka_and_what_has_it() -> None:
    error = api_not_served("broker:9092", ApiKey.DESCRIBE_QUORUM, served("3.0.2"), range(3))
    assert isinstance(error, BrokerTooOld)
    assert isinstance(error, ConfigError)
    assert isinstance(error, ApiNotServed)
    assert str(error) == (
        "broker:9092 does not serve DESCRIBE_QUORUM in a version this client speaks: found none (Kafka 3.0), "
        "wanted Kafka 3.3 or newer"
    )
    assert "BrokerTooOld" in error.__notes__[0]


def test_old_versions_of_an_api_are_named() -> None:
    error = api_not_served("broker:9092", ApiKey.FETCH, {int(ApiKey.FETCH): (0, 3)}, range(4, 14))
    assert isinstance(error, BrokerTooOld)
    assert str(error).endswith("found versions 0 to 3 (Kafka older than 3.0), wanted version 4 or newer")


def test_a_broker_that_is_newer_than_this_client_is_not_called_old() -> None:
    error = api_not_served("broker:9092", ApiKey.FETCH, {int(ApiKey.FETCH): (14, 30)}, range(4, 14))
    assert not isinstance(error, BrokerTooOld)
    assert str(error).endswith("found 14 or newer, wanted 13 or older: a newer Ottla may speak it")


def test_the_group_protocol_that_is_refused_says_both_ways_out() -> None:
    text = str(group_protocol_refused(f"broker:9092 is {kafka_version(served('3.9.1'))} and refuses that protocol"))
    assert "broker:9092 is Kafka 3.9 and refuses that protocol" in text
    assert "Kafka 4.0 or newer" in text
    assert "group.protocol=classic" in text
