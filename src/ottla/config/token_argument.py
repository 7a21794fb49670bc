"""`token=`, an argument of every client: the settings `sasl.mechanism` and `sasl.oauthbearer.token` in one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.config.catalog import ALIASES
from ottla.config.clients import mapping_of
from ottla.errors import ConfigError
from ottla.showing import shown
from ottla.tokens.names import MECHANISM, TOKEN_NAME

if TYPE_CHECKING:
    from ottla.tokens.token import Token


TokenFunction: TypeAlias = "Callable[[], Token | Awaitable[Token]]"
"""Returns an `ottla.tokens.Token`, or is async and returns one. Called once for all clients that share it."""


def with_token(owner: str, settings: Mapping[str, Any] | None, token: TokenFunction | None) -> Mapping[str, Any] | None:
    """Return the settings that use the function `token`; `settings` unchanged if it is None.

    `owner` is the class or function named in messages. Raises ConfigError if `token` is not callable, and for settings
    that name another mechanism or another function.
    """
    if token is None:
        return settings
    found: object = token
    if not callable(found):
        kind = type(found).__name__  # not what it is: it may be a token
        raise ConfigError(f"{owner}: token: found {kind}, wanted a function that returns an ottla.tokens.Token")
    given = dict(mapping_of("settings", settings))
    for name, value in given.items():
        mechanism = str(value)
        if ALIASES.get(name, name) == "sasl.mechanism" and mechanism.upper() != MECHANISM:
            raise ConfigError(f"{name}: found {shown(mechanism)}, wanted {MECHANISM} or nothing, because of token=")
    for name in (TOKEN_NAME, "oauth_cb"):
        if given.get(name) is not None and given[name] is not token:
            raise ConfigError(f"{owner}: token: found {name} in the settings too, wanted one of them")
    if not any(ALIASES.get(name, name) == "sasl.mechanism" for name in given):
        given["sasl.mechanism"] = MECHANISM
    return {**given, TOKEN_NAME: token}
