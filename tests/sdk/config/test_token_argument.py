"""`token=`: what it stands for in the settings, and what it cannot stand beside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.admin import Admin, AsyncAdmin
from ottla.columnar import consume, read, write
from ottla.config.token_argument import with_token
from ottla.errors import ConfigError
from ottla.tokens import Token

SERVERS = "localhost:1"


def token() -> Token:
    return Token(value="abc", expires_at=4_000_000_000)


def test_it_stands_for_two_settings() -> None:
    given = {"security.protocol": "SASL_SSL"}
    found = with_token("Producer", given, token)
    assert found == {**given, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": token}
    assert given == {"security.protocol": "SASL_SSL"}
    assert with_token("Producer", given, None) is given


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_the_mechanism_may_be_named_too(name: str) -> None:
    found = with_token("Producer", {name: "oauthbearer"}, token)
    assert found == {name: "oauthbearer", "sasl.oauthbearer.token": token}


def test_the_same_function_twice_is_the_same_setting() -> None:
    assert with_token("Producer", {"sasl.oauthbearer.token": token}, token) is not None


Make = Callable[[Any, dict[str, Any]], object]
CLIENTS: dict[str, Make] = {
    "Producer": lambda given, settings: Producer(SERVERS, settings=settings, token=given),
    "AsyncProducer": lambda given, settings: AsyncProducer(SERVERS, settings=settings, token=given),
    "Consumer": lambda given, settings: Consumer("t", group="g", settings=settings, token=given),
    "AsyncConsumer": lambda given, settings: AsyncConsumer("t", group="g", settings=settings, token=given),
    "App": lambda given, settings: App("g", settings=settings, token=given),
    "Admin": lambda given, settings: Admin(SERVERS, settings=settings, token=given),
    "AsyncAdmin": lambda given, settings: AsyncAdmin(SERVERS, settings=settings, token=given),
    "read": lambda given, settings: read("t", bootstrap_servers=SERVERS, settings=settings, token=given),
    "write": lambda given, settings: write("t", [], bootstrap_servers=SERVERS, settings=settings, token=given),  # type: ignore[arg-type]
    "consume": lambda given, settings: consume("t", group="g", settings=settings, token=given),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_no_function_is_named_before_any_connection(client: str) -> None:
    with pytest.raises(ConfigError) as refused:
        CLIENTS[client]("s3cr3t-token", {})
    assert str(refused.value).startswith(f"{client}: token: found ")
    assert "wanted a function that returns an ottla.tokens.Token" in str(refused.value)
    assert "s3cr3t-token" not in str(refused.value)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sasl.mechanism": "PLAIN"}, r"sasl.mechanism: found 'PLAIN', wanted OAUTHBEARER or nothing"),
        ({"sasl.oauthbearer.token": lambda: None}, r"token: found sasl.oauthbearer.token in the settings too"),
        ({"oauth_cb": lambda config: None}, r"token: found oauth_cb in the settings too"),
    ],
)
def test_what_it_cannot_stand_beside_is_said(client: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CLIENTS[client](token, settings)


def test_without_a_protocol_that_logs_in_it_is_refused() -> None:
    async def connect() -> None:
        AsyncProducer(SERVERS, token=token)

    for make in (lambda: Producer(SERVERS, token=token), lambda: Admin(SERVERS, token=token)):
        with pytest.raises(ConfigError, match=r"security\.protocol"):
            make()
    with pytest.raises(ConfigError, match=r"security\.protocol"):
        asyncio.run(connect())
