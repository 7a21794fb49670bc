"""The producer beside a consumer logs in as the consumer does, unless it is told otherwise."""

from __future__ import annotations

from ottla import App
from ottla.config import security_of, settings_beside

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
