"""Which function fetches a token, by the settings."""

from __future__ import annotations

from collections.abc import Callable

from ottla.tokens.settings import Origin, TokenSettings
from ottla.tokens.token import Token


def fetch_of(settings: TokenSettings) -> Callable[[], Token]:
    """Return the function that fetches a token, which may block for some seconds.

    It raises TokenUnavailable for a failure that may pass, TokenRefused and ConfigError for one that will not.
    """
    # Imported where used: most programs have tokens from one place, or none at all.
    match settings.origin:
        case Origin.OIDC:
            from ottla.tokens.oidc import fetch
        case Origin.FILE:
            from ottla.tokens.files import fetch
        case Origin.MSK_IAM:
            from ottla.tokens.msk_iam import fetch
        case Origin.UNSECURED:
            from ottla.tokens.unsecured import fetch
        case Origin.CALLABLE | Origin.OAUTH_CB:
            from ottla.tokens.callables import fetch
    return lambda: fetch(settings)
