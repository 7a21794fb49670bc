"""The caller's own callbacks of the client (`error_cb`, `stats_cb`, ...): called, and unable to end what calls them.

What a callback raises, librdkafka's binding raises out of the poll that ran it: out of a send, or in the thread that
every delivery report depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ottla.telemetry import log_event
from ottla.tokens.confluent import ConfluentTokens

_GUARDED: Final = ("error_cb", "stats_cb", "throttle_cb", "on_commit")


def guarded(config: Mapping[str, Any], **own: Callable[..., None]) -> dict[str, Any]:
    """Return the configuration with callbacks that do not raise. Where `own` has one as well, that is called first."""
    result = dict(config)
    for name in _GUARDED:
        users, ours = config.get(name), own.get(name)
        if users is not None and not callable(users):
            continue  # the client refuses it, with its own words
        if users is not None:
            result[name] = _both(ours, _logged(name, users, raises=False))
        elif ours is not None:
            result[name] = ours
    if callable(config.get("oauth_cb")) and not isinstance(config["oauth_cb"], ConfluentTokens):
        result["oauth_cb"] = _logged("oauth_cb", config["oauth_cb"], raises=True)
    return result


def _both(first: Callable[..., None] | None, then: Callable[..., None]) -> Callable[..., None]:
    if first is None:
        return then

    def call(*arguments: Any) -> None:
        first(*arguments)
        then(*arguments)

    return call


def _logged(name: str, callback: Callable[..., Any], *, raises: bool) -> Callable[..., Any]:
    """Log what the callback raises. `raises`: raise it then, as the client needs the result, and hides the cause."""

    def call(*arguments: Any) -> Any:
        try:
            return callback(*arguments)
        except Exception as error:
            fields = {"callback": name, "error": repr(error), "exc_info": error}
            log_event("client_callback_failed", "error", fields)
            if raises:
                raise
            return None

    return call
