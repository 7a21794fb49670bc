"""Tokens of a token endpoint: OAuth's client credentials (RFC 6749, section 4.4; KIP-768), and assertions (RFC 7523).

What the endpoint says may appear in an error, cut and without the secret; what was sent to it never does.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import urllib.parse
from pathlib import Path
from typing import Any, Final

from ottla.errors import ConfigError, OttlaError
from ottla.foreign_json import ForeignJsonError, read_json
from ottla.http_exchange import exchange
from ottla.showing import HIDDEN
from ottla.tokens.errors import TokenRefused, TokenUnavailable
from ottla.tokens.settings import CLIENT_CREDENTIALS, TokenSettings
from ottla.tokens.shared import current_clock
from ottla.tokens.token import Token, claims_of, expiry_of, text_claim

_ANSWER_S: Final = 10.0
_MOST_BYTES: Final = 1024 * 1024
_PASSING_ERRORS: Final = frozenset({"server_error", "slow_down", "temporarily_unavailable"})
_PASSING: Final = frozenset({408, 425, 429})
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


def fetch(settings: TokenSettings) -> Token:
    """Ask the endpoint for a token."""
    asked_ms = current_clock().now_ms()
    status, answer = _ask(settings, *_request(settings))
    if status != 200:
        raise _refusal(settings, status, answer)
    return _token(settings, answer, asked_ms)


def _request(settings: TokenSettings) -> tuple[dict[str, str], dict[str, str]]:
    """Return the form and the headers."""
    form = {"grant_type": settings.grant_type}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    if settings.scope:
        form["scope"] = settings.scope
    if settings.assertion:
        from ottla.tokens.assertions import assertion

        made = assertion(settings)
        if settings.grant_type == CLIENT_CREDENTIALS:
            form |= {"client_id": settings.client_id, "client_assertion_type": _ASSERTION_TYPE}
            form["client_assertion"] = made
        else:
            form["assertion"] = made
    if settings.client_secret and not (settings.assertion and settings.grant_type == CLIENT_CREDENTIALS):
        headers["Authorization"] = _basic(settings)
    return form, headers


def _basic(settings: TokenSettings) -> str:
    pair = [settings.client_id, settings.client_secret]
    if settings.is_header_urlencoded:
        pair = [urllib.parse.quote_plus(part) for part in pair]
    return "Basic " + base64.b64encode(":".join(pair).encode()).decode()


def _ask(settings: TokenSettings, form: dict[str, str], headers: dict[str, str]) -> tuple[int, Any]:
    parts = urllib.parse.urlsplit(settings.url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    body = urllib.parse.urlencode(form).encode()
    tls = _tls(settings) if parts.scheme == "https" else None
    try:
        status, raw = exchange(parts, "POST", path, body=body, headers=headers, tls=tls, timeout_s=_ANSWER_S)
    except ssl.SSLCertVerificationError as error:
        raise TokenUnavailable(
            f"{settings.name}: its certificate is not trusted ({error.verify_message}): set https.ca.location to the "
            "authority's certificate"
        ) from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        problem = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise TokenUnavailable(f"{settings.name}: {_safe(settings, problem)}") from None
    try:
        return status, read_json(raw, most_bytes=_MOST_BYTES, most_depth=50)
    except ForeignJsonError:
        return status, None


def _tls(settings: TokenSettings) -> ssl.SSLContext:
    try:
        if settings.is_ca_added:
            context = ssl.create_default_context()
            if settings.ca_location or settings.ca_pem:
                context.load_verify_locations(cafile=settings.ca_location, cadata=settings.ca_pem)
            return context
        return ssl.create_default_context(cafile=settings.ca_location, cadata=settings.ca_pem)
    except (OSError, ssl.SSLError) as error:
        name = "ssl.ca" if settings.is_ca_added else "https.ca"
        problem = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"{name}.location: found {settings.ca_location or 'text'}, wanted certificates in PEM for {settings.name}: "
            f"{problem}"
        ) from None


def _token(settings: TokenSettings, answer: Any, asked_ms: int) -> Token:
    value = answer.get("access_token") if isinstance(answer, dict) else None
    if not isinstance(value, str):
        raise TokenUnavailable(f"{settings.name}: its answer has no access_token; is it a token endpoint?")
    claims = claims_of(value)
    lifetime_s = answer.get("expires_in")
    if isinstance(lifetime_s, str) and lifetime_s.isascii() and lifetime_s.isdigit() and len(lifetime_s) < 12:
        lifetime_s = int(lifetime_s)  # as Azure's older endpoints write it
    if isinstance(lifetime_s, int | float) and not isinstance(lifetime_s, bool) and 0 < lifetime_s < 1e9:
        # By this machine's clock, however far the endpoint's is from it.
        expires_at: float | None = asked_ms / 1000 + lifetime_s
    else:
        expires_at = expiry_of(claims)
    if expires_at is None:
        raise TokenUnavailable(f"{settings.name}: the token says neither by expires_in nor by exp when it expires")
    try:
        return Token(
            value=value,
            expires_at=expires_at,
            principal=text_claim(claims, settings.principal_claim),
            extensions=dict(settings.extensions),
        )
    except ConfigError as error:
        raise TokenUnavailable(f"{settings.name}: {error}") from None


def _refusal(settings: TokenSettings, status: int, answer: Any) -> OttlaError:
    code = description = ""
    if isinstance(answer, dict):
        code, description = (
            found if isinstance(found := answer.get(name), str) else "" for name in ("error", "error_description")
        )
    said = _safe(settings, ": ".join(filter(None, (code, description))))
    message = f"{settings.name}: HTTP {status}{f', {said}' if said else ''}"
    if 400 <= status < 500 and status not in _PASSING and code not in _PASSING_ERRORS:
        asked = settings.client_id or "the assertion"
        return TokenRefused(f"{message}; asked as {asked!r} with scope {settings.scope or 'not set'!r}")
    if 300 <= status < 400:
        return TokenRefused(f"{message}; it points elsewhere: set sasl.oauthbearer.token.endpoint.url to that address")
    return TokenUnavailable(message)


def _safe(settings: TokenSettings, text: str) -> str:
    """Return the endpoint's own words, without a secret that they may repeat: short, and on one line."""
    for secret in (settings.client_secret, urllib.parse.quote_plus(settings.client_secret)):
        if secret:
            text = text.replace(secret, HIDDEN)
    text = "".join(letter if letter.isprintable() else " " for letter in text[:2_000])
    return text if len(text) <= 200 else f"{text[:200]}…"


def read_text(path: str, *, name: str, most_bytes: int = _MOST_BYTES) -> str:
    """Return a file's text. Raises TokenUnavailable, because another process may be rewriting it."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(most_bytes + 1)
        if len(data) > most_bytes:
            raise TokenUnavailable(f"{name}: found more than {most_bytes:,} bytes in {path}")
        return data.decode()
    except UnicodeDecodeError:
        raise TokenUnavailable(f"{name}: {path}: found bytes that are not UTF-8") from None
    except OSError as error:
        raise TokenUnavailable(f"{name}: {path}: {error.strerror}") from None
