"""The settings of OAUTHBEARER: what is wrong is said before anything is connected to, always in the same words."""

from __future__ import annotations

import itertools

import pytest

from ottla.errors import ConfigError
from ottla.tokens.settings import Origin, TokenSettings, token_settings
from ottla.tokens.token import Token

OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    "sasl.oauthbearer.client.id": "orders",
    "sasl.oauthbearer.client.secret": "s3cr3t-of-orders",
    "sasl.oauthbearer.scope": "kafka",
    "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-2",
}


def test_client_credentials_by_librdkafkas_names() -> None:
    found = token_settings(OIDC)
    assert (found.origin, found.client_id, found.scope) == (Origin.OIDC, "orders", "kafka")
    assert found.extensions == (("identityPoolId", "pool-2"), ("logicalCluster", "lkc-1"))


def test_the_names_of_kafka_4_1_are_the_same_settings() -> None:
    renamed = {name.replace("bearer.client.", "bearer.client.credentials.client."): v for name, v in OIDC.items()}
    assert renamed != OIDC
    assert token_settings(renamed) == token_settings(OIDC)


def test_no_secret_is_shown() -> None:
    found = token_settings(OIDC)
    assert "s3cr3t" not in repr(found) + str(found) + found.name
    assert "abc.def" not in repr(Token(value="abc.def", expires_at=1.0))


def test_equal_settings_are_equal_whatever_the_order() -> None:
    one, other = token_settings(OIDC), token_settings(dict(reversed(OIDC.items())))
    assert one == other
    assert hash(one) == hash(other)


def test_a_file_is_a_url_too() -> None:
    found = token_settings({"sasl.oauthbearer.token.endpoint.url": "file:///run/token"})
    assert (found.origin, found.name) == (Origin.FILE, "token endpoint file:///run/token")


def test_the_region_of_msk_is_that_of_its_address() -> None:
    servers = "b-1.orders.abc.c2.kafka.eu-central-1.amazonaws.com:9098"
    found = token_settings({"sasl.oauthbearer.method": "aws-msk-iam", "bootstrap.servers": servers})
    assert (found.origin, found.aws_region) == (Origin.MSK_IAM, "eu-central-1")


def test_a_callable_that_cannot_be_hashed_is_a_key() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self) -> Token:
            raise NotImplementedError

    call = Unhashable()
    one, other = (token_settings({"sasl.oauthbearer.token": call}) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != token_settings({"sasl.oauthbearer.token": Unhashable()})


WRONG: list[tuple[dict[str, object], str]] = [
    ({}, "sasl.oauthbearer.method: found nothing, wanted one of oauth_cb,"),
    ({"sasl.oauthbearer.method": "oidc"}, "sasl.oauthbearer.token.endpoint.url: found nothing"),
    ({"sasl.oauthbearer.method": "magic"}, "sasl.oauthbearer.method: found 'magic', wanted one of default, oidc"),
    ({**OIDC, "sasl.oauthbearer.client.secret": ""}, "sasl.oauthbearer.client.secret: found nothing"),
    ({**OIDC, "sasl.oauthbearer.client.id": ""}, "sasl.oauthbearer.client.id: found nothing"),
    ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "login.example.com"}, "token.endpoint.url: found something else"),
    ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "https://u:pw@x.example/t"}, "without a user"),
    ({**OIDC, "sasl.oauthbearer.token.endpoint.url": "file://host/token"}, "file:///PATH"),
    ({**OIDC, "sasl.oauthbearer.grant.type": "password"}, "sasl.oauthbearer.grant.type: found"),
    ({**OIDC, "sasl.oauthbearer.extensions": "logicalCluster"}, "found a part without ="),
    ({**OIDC, "sasl.oauthbearer.extensions": "auth=x"}, "found the name 'auth'"),
    ({**OIDC, "sasl.oauthbearer.assertion.algorithm": "RS256"}, "assertion.private.key.file: found nothing"),
    (
        {**OIDC, "sasl.oauthbearer.assertion.algorithm": "HS256", "sasl.oauthbearer.assertion.file": "x"},
        "assertion.algorithm: found 'HS256'",
    ),
    (
        {**OIDC, "sasl.oauthbearer.assertion.private.key.file": "x", "sasl.oauthbearer.assertion.file": "x"},
        "found file, private.key.file, wanted one of them",
    ),
    ({**OIDC, "sasl.oauthbearer.client.credentials.client.id": "other"}, "client.id: found twice"),
    ({"sasl.oauthbearer.token": "text"}, "sasl.oauthbearer.token: found str, wanted a function"),
    ({"sasl.oauthbearer.method": "aws-msk-iam", "sasl.oauthbearer.aws.region": "EU!"}, "aws.region: found 'EU!'"),
    ({"sasl.oauthbearer.metadata.authentication.type": "azure_imds"}, "only the threaded client can do"),
]


@pytest.mark.parametrize(("given", "message"), WRONG, ids=itertools.count())
def test_what_is_wrong_is_said(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as one:
        token_settings(given)
    with pytest.raises(ConfigError) as other:
        token_settings(dict(reversed(given.items())))
    assert message in str(one.value)
    assert str(one.value) == str(other.value)
    assert "s3cr3t" not in str(one.value)


@pytest.mark.parametrize("value", ["", "a b", "a\x01b", "ä", "a\n"])
def test_a_token_that_cannot_be_sent_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="token:"):
        Token(value=value, expires_at=1.0)


@pytest.mark.parametrize("expires_at", [0, -1, float("nan"), float("inf"), True, 1e12])
def test_an_expiry_that_is_no_time_is_refused(expires_at: float) -> None:
    with pytest.raises(ConfigError, match="expires_at"):
        Token(value="abc", expires_at=expires_at)


def test_token_settings_are_frozen() -> None:
    assert isinstance(token_settings(OIDC), TokenSettings)
    with pytest.raises(AttributeError):
        token_settings(OIDC).scope = "other"  # type: ignore[misc]
