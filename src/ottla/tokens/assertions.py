"""Assertions: a signed web token that shows who the client is, in place of its secret (RFC 7523, KIP-1139).

Made here with a private key, as Azure Entra and others ask, or read from a file that something else renews (workload
identity). A template (`assertion.jwt.template.file`) adds headers and claims, such as `kid` or `x5t#S256`.
"""

from __future__ import annotations

import secrets
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.foreign_json import ForeignJsonError, read_json
from ottla.tokens.oidc import read_text
from ottla.tokens.settings import ALGORITHMS, TokenSettings
from ottla.tokens.shared import current_clock

_LIFE_S: Final = 300
_PREFIX: Final = "sasl.oauthbearer.assertion."


def assertion(settings: TokenSettings) -> str:
    """Return an assertion for the token endpoint. ConfigError for a key or a template that cannot be used."""
    given = dict(settings.assertion)
    if given.get("file"):
        return read_text(given["file"], name=_PREFIX + "file").strip()
    header, claims = _template(given.get("jwt.template.file"))
    now_s = current_clock().now_ms() // 1000
    own = {
        "iss": given.get("claim.iss") or settings.client_id,
        "sub": given.get("claim.sub") or settings.client_id,
        "aud": given.get("claim.aud") or settings.url,
        "iat": now_s,
        "nbf": now_s - int(given.get("claim.nbf.seconds", 60)),
        "exp": now_s + int(given.get("claim.exp.seconds", _LIFE_S)),
        "jti": secrets.token_urlsafe(16),
    }
    claims = {**own, **claims, **{name: value for name, value in own.items() if given.get(f"claim.{name}")}}
    header = {"typ": "JWT", "alg": given.get("algorithm", ALGORITHMS[0]), **header}
    return _signed(header, {name: value for name, value in claims.items() if value != ""}, given)


def _signed(header: dict[str, Any], claims: dict[str, Any], given: dict[str, str]) -> str:
    try:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import ECKey, RSAKey
    except ImportError as error:
        raise ConfigError(
            f"{_PREFIX}private.key.file needs a signer of web tokens: pip install 'ottla[oauth]'"
        ) from error
    algorithm = header["alg"]
    kind = ECKey if algorithm.startswith("ES") else RSAKey
    name = _PREFIX + ("private.key.pem" if given.get("private.key.pem") else "private.key.file")
    pem = given.get("private.key.pem") or read_text(given["private.key.file"], name=name)
    try:
        key = kind.import_key(pem, password=given.get("private.key.passphrase") or None)
        if not key.is_private:
            raise ConfigError(f"{name}: found a public key, wanted a private one")
        return jwt.encode(header, claims, key, algorithms=[algorithm])
    except (ValueError, TypeError, JoseError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{name}: found a key that does not sign by {algorithm}, or that its passphrase does not open, wanted a "
            f"private key in PEM ({type(error).__name__})"
        ) from None


def _template(path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse `{"header": {...}, "payload": {...}}`, as librdkafka takes it."""
    if not path:
        return {}, {}
    name = _PREFIX + "jwt.template.file"
    try:
        found = read_json(read_text(path, name=name), most_depth=20)
    except ForeignJsonError as error:
        raise ConfigError(f"{name}: {path}: {error}") from None
    header, claims = (found.get("header", {}), found.get("payload", {})) if isinstance(found, dict) else (None, None)
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise ConfigError(f'{name}: {path}: wanted {{"header": {{...}}, "payload": {{...}}}}')
    return header, claims
