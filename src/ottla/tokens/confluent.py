"""How librdkafka is handed tokens: `oauth_cb` of confluent-kafka, from the process's source.

librdkafka asks once before it connects, and again at 80 % of the life of what it was given. What is raised here it
logs, and asks again ten seconds later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.tokens.names import has_tokens, is_oauth_name
from ottla.tokens.settings import token_settings
from ottla.tokens.shared import Tokens, tokens_of

__all__ = ["ConfluentTokens", "with_tokens"]

_WAIT_S: Final = 5.0
"""It runs in a thread that polls: a fetch that takes longer is found done when librdkafka asks again."""


class ConfluentTokens:
    """What is given as `oauth_cb`."""

    __name__ = "oauth_cb"

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens

    def __call__(self, config: str) -> tuple[str, float, str, dict[str, str]]:
        """(token, expiry in seconds since the epoch, principal, extensions)."""
        token = self.tokens.get(timeout_s=_WAIT_S)
        return token.value, token.expires_at, token.principal, dict(token.extensions)

    def __repr__(self) -> str:
        return f"ConfluentTokens({self.tokens.name})"


def with_tokens(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of librdkafka's names with `oauth_cb` in place of the settings about tokens, where it has any.

    Raises ConfigError for settings that cannot be.
    """
    if not has_tokens(config):
        return dict(config)
    kept = {name: value for name, value in config.items() if not is_oauth_name(name)}
    return kept | {"oauth_cb": ConfluentTokens(tokens_of(token_settings(config)))}
