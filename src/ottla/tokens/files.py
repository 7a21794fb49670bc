"""Tokens of a file that something else renews: `sasl.oauthbearer.token.endpoint.url=file:///run/secrets/token`.

The file has one JSON web token, and is read again as a token would be fetched again (KIP-768's FileTokenRetriever reads
it once). Who writes it replaces it as a whole, by a rename: half a token is refused, and read again after a pause.
"""

from __future__ import annotations

import urllib.parse
import urllib.request

from ottla.errors import ConfigError
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.oidc import read_text
from ottla.tokens.settings import TokenSettings
from ottla.tokens.token import Token, claims_of, expiry_of, text_claim


def fetch(settings: TokenSettings) -> Token:
    """Read the token that is in the file now."""
    path = urllib.request.url2pathname(urllib.parse.urlsplit(settings.url).path)
    value = read_text(path, name=settings.name).strip()
    claims = claims_of(value)
    expires_at = expiry_of(claims)
    if expires_at is None:
        raise TokenUnavailable(f"{settings.name}: found no JSON web token that says when it expires (exp)")
    try:
        return Token(
            value=value,
            expires_at=expires_at,
            principal=text_claim(claims, settings.principal_claim),
            extensions=dict(settings.extensions),
        )
    except ConfigError as error:
        raise TokenUnavailable(f"{settings.name}: {error}") from None
