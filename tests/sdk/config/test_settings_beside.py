"""The producer beside a consumer logs in as the consumer does, unless it is told otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from ottla import App
from ottla.config import dead_letter_arguments, for_admin, producer_settings, security_of, settings_beside
from ottla.errors import ConfigError

CONSUMER = {"security.protocol": "SASL_SSL", "sasl.username": "billing", "sasl.password": "x", "fetch.min.bytes": 10}


def test_it_has_the_consumers_security_and_nothing_else_of_it() -> None:
    assert settings_beside(CONSUMER, None) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "billing",
        "sasl.password": "x",
    }
    assert settings_beside(CONSUMER, {"linger.ms": 5}) == {**security_of(CONSUMER), "linger.ms": 5}


def test_who_says_anything_of_security_has_said_all_of_it() -> None:
    own = {"security.protocol": "SSL", "ssl.ca.location": "ca.pem"}
    assert settings_beside(CONSUMER, own) == own


def test_nothing_given_is_nothing() -> None:
    assert settings_beside(None, None) == {}


def test_an_app_gives_it_to_the_producer_of_dead_letters() -> None:
    assert App("billing", settings=CONSUMER).producer_settings == security_of(CONSUMER)


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"transactional.id": "billing-1"}, "transactional.id: found 'billing-1' for the producer of dead letters"),
        ({"acks": 0, "enable.idempotence": False}, "acks: found 0 for the producer of dead letters, wanted all"),
        ({"request.required.acks": "1"}, "acks: found '1' for the producer of dead letters, wanted all"),
        (
            {"enable.idempotence": False},
            "enable.idempotence: found False for the producer of dead letters, wanted true",
        ),
    ],
)
def test_what_would_lose_dead_letters_or_fence_the_services_own_producer_is_refused(
    own: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        dead_letter_arguments(own)


def test_the_environments_word_for_producers_does_not_weaken_dead_letters() -> None:
    environ = {
        "OTTLA_PRODUCER_ACKS": "0",
        "OTTLA_PRODUCER_ENABLE_IDEMPOTENCE": "false",
        "OTTLA_PRODUCER_TRANSACTIONAL_ID": "billing-1",
        "OTTLA_PRODUCER_LINGER_MS": "7",
    }
    arguments = dead_letter_arguments({"acks": "ALL"}, environ)
    settings = producer_settings("localhost:9092", **arguments)
    assert settings["acks"] == "all"
    assert settings["enable.idempotence"] is True
    assert settings.get("transactional.id") is None
    assert settings["linger.ms"] == 7


def test_an_admin_client_beside_a_producer_does_not_call_the_producers_callbacks() -> None:
    callbacks = dict.fromkeys(("error_cb", "stats_cb", "throttle_cb"), print)
    settings = producer_settings("localhost:9092", settings={**callbacks, "statistics.interval.ms": 100}, environ={})
    beside = for_admin(settings)
    assert not {*callbacks, "statistics.interval.ms"} & set(beside)
    assert beside["bootstrap.servers"] == "localhost:9092"
