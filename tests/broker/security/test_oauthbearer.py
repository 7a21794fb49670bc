"""OAUTHBEARER at the embedded broker: which tokens are accepted, what is said of others, when sessions end."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from token_clients import until
from wire_client import WireClient

from broker_embedded.cluster import EmbeddedCluster, OAuthBearer, Security
from broker_embedded.cluster.time import VirtualClock
from broker_embedded.common.clock import ManualClock
from broker_embedded.common.errors import StartupError
from broker_embedded.security.exchange import AuthenticationFailed
from broker_embedded.security.oauthbearer import OAuthBearerExchange
from broker_embedded.security.web_tokens import TokenNotAccepted, TokenValidator
from ottla.tokens.unsecured import unsecured_token
from ottla_wire.protocol import ApiKey, ErrorCode
from ottla_wire.protocol.message import Message

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

from ottla.testing.oidc import OidcEndpoint

NOW_S = ManualClock().now_ms() // 1000
GOOD: dict[str, Any] = {"sub": "alice", "exp": NOW_S + 60}


def validator(**settings: Any) -> TokenValidator:
    return TokenValidator(OAuthBearer(None, **settings), now_ms=ManualClock().now_ms)


def first_message(token: str, *, name: str = "", extensions: str = "") -> bytes:
    return f"n,{f'a={name}' if name else ''},\x01auth=Bearer {token}\x01{extensions}\x01".encode()


ACCEPTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"iat": NOW_S, "nbf": NOW_S}, {}),
    ({"iss": "https://login"}, {"issuer": "https://login"}),
    ({"aud": "kafka"}, {"audience": "kafka"}),
    ({"aud": ["other", "kafka"]}, {"audience": ["kafka", "third"]}),
    ({"scope": "kafka orders"}, {"scope": ["orders"]}),
    ({"scp": ["orders", "kafka"]}, {"scope": ["orders", "kafka"], "scope_claim": "scp"}),
    ({"client": "alice", "sub": "17"}, {"principal_claim": "client"}),
    ({"exp": NOW_S - 5}, {"clock_skew_s": 10}),
    ({"nbf": NOW_S + 5}, {"clock_skew_s": 10}),
]


@pytest.mark.parametrize(("claims", "settings"), ACCEPTED)
def test_a_token_that_the_listener_wants_is_accepted(claims: dict[str, Any], settings: dict[str, Any]) -> None:
    assert validator(**settings).accept(unsecured_token({**GOOD, **claims})).principal == "alice"


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"exp": NOW_S}, {}, "expired 0.0 s ago"),
    ({"exp": NOW_S - 10}, {"clock_skew_s": 10}, "expired 10.0 s ago"),
    ({"exp": None}, {}, "no claim 'exp'"),
    ({"exp": "soon"}, {}, "claim 'exp' is not a time"),
    ({"exp": 1e300}, {}, "claim 'exp' is not a time"),
    ({"nbf": NOW_S + 5}, {}, "nbf is 5.0 s in the future"),
    ({"iat": NOW_S + 50}, {"clock_skew_s": 10}, "iat is 50.0 s in the future"),
    ({}, {"issuer": "https://login"}, "another issuer"),
    ({"aud": "other"}, {"audience": "kafka"}, "another audience"),
    ({"aud": {"kafka": 1}}, {"audience": "kafka"}, "another audience"),
    ({"scope": "orders"}, {"scope": ["kafka"]}, "without scope kafka"),
    ({"sub": ""}, {}, "no claim 'sub'"),
    ({"sub": 5}, {}, "no claim 'sub'"),
]


@pytest.mark.parametrize(("claims", "settings", "reason"), REFUSED)
def test_another_token_is_refused(claims: dict[str, Any], settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenNotAccepted, match=reason):
        validator(**settings).accept(unsecured_token({**GOOD, **claims}))


@pytest.mark.parametrize(
    "token", ["", "a.b", "a.b.c", "e30.e30.", "e30.W10.", "eyJhbGciOiJub25lIn0.W10.", "x" * 600_000]
)
def test_what_is_no_unsecured_token_is_refused(token: str) -> None:
    with pytest.raises(TokenNotAccepted):
        validator().accept(token)


def test_a_missing_scope_is_named() -> None:
    with pytest.raises(TokenNotAccepted) as refused:
        validator(scope=["kafka", "orders"]).accept(unsecured_token(GOOD))
    assert json.loads(refused.value.answer) == {"status": "insufficient_scope", "scope": "[kafka, orders]"}


def test_a_refused_token_is_answered_with_json_and_the_exchange_ends_after_one_byte() -> None:
    exchange = OAuthBearerExchange(validator().accept)
    answer = exchange.evaluate(first_message("a.b.c"))
    assert json.loads(answer) == {"status": "invalid_token"}
    with pytest.raises(AuthenticationFailed) as failed:
        exchange.evaluate(b"\x01")
    assert failed.value.message == answer.decode()


@pytest.mark.parametrize("name", ["", "alice"])
def test_an_authorization_id_is_the_tokens_principal_or_missing(name: str) -> None:
    exchange = OAuthBearerExchange(validator().accept)
    assert exchange.evaluate(first_message(unsecured_token(GOOD), name=name, extensions="pool=p\x01")) == b""
    assert (exchange.user, exchange.expires_ms) == ("alice", (NOW_S + 60) * 1000)


def test_another_authorization_id_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="requested an authorization id"):
        OAuthBearerExchange(validator().accept).evaluate(first_message(unsecured_token(GOOD), name="bob"))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"\xff",
        b"n,,\x01auth=Bearer abc\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x01\x01x",
    ],
)
def test_what_is_no_first_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed, match="Invalid OAUTHBEARER client first message"):
        OAuthBearerExchange(validator().accept).evaluate(message)


def test_a_token_that_somebody_signed_is_not_an_unsecured_one() -> None:
    with OidcEndpoint(clock=ManualClock()) as endpoint, pytest.raises(TokenNotAccepted, match="no keys"):
        validator().accept(endpoint.issue("alice").value)


# --- a listener


@pytest.fixture(scope="module")
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(scope="module")
def endpoint(clock: VirtualClock) -> Iterator[OidcEndpoint]:
    with OidcEndpoint(clock=clock, audience="kafka") as running:
        yield running


@pytest.fixture(scope="module")
def cluster(clock: VirtualClock, endpoint: OidcEndpoint) -> Iterator[EmbeddedCluster]:
    security = Security(
        "SASL_PLAINTEXT",
        users={"bob": "bob-secret"},
        mechanisms=("OAUTHBEARER", "PLAIN"),
        oauth=OAuthBearer(endpoint.jwks_url, issuer=endpoint.issuer, audience="kafka"),
        max_reauth_ms={"PLAIN": 20_000},
    )
    with EmbeddedCluster(clock=clock, security=security) as running:
        yield running


@pytest.fixture
def connect(cluster: EmbeddedCluster) -> Iterator[Callable[[], WireClient]]:
    opened: list[WireClient] = []

    def open_one() -> WireClient:
        opened.append(WireClient(cluster.bootstrap_servers, timeout_s=60))
        return opened[-1]

    yield open_one
    for client in opened:
        client.close()


Connect = Callable[[], WireClient]


def show(client: WireClient, token: str, mechanism: str = "OAUTHBEARER") -> Message:
    assert client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": mechanism}).error_code == 0
    message = first_message(token) if mechanism == "OAUTHBEARER" else token.encode()
    return client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})


def works(client: WireClient) -> bool:
    return len(client.call(ApiKey.METADATA, 9, {"topics": []}).brokers) == 1


def test_a_signed_token_lets_its_owner_in_for_as_long_as_it_is_good(
    connect: Connect, endpoint: OidcEndpoint, clock: VirtualClock
) -> None:
    client = connect()
    answer = show(client, endpoint.issue("alice", life_s=30).value)
    assert (answer.error_code, bytes(answer.auth_bytes), answer.session_lifetime_ms) == (0, b"", 30_000)
    assert works(client)
    clock.advance(30_000)
    client.send(ApiKey.METADATA, 9, {"topics": []})
    assert client.is_closed_by_peer()


def test_the_session_is_renewed_with_another_token_of_the_same_principal(
    connect: Connect, endpoint: OidcEndpoint, clock: VirtualClock
) -> None:
    client = connect()
    show(client, endpoint.issue("alice", life_s=30).value)
    clock.advance(29_000)
    assert show(client, endpoint.issue("alice", life_s=60).value).session_lifetime_ms == 60_000
    clock.advance(30_000)
    assert works(client)


def test_another_principal_cannot_take_over_the_connection(connect: Connect, endpoint: OidcEndpoint) -> None:
    client = connect()
    show(client, endpoint.issue("alice").value)
    answer = show(client, endpoint.issue("mallory").value)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in answer.error_message


def test_mechanisms_have_their_own_session_lifetimes(connect: Connect) -> None:
    assert show(connect(), "\0bob\0bob-secret", "PLAIN").session_lifetime_ms == 20_000


@pytest.mark.parametrize("claims", [{"aud": "other"}, {"iss": "https://elsewhere"}, {"exp": 1}, {"sub": None}])
def test_a_signed_token_for_something_else_is_refused(
    connect: Connect, endpoint: OidcEndpoint, claims: dict[str, Any]
) -> None:
    client = connect()
    answer = show(
        client,
        endpoint.issue("alice", **claims).value if "exp" not in claims else endpoint.issue("alice", life_s=-10).value,
    )
    assert (answer.error_code, json.loads(bytes(answer.auth_bytes))) == (0, {"status": "invalid_token"})
    answer = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\x01"})
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        '{"status":"invalid_token"}',
    )
    assert client.is_closed_by_peer()


def test_an_unsecured_token_is_refused_where_keys_sign(connect: Connect, clock: VirtualClock) -> None:
    claims = {"sub": "alice", "exp": clock.now_ms() / 1000 + 60, "aud": "kafka"}
    assert json.loads(bytes(show(connect(), unsecured_token(claims)).auth_bytes)) == {"status": "invalid_token"}


def test_a_token_signed_by_the_public_key_as_a_secret_is_refused(connect: Connect, endpoint: OidcEndpoint) -> None:
    key = endpoint._keys[0]
    claims = {"sub": "alice", "aud": "kafka", "iss": endpoint.issuer, "exp": 4_000_000_000}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in ({"alg": "HS256", "kid": key.kid}, claims)
    ]
    signature = hmac.digest(key.as_pem(private=False), b".".join(parts), "sha256")
    forged = b".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()
    assert json.loads(bytes(show(connect(), forged).auth_bytes)) == {"status": "invalid_token"}


def test_a_key_that_is_new_is_known_soon_and_one_that_was_taken_away_is_not(
    connect: Connect, endpoint: OidcEndpoint
) -> None:
    before = endpoint.issue("alice").value
    assert not bytes(show(connect(), before).auth_bytes)
    endpoint.rotate_keys(keep_old=False)
    after = endpoint.issue("alice").value
    until(lambda: not bytes(show(connect(), after).auth_bytes))
    assert bytes(show(connect(), before).auth_bytes)


def test_keys_are_read_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "jwks.json"
    with OidcEndpoint() as endpoint:
        file.write_text(endpoint.jwks())
        token = endpoint.issue("alice").value
    security = Security("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), oauth=OAuthBearer(file))
    with EmbeddedCluster(security=security) as cluster:
        client = WireClient(cluster.bootstrap_servers)
        assert show(client, token).session_lifetime_ms > 0
        assert works(client)
        client.close()


@pytest.mark.parametrize("content", ["", "[]", '{"keys": 5}', "[" * 100_000, '{"keys": [{"kty": "RSA"}]}'])
def test_a_file_without_keys_is_an_error_at_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "jwks.json"
    file.write_text(content)
    security = Security("SASL_PLAINTEXT", mechanisms=("OAUTHBEARER",), oauth=OAuthBearer(file))
    with pytest.raises(StartupError, match="oauth: jwks"), EmbeddedCluster(security=security):
        pass


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"oauth": OAuthBearer()}, "oauth: found without OAUTHBEARER"),
        ({"mechanisms": ("OAUTH",)}, "SASL mechanism: found 'OAUTH'"),
        ({"max_reauth_ms": {"OAUTHBEARER": 5}}, "max_reauth_ms: found 'OAUTHBEARER'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(StartupError, match=problem):
        Security("SASL_PLAINTEXT", **settings)
