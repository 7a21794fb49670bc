"""Assertions by a private key in place of a secret, against an endpoint that checks them; and AWS's signer."""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from ottla.clock import ManualClock
from ottla.errors import ConfigError
from ottla.testing.oidc import OidcEndpoint, oidc_endpoint
from ottla.tokens import TokenRefused, TokenUnavailable
from ottla.tokens.settings import JWT_BEARER, token_settings
from ottla.tokens.shared import Tokens, forget_sources, tokens_of

pytest.importorskip("joserfc", reason="needs joserfc (ottla[oauth])")

Signing = Callable[..., tuple[OidcEndpoint, Tokens]]
ASSERTION = "sasl.oauthbearer.assertion."


def key_pair(algorithm: str) -> tuple[str, str]:
    """Return (private, public) keys in PEM."""
    from joserfc.jwk import ECKey, RSAKey

    key: Any = ECKey.generate_key("P-256") if algorithm.startswith("ES") else RSAKey.generate_key(2048)
    return key.as_pem(private=True).decode(), key.as_pem(private=False).decode()


@pytest.fixture
def signing(tmp_path: Path, clock: ManualClock) -> Iterator[Signing]:
    """`signing("ES256", **settings)`: an endpoint that knows the public key of "billing", and that client's tokens."""
    opened: list[Any] = []

    def start(algorithm: str = "RS256", **changes: str) -> tuple[OidcEndpoint, Tokens]:
        private, public = key_pair(algorithm)
        path = tmp_path / "key.pem"
        path.write_text(private)
        running = oidc_endpoint(clock=clock, public_keys={"billing": public})
        endpoint = running.__enter__()
        opened.append(running)
        own = endpoint.settings() | {
            "sasl.oauthbearer.client.id": "billing",
            ASSERTION + "private.key.file": str(path),
            ASSERTION + "algorithm": algorithm,
        }
        del own["sasl.oauthbearer.client.secret"]
        named = {name.replace("_", "."): value for name, value in changes.items()}
        return endpoint, tokens_of(token_settings({**own, **named}))

    yield start
    for running in opened:
        running.__exit__(None, None, None)


def parts_of(assertion: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims = (
        json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in assertion.split(".")[:2]
    )
    return header, claims


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256"])
def test_a_private_key_stands_in_for_the_secret(signing: Signing, clock: ManualClock, algorithm: str) -> None:
    endpoint, tokens = signing(algorithm)
    assert tokens.get().principal == "billing"
    (form,) = endpoint.forms
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert "client_secret" not in form
    header, claims = parts_of(form["client_assertion"])
    now_s = clock.now_ms() // 1000
    assert (header["alg"], header["typ"]) == (algorithm, "JWT")
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("billing", "billing", endpoint.token_url)
    assert (claims["iat"], claims["nbf"], claims["exp"]) == (now_s, now_s - 60, now_s + 300)


def test_each_request_has_an_assertion_of_its_own(signing: Signing, clock: ManualClock) -> None:
    endpoint, tokens = signing()
    tokens.get()
    clock.advance(400_000)
    tokens.get()
    ids = [parts_of(form["client_assertion"])[1]["jti"] for form in endpoint.forms]
    assert len(set(ids)) == 2


def test_an_assertion_can_be_the_grant(signing: Signing) -> None:
    endpoint, tokens = signing(**{"sasl.oauthbearer.grant.type": JWT_BEARER})
    assert tokens.get().principal == "billing"
    assert endpoint.forms[0]["grant_type"] == JWT_BEARER
    assert endpoint.forms[0]["assertion"].count(".") == 2


def test_a_template_adds_headers_and_claims(signing: Signing, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    template.write_text('{"header": {"x5t#S256": "a-thumbprint"}, "payload": {"tenant": "north"}}')
    endpoint, tokens = signing(**{ASSERTION + "jwt.template.file": str(template)})
    tokens.get()
    header, claims = parts_of(endpoint.forms[0]["client_assertion"])
    assert header["x5t#S256"] == "a-thumbprint"
    assert (claims["tenant"], claims["sub"]) == ("north", "billing")


@pytest.mark.parametrize("text", ["{", "[]", '{"header": []}'])
def test_a_template_that_is_none_is_named(signing: Signing, tmp_path: Path, text: str) -> None:
    template = tmp_path / "template.json"
    template.write_text(text)
    _, tokens = signing(**{ASSERTION + "jwt.template.file": str(template)})
    with pytest.raises(ConfigError, match=r"assertion\.jwt\.template\.file: .*template\.json"):
        tokens.get()


def test_a_key_that_the_endpoint_does_not_know_is_refused(signing: Signing, tmp_path: Path) -> None:
    _, tokens = signing()
    (tmp_path / "key.pem").write_text(key_pair("RS256")[0])
    with pytest.raises(TokenRefused, match="invalid_client"):
        tokens.get()


@pytest.mark.parametrize("found", ["public", "garbage", "another algorithm"])
def test_a_key_that_does_not_sign_is_named_and_not_shown(signing: Signing, tmp_path: Path, found: str) -> None:
    _, tokens = signing("RS256")
    text = {"public": key_pair("RS256")[1], "garbage": "not-a-key", "another algorithm": key_pair("ES256")[0]}[found]
    (tmp_path / "key.pem").write_text(text)
    with pytest.raises(ConfigError, match=r"assertion\.private\.key\.file: found a") as caught:
        tokens.get()
    assert text.splitlines()[-1] not in str(caught.value)
    assert "BEGIN" not in str(caught.value)


def test_an_assertion_in_a_file_is_read_again_for_each_token(
    endpoint: OidcEndpoint, clock: ManualClock, tmp_path: Path
) -> None:
    path = tmp_path / "assertion"
    path.write_text("first.of.two\n")
    own = endpoint.settings() | {ASSERTION + "file": str(path)}
    del own["sasl.oauthbearer.client.secret"]
    tokens = tokens_of(token_settings(own))
    with pytest.raises(TokenRefused):
        tokens.get()
    path.write_text("second.of.two\n")
    clock.advance(60_000)
    with pytest.raises(TokenRefused):
        tokens.get()
    shown = [form["client_assertion"] for form in endpoint.forms]
    assert (shown[0], shown[-1]) == ("first.of.two", "second.of.two")


class TestMskIam:
    SETTINGS: ClassVar[dict[str, str]] = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "aws-msk-iam",
        "sasl.oauthbearer.aws.region": "eu-central-1",
    }

    @pytest.fixture(autouse=True)
    def no_credentials_of_the_machine(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        pytest.importorskip("aws_msk_iam_sasl_signer", reason="needs AWS's signer (ottla[msk-iam])")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
            monkeypatch.delenv(name, raising=False)
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
            monkeypatch.setenv(name, str(tmp_path / "none"))
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        forget_sources()
        yield
        forget_sources()

    def test_the_token_is_a_signed_url_of_the_region(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-a-test")
        token = tokens_of(token_settings(self.SETTINGS)).get()
        url = base64.urlsafe_b64decode(token.value + "=" * (-len(token.value) % 4)).decode()
        parts = urllib.parse.urlsplit(url)
        asked = dict(urllib.parse.parse_qsl(parts.query))
        assert parts.hostname == "kafka.eu-central-1.amazonaws.com"
        assert (asked["Action"], asked["X-Amz-Expires"]) == ("kafka-cluster:Connect", "900")
        assert asked["X-Amz-Credential"].startswith("AKIDEXAMPLE/")
        assert "a-secret-of-a-test" not in url
        assert token.value not in repr(token)

    def test_no_credentials_are_an_outage_that_names_the_region(self) -> None:
        with pytest.raises(TokenUnavailable, match="no credentials for region eu-central-1"):
            tokens_of(token_settings(self.SETTINGS)).get()

    def test_no_region_is_a_setting_that_is_missing(self) -> None:
        settings = {name: value for name, value in self.SETTINGS.items() if "region" not in name}
        with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.aws\.region: found nothing"):
            tokens_of(token_settings(settings)).get()

    def test_a_missing_setting_is_looked_for_again_only_when_a_client_asks(self) -> None:
        settings = {name: value for name, value in self.SETTINGS.items() if "region" not in name}
        tokens = tokens_of(token_settings(settings))
        with pytest.raises(ConfigError):
            tokens.get()
        assert tokens._timer is None  # else the log has the same error again and again, for nobody
