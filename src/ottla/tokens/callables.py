"""Tokens of the caller's own function: `sasl.oauthbearer.token`, sync or async, and `oauth_cb` of confluent-kafka.

An async function is awaited on the event loop that `prefer_loop` named last, where its own clients live, else on a
loop of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Mapping
from typing import Any, Final

from ottla.errors import ConfigError, OttlaError
from ottla.telemetry import log_event
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.settings import Origin, TokenSettings
from ottla.tokens.token import Token

_ANSWER_S: Final = 14.0

_loop: asyncio.AbstractEventLoop | None = None


def prefer_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Await the callers' async functions on this loop, while it runs."""
    global _loop
    _loop = loop


def fetch(settings: TokenSettings) -> Token:
    """Call the function. What it raises is logged in full, and named in an error by its type alone."""
    assert settings.call is not None
    call = settings.call.call
    try:
        # confluent-kafka hands sasl.oauthbearer.config to its callback.
        found = call(settings.unsecured) if settings.origin is Origin.OAUTH_CB else call()
        if inspect.isawaitable(found):
            found = _awaited(found)
    except OttlaError:
        raise
    except Exception as error:
        name = "oauth_cb" if settings.origin is Origin.OAUTH_CB else "token"
        log_event("client_callback_failed", "error", {"callback": name, "error": repr(error), "exc_info": error})
        raise TokenUnavailable(f"{settings.name} raised {type(error).__name__}") from None
    if settings.origin is Origin.OAUTH_CB:
        return _of_confluent(found, settings)
    if not isinstance(found, Token):
        raise ConfigError(f"{settings.name}: returned {type(found).__name__}, wanted an ottla.tokens.Token")
    if settings.extensions and not found.extensions:
        return Token(
            value=found.value,
            expires_at=found.expires_at,
            principal=found.principal,
            extensions=dict(settings.extensions),
        )
    return found


def _awaited(waiting: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(waiting, _ANSWER_S)

    loop = _loop
    if loop is not None and loop.is_running():
        return asyncio.run_coroutine_threadsafe(bounded(), loop).result()
    return asyncio.run(bounded())


def _of_confluent(found: Any, settings: TokenSettings) -> Token:
    """Return (token, seconds since the epoch[, principal[, extensions]])."""
    is_good = isinstance(found, tuple) and 2 <= len(found) <= 4
    value, expires_at, principal, extensions = (*found, *("", {})[len(found) - 2 :]) if is_good else ("", 0, "", {})
    if not is_good or not isinstance(principal, str | None) or not isinstance(extensions, Mapping | None):
        raise ConfigError(
            f"{settings.name}: returned {type(found).__name__}, wanted (token, expiry in seconds since the epoch[, "
            "principal[, extensions]])"
        )
    return Token(
        value=value,
        expires_at=expires_at,
        principal=principal or "",
        extensions=dict(extensions or settings.extensions),
    )
