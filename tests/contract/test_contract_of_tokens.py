"""OAUTHBEARER as Kafka does it: its validator of unsecured tokens, and that of tokens signed by a key of a JWKS."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_kafka import ApacheKafka, wanted
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster, OAuthBearer, Security
from ottla.admin import Admin, TopicSpec
from ottla.tokens.unsecured import unsecured_token
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

from ottla.testing.oidc import OidcEndpoint
from ottla.tokens.token import Token

MOST_MS = 600_000
PASSWORD = "admin-secret"
INVALID, FAILED = {"status": "invalid_token"}, ErrorCode.SASL_AUTHENTICATION_FAILED
_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[OidcEndpoint]:
    with OidcEndpoint(audience="kafka") as running:
        yield running


def settings_of_kafka(**oauth: object) -> dict[str, object]:
    """Of a listener with OAUTHBEARER for clients, and PLAIN for Kafka itself."""
    prefix = "listener.name.plaintext."
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        prefix + "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        prefix + "plain.sasl.jaas.config": (f'{plain} username="admin" password="{PASSWORD}" user_admin="{PASSWORD}";'),
        prefix + "oauthbearer.connections.max.reauth.ms": MOST_MS,
        **{prefix + "oauthbearer." + name.replace("_", "."): value for name, value in oauth.items()},
    }


LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "admin",
    "sasl.password": PASSWORD,
}


@pytest.fixture(scope="module")
def unsecured() -> Iterator[str]:
    """Takes unsecured tokens with the scope `kafka`."""
    if wanted() is None:
        security = Security(
            "SASL_PLAINTEXT",
            users={"admin": PASSWORD},
            mechanisms=("OAUTHBEARER", "PLAIN"),
            oauth=OAuthBearer(scope=["kafka"]),
            max_reauth_ms={"OAUTHBEARER": MOST_MS},
        )
        with EmbeddedCluster(security=security) as embedded:
            yield embedded.bootstrap_servers
        return
    jaas = f'{_MODULE} required unsecuredLoginStringClaim_sub="admin" unsecuredValidatorRequiredScope="kafka";'
    with ApacheKafka(config=settings_of_kafka(sasl_jaas_config=jaas), client=LOGIN) as real:
        yield real.bootstrap_servers


@pytest.fixture(scope="module")
def signed(endpoint: OidcEndpoint) -> Iterator[str]:
    """Takes tokens that the endpoint has signed for `kafka`."""
    if wanted() is None:
        security = Security(
            "SASL_PLAINTEXT",
            users={"admin": PASSWORD},
            mechanisms=("OAUTHBEARER", "PLAIN"),
            oauth=OAuthBearer(endpoint.jwks_url, issuer=endpoint.issuer, audience="kafka"),
            max_reauth_ms={"OAUTHBEARER": MOST_MS},
        )
        with EmbeddedCluster(security=security) as embedded:
            yield embedded.bootstrap_servers
        return
    oauth = {
        "sasl_server_callback_handler_class": _HANDLER,
        "sasl_jaas_config": f"{_MODULE} required;",
        "sasl_oauthbearer_jwks_endpoint_url": endpoint.jwks_url,
        "sasl_oauthbearer_expected_issuer": endpoint.issuer,
        "sasl_oauthbearer_expected_audience": "kafka",
        "sasl_oauthbearer_clock_skew_seconds": 0,
    }
    with pytest.MonkeyPatch.context() as environment:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint.jwks_url}"
        environment.setenv("JAVA_TOOL_OPTIONS", f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {allowed}".strip())
        with ApacheKafka(config=settings_of_kafka(**oauth), client=LOGIN) as real:
            yield real.bootstrap_servers


class Login:
    """One connection that shows tokens."""

    def __init__(self, servers: str) -> None:
        self.client = WireClient(servers, timeout_s=30)

    def show(self, message: bytes) -> Message:
        shaken = self.client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        assert (shaken.error_code, sorted(shaken.mechanisms)) == (0, ["OAUTHBEARER", "PLAIN"])
        return self.client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})

    def refused(self, token: str) -> tuple[dict[str, Any], int, dict[str, Any]]:
        """What is answered to a token, and to the byte after it."""
        answer = self.show(first(token))
        assert answer.error_code == 0
        last = self.client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\x01"})
        return json.loads(bytes(answer.auth_bytes)), last.error_code, json.loads(last.error_message)

    def works(self) -> bool:
        return len(self.client.call(ApiKey.METADATA, 9, {"topics": []}).brokers) == 1


@pytest.fixture
def login() -> Iterator[Callable[[str], Login]]:
    opened: list[Login] = []

    def open_one(servers: str) -> Login:
        opened.append(Login(servers))
        return opened[-1]

    yield open_one
    for each in opened:
        each.client.close()


Connect = Callable[[str], Login]


def first(token: str, *, name: str = "", extensions: str = "") -> bytes:
    return f"n,{f'a={name}' if name else ''},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


def plain_token(endpoint: OidcEndpoint, **claims: Any) -> str:
    now_s = endpoint.clock.now_ms() / 1000
    given = {"sub": "alice", "iat": now_s, "exp": now_s + 60, "scope": "kafka", **claims}
    return unsecured_token({name: value for name, value in given.items() if value is not None})


def test_an_unsecured_token_lets_its_subject_in_until_it_expires(
    unsecured: str, endpoint: OidcEndpoint, login: Connect
) -> None:
    connection = login(unsecured)
    answer = connection.show(first(plain_token(endpoint)))
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert 50_000 < answer.session_lifetime_ms <= 60_000
    assert connection.works()


def test_a_long_token_lets_its_subject_in_for_as_long_as_the_mechanism_says(
    unsecured: str, endpoint: OidcEndpoint, login: Connect
) -> None:
    exp = endpoint.clock.now_ms() / 1000 + 86_400
    assert login(unsecured).show(first(plain_token(endpoint, exp=exp))).session_lifetime_ms == MOST_MS


@pytest.mark.parametrize("claims", [{"exp": 1_000_000_000}, {"exp": None}, {"sub": None}])
def test_another_unsecured_token_is_refused(
    unsecured: str, endpoint: OidcEndpoint, login: Connect, claims: dict[str, Any]
) -> None:
    assert login(unsecured).refused(plain_token(endpoint, **claims)) == (INVALID, FAILED, INVALID)


def test_a_token_without_the_scope_hears_which(unsecured: str, endpoint: OidcEndpoint, login: Connect) -> None:
    wanted_scope = {"status": "insufficient_scope", "scope": "[kafka]"}
    found = login(unsecured).refused(plain_token(endpoint, scope="orders"))
    assert found == (wanted_scope, FAILED, wanted_scope)


def test_what_is_no_first_message_lets_nobody_in(unsecured: str, login: Connect) -> None:
    """Kafka closes the connection without a word (docs/reference/differences.md)."""
    connection = login(unsecured)
    if wanted() is None:
        assert connection.show(b"n,,\x01auth=Basic abc\x01\x01").error_code == FAILED
    else:
        with pytest.raises(ConnectionError):
            connection.show(b"n,,\x01auth=Basic abc\x01\x01")


def test_an_authorization_id_has_to_be_the_subject(unsecured: str, endpoint: OidcEndpoint, login: Connect) -> None:
    assert login(unsecured).show(first(plain_token(endpoint), name="alice")).error_code == 0
    answer = login(unsecured).show(first(plain_token(endpoint), name="bob"))
    assert answer.error_code == FAILED
    assert "authorization id (bob) that is different from the token's principal name (alice)" in answer.error_message


def test_extensions_are_taken(unsecured: str, endpoint: OidcEndpoint, login: Connect) -> None:
    message = first(plain_token(endpoint), extensions="logicalCluster=lkc-1\x01identityPoolId=pool-2\x01")
    assert login(unsecured).show(message).error_code == 0


def test_a_signed_token_lets_its_subject_in(signed: str, endpoint: OidcEndpoint, login: Connect) -> None:
    connection = login(signed)
    answer = connection.show(first(endpoint.issue("alice", life_s=60).value))
    assert (answer.error_code, bytes(answer.auth_bytes)) == (0, b"")
    assert 50_000 < answer.session_lifetime_ms <= 60_000
    assert connection.works()


@pytest.mark.parametrize("claims", [{"aud": "other"}, {"iss": "https://elsewhere"}, {"life_s": -60}, {"sub": None}])
def test_a_signed_token_for_something_else_is_refused(
    signed: str, endpoint: OidcEndpoint, login: Connect, claims: dict[str, Any]
) -> None:
    assert login(signed).refused(endpoint.issue("alice", **claims).value) == (INVALID, FAILED, INVALID)


def test_a_token_that_nobody_signed_is_refused(signed: str, endpoint: OidcEndpoint, login: Connect) -> None:
    token = plain_token(endpoint, aud="kafka", iss=endpoint.issuer)
    assert login(signed).refused(token) == (INVALID, FAILED, INVALID)


def test_the_session_is_renewed_by_a_token_of_the_same_subject_alone(
    signed: str, endpoint: OidcEndpoint, login: Connect
) -> None:
    connection = login(signed)
    connection.show(first(endpoint.issue("alice").value))
    until_a_second_later(endpoint)
    assert connection.show(first(endpoint.issue("alice").value)).error_code == 0
    assert connection.works()
    until_a_second_later(endpoint)
    answer = connection.show(first(endpoint.issue("mallory").value))
    assert answer.error_code == FAILED
    assert "Cannot change principals during re-authentication" in answer.error_message


def until_a_second_later(endpoint: OidcEndpoint) -> None:
    """Kafka takes one authentication in a second."""
    began_ms = endpoint.clock.now_ms()
    while endpoint.clock.now_ms() < began_ms + 1_100:
        pass


def test_the_wire_client_logs_in(signed: str, endpoint: OidcEndpoint) -> None:
    settings = {"security.protocol": "SASL_PLAINTEXT", **endpoint.settings()}
    with Admin(signed, settings=settings) as admin:
        admin.create_topics({"by-token": TopicSpec(partitions=1)})
        assert "by-token" in {topic.name for topic in admin.list_topics()}


def test_the_threaded_client_logs_in(signed: str, endpoint: OidcEndpoint) -> None:
    from ottla import Producer

    issued: list[Token] = []

    def token() -> Token:
        issued.append(endpoint.issue("alice"))
        return issued[-1]

    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": token}
    with Admin(signed, settings=settings) as admin:
        admin.create_topics({"by-threads": TopicSpec(partitions=1)})
    with Producer(signed, settings=settings) as producer:
        assert producer.send("by-threads", b"x").result(30).offset == 0
    assert len(issued) == 1


async def test_the_asyncio_client_logs_in(signed: str, endpoint: OidcEndpoint) -> None:
    from ottla import AsyncProducer

    settings = {"security.protocol": "SASL_PLAINTEXT", **endpoint.settings()}
    with Admin(signed, settings=settings) as admin:
        admin.create_topics({"by-asyncio": TopicSpec(partitions=1)})
    async with AsyncProducer(signed, settings=settings) as producer:
        assert (await producer.send("by-asyncio", b"x")).offset == 0
