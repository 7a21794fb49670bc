"""Who the client is, on one connection: SASL's handshake, and when it is done again (KIP-368).

    authenticate(call, settings, address)    one handshake; returns for how long the broker lets the client in
    SessionTimes                             when to authenticate again, before that time ends. Pure.
    SaslSession                              both, of one connection

A session is renewed between requests, on the same connection. A broker closes the connection of a client that sends
anything else after its end; so what was idle past the end authenticates before its next request, which brokers allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ottla.errors import BrokerUnavailable, ConfigError
from ottla.tokens.shared import current_clock
from ottla.tokens.token import Token
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.errors import AuthenticationRefused, BrokerRefused
from ottla.wire_client.net.sasl import start_exchange
from ottla_wire.protocol import ApiKey, ErrorCode

Call = Callable[[ApiKey, dict[str, Any]], Any]
"""Sends one request and returns its response."""

RENEW_IDLE_AT: Final = 0.85
"""The part of a session after which it is renewed where no request is in flight. The Java client: 0.85 to 0.95."""

RENEW_BUSY_AT: Final = 0.95
"""The part after which the responses of requests in flight are waited for, to renew it."""

LEAST_MS: Final = 1_001
"""Brokers take one authentication in a second; another is an error to them."""


class SessionTimes:
    """One session, from an authentication to the next. Times are of a monotonic clock."""

    __slots__ = ("_renew_busy_ms", "_renew_idle_ms")

    def __init__(self, *, lifetime_ms: int, now_ms: int) -> None:
        self._renew_idle_ms = now_ms + max(int(lifetime_ms * RENEW_IDLE_AT), LEAST_MS)
        self._renew_busy_ms = now_ms + max(int(lifetime_ms * RENEW_BUSY_AT), LEAST_MS)

    def should_renew(self, *, now_ms: int, is_busy: bool) -> bool:
        """Return whether to authenticate before the next request. `is_busy`: requests are in flight."""
        return now_ms >= (self._renew_busy_ms if is_busy else self._renew_idle_ms)


def authenticate(call: Call, settings: WireSettings, address: str) -> int:
    """Authenticate, and return the session's lifetime in milliseconds; 0 for a session that does not end.

    Raises AuthenticationRefused where broker and client do not accept each other, ConfigError where the broker has no
    SASL, TokenUnavailable where there is no token.
    """
    mechanism = settings.sasl_mechanism
    token = None if settings.tokens is None else settings.tokens.get()
    shaken = call(ApiKey.SASL_HANDSHAKE, {"mechanism": mechanism})
    if shaken.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise ConfigError(
            f"security.protocol: found {settings.security_protocol}, but {address} does not authenticate by "
            f"SASL, wanted {settings.security_protocol.removeprefix('SASL_')}"
        )
    if shaken.error_code != ErrorCode.NONE:
        raise AuthenticationRefused(
            f"{address} does not offer sasl.mechanism {mechanism}; it offers {', '.join(shaken.mechanisms)}"
        )
    exchange = start_exchange(mechanism, username=settings.sasl_username, password=settings.sasl_password, token=token)
    message = next(exchange)
    while True:
        answer = call(ApiKey.SASL_AUTHENTICATE, {"auth_bytes": message})
        if answer.error_code != ErrorCode.NONE:
            raise _refused(settings, address, token, answer.error_message)
        try:
            message = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            # Version 0 has none, and versions before KIP-368 send none.
            return max(int(getattr(answer, "session_lifetime_ms", 0) or 0), 0)
        except BrokerRefused as error:
            raise AuthenticationRefused(f"{address}: {error}") from None


class SaslSession:
    """The session of one connection. Between requests its owner asks `should_renew`."""

    __slots__ = ("_address", "_settings", "_times")

    def __init__(self, settings: WireSettings, address: str, times: SessionTimes) -> None:
        self._settings = settings
        self._address = address
        self._times = times

    @classmethod
    def begin(cls, call: Call, settings: WireSettings, address: str) -> SaslSession | None:
        """Authenticate for the first time, as `authenticate` does; None for a session that does not end."""
        lifetime_ms = authenticate(call, settings, address)
        if not lifetime_ms:
            return None
        return cls(settings, address, SessionTimes(lifetime_ms=lifetime_ms, now_ms=current_clock().monotonic_ms()))

    def should_renew(self, *, is_busy: bool) -> bool:
        """Return whether to authenticate before the next request. `is_busy`: requests are in flight."""
        return self._times.should_renew(now_ms=current_clock().monotonic_ms(), is_busy=is_busy)

    def renew(self, call: Call) -> SaslSession | None:
        """Authenticate again. A refusal is a connection that was lost: the login of the next one decides."""
        try:
            return self.begin(call, self._settings, self._address)
        except AuthenticationRefused as error:
            raise BrokerUnavailable(f"{self._address} ended the session: {error}") from error


def _refused(settings: WireSettings, address: str, token: Token | None, message: object) -> AuthenticationRefused:
    said = str(message or "")[:300]
    if token is None or settings.tokens is None:
        return AuthenticationRefused(f"{address} refused {settings.sasl_username!r}: {said}")
    settings.tokens.was_refused(token)
    owner = f" of {token.principal!r}" if token.principal else ""
    return AuthenticationRefused(
        f"{address} refused the token{owner} ({settings.tokens.name}): {said}; brokers keep the reason to their log: "
        "the issuer, the audience, the scope, the signature or the clock"
    )
