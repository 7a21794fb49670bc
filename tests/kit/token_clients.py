"""What tests of tokens share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ottla.testing.oidc import OidcEndpoint
from ottla.tokens.settings import token_settings
from ottla.tokens.shared import Tokens, tokens_of


def tokens_for(endpoint: OidcEndpoint, **changes: Any) -> Tokens:
    """The process's source of the endpoint's first client."""
    return tokens_of(token_settings({**endpoint.settings(), **changes}))


def until(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.005)
