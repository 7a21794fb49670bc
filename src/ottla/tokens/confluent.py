"""How librdkafka is handed tokens: `oauth_cb` of confluent-kafka, from the process's source.

librdkafka asks once before it connects, and again at 80 % of the life of what it was given. What is raised here it
logs, and asks again ten seconds later.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from ottla.retrying import try_again
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.names import has_tokens, is_oauth_name
from ottla.tokens.settings import token_settings
from ottla.tokens.shared import Tokens, tokens_of

_WAIT_S: Final = 5.0
"""It runs in a thread that polls: a fetch that takes longer is found done when librdkafka asks again."""

_FIRST_S: Final = 10.0


class ConfluentTokens:
    """The `oauth_cb`."""

    __name__ = "oauth_cb"

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """Return (token, expiry in seconds since the epoch, principal, extensions)."""
        token = self.tokens.get(timeout_s=_WAIT_S)
        return token.value, token.expires_at, token.principal, dict(token.extensions)

    def __repr__(self) -> str:
        return f"ConfluentTokens({self.tokens.name})"


def await_token(config: Mapping[str, Any]) -> None:
    """Wait for a token before a client with this configuration is made; return at once where it has none.

    The client's constructor asks once, waits ten seconds, and then raises without the reason. Raises TokenUnavailable
    if there is no token after ten seconds here, TokenRefused or ConfigError as soon as the endpoint refuses.
    """
    callback = config.get("oauth_cb")
    if isinstance(callback, ConfluentTokens):
        tokens = callback.tokens
        until_s = time.monotonic() + _FIRST_S
        try_again(tokens.get, what=tokens.name, errors=TokenUnavailable, until_s=until_s, is_logged=False)


def with_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration for librdkafka in which `oauth_cb` replaces the settings about tokens, if it has any.
    Raises ConfigError for invalid settings."""
    if not has_tokens(config):
        return dict(config)
    kept = {name: value for name, value in config.items() if not is_oauth_name(name)}
    return kept | {"oauth_cb": ConfluentTokens(tokens_of(token_settings(config)))}
