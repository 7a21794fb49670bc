"""The authentication of one connection, from its first request until it may ask for everything.

    INITIAL_REQUEST    ApiVersions -> HANDSHAKE_REQUEST    SaslHandshake -> AUTHENTICATE
    HANDSHAKE_REQUEST  SaslHandshake -> AUTHENTICATE
    AUTHENTICATE       SaslAuthenticate, as often as the mechanism asks -> COMPLETE
    COMPLETE           everything; where sessions end, SaslHandshake -> AUTHENTICATE
    any of them        -> FAILED, after which the connection is closed

The states and what they allow are those of Kafka's SaslServerAuthenticator. After version 0 of SaslHandshake the client
sends its tokens bare, each with its size, and is answered the same way: a wrong password then shows as nothing but a
closed connection.

Sessions end where `connections.max.reauth.ms` says so, and with the token of OAUTHBEARER (KIP-368). The client gets
for how long it is let in, and may show again who it is, on the same connection, by the same mechanism and as the same
user: also after that time, when nothing else is allowed any more. Kafka lets it do so once a second at most, and says
nothing to one that comes with another mechanism.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum

from broker_embedded.common.errors import BrokerError
from broker_embedded.security import principal
from broker_embedded.security.exchange import AuthenticationFailed, Exchange
from ottla_wire.protocol import ApiKey, ErrorCode

log = logging.getLogger(__name__)

MAX_FRAME_BYTES = 524_288
"""Longest frame of an unauthenticated client: Kafka's default of sasl.server.max.receive.size."""

NO_SESSION_LIFETIME_MS = 0


def out_of_turn() -> BrokerError:
    """Return the response to an unexpected SaslAuthenticate."""
    return BrokerError(
        ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
    )


def _never() -> int:
    """Return the time, for sessions that do not end."""
    return 0


def _for_ever(mechanism: str) -> int:
    return NO_SESSION_LIFETIME_MS


class SaslState(Enum):
    """How far an authentication is."""

    INITIAL_REQUEST = "initial request"
    HANDSHAKE_REQUEST = "handshake request"
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


_ALLOWED: dict[SaslState, frozenset[int]] = {
    SaslState.INITIAL_REQUEST: frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE}),
    SaslState.HANDSHAKE_REQUEST: frozenset({ApiKey.SASL_HANDSHAKE}),
    SaslState.AUTHENTICATE: frozenset({ApiKey.SASL_AUTHENTICATE}),
    SaslState.FAILED: frozenset(),
}
"""APIs allowed before authentication. Afterwards all are allowed, until the session expires."""


class SaslAuthenticator:
    """The state machine. The caller closes the connection when the state is FAILED."""

    def __init__(
        self,
        *,
        mechanisms: Sequence[str],
        new_exchange: Callable[[str], Exchange],
        session_ms: Callable[[str], int] = _for_ever,
        now_ms: Callable[[], int] = _never,
        wall_ms: Callable[[], int] = _never,
    ) -> None:
        """`mechanisms`: the enabled ones. `new_exchange(mechanism)` starts an exchange. `session_ms(mechanism)`: time
        until a client has to re-authenticate; 0 for never. `wall_ms`: milliseconds since the epoch, by which tokens
        expire.
        """
        self.mechanisms = list(mechanisms)
        self.session_ms = NO_SESSION_LIFETIME_MS
        """Length of the client's session once authenticated; 0 without a limit."""
        self._session_ms_of = session_ms
        self._wall_ms = wall_ms
        self.completions = 0
        """Number of completed authentications."""
        self._now_ms = now_ms
        self._ends_ms = 0
        self._ends = False
        self.state = SaslState.INITIAL_REQUEST
        self.principal = principal.ANONYMOUS
        self.takes_bare_tokens = False
        self._new_exchange = new_exchange
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._wanted_mechanism = ""

    @property
    def is_complete(self) -> bool:
        return self.state is SaslState.COMPLETE

    @property
    def has_begun(self) -> bool:
        """Return whether a mechanism is chosen and the exchange is under way."""
        return self.state is SaslState.AUTHENTICATE

    @property
    def has_failed(self) -> bool:
        return self.state is SaslState.FAILED

    @property
    def has_expired(self) -> bool:
        """Return whether the client's session has expired."""
        return self.is_complete and self._ends and self._now_ms() >= self._ends_ms

    @property
    def session_ends(self) -> bool:
        """Return whether the client has to re-authenticate at some time."""
        return self._ends

    def allows(self, api_key: int) -> bool:
        """Return whether a request may be handled now."""
        if not self.is_complete:
            return api_key in _ALLOWED[self.state]
        return api_key == ApiKey.SASL_HANDSHAKE or not self.has_expired

    def fail(self) -> None:
        """End the authentication: the client made an error."""
        self.state = SaslState.FAILED

    def on_api_versions(self) -> None:
        """Record that ApiVersions was answered: it may be asked once."""
        if self.state is SaslState.INITIAL_REQUEST:
            self.state = SaslState.HANDSHAKE_REQUEST

    def shake_hands(self, mechanism: str, *, version: int) -> None:
        """Begin the mechanism that the client chose. UNSUPPORTED_SASL_MECHANISM if that is not enabled."""
        may_begin_again = self.is_complete and self._ends
        if self.state not in (SaslState.INITIAL_REQUEST, SaslState.HANDSHAKE_REQUEST) and not may_begin_again:
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in self.mechanisms:
            self.fail()
            raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._exchange = self._new_exchange(mechanism) if mechanism == self._mechanism or not self.completions else None
        self._mechanism = self._mechanism or mechanism
        self._wanted_mechanism = mechanism
        self.takes_bare_tokens = version == 0
        self.state = SaslState.AUTHENTICATE

    def authenticate(self, token: bytes) -> bytes:
        """Process one step of the mechanism and return its response. Raises SASL_AUTHENTICATION_FAILED."""
        if self.state is not SaslState.AUTHENTICATE:
            raise out_of_turn()
        try:
            if self._exchange is None:
                raise _other_mechanism(self._wanted_mechanism, before=self._mechanism)
            answer = self._exchange.evaluate(token)
            if self._exchange.user is not None:
                self._complete(principal.user(self._exchange.user), expires_ms=self._exchange.expires_ms)
        except AuthenticationFailed as failure:
            self.fail()
            log.info("somebody was not let in by %s: %s", self._wanted_mechanism, failure.reason)
            doing = "re-authentication" if self.completions else "authentication"
            told = failure.message or (
                f"Authentication failed during {doing} due to invalid credentials with SASL mechanism "
                + self._wanted_mechanism
            )
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, told) from None
        return answer

    def _complete(self, who: str, *, expires_ms: int | None) -> None:
        if self.completions and who != self.principal:
            before, now = _format_principal(self.principal), _format_principal(who)
            message = f"Cannot change principals during re-authentication from {before}: {now}"
            raise AuthenticationFailed(message, message=message)
        self.principal = who
        self.state = SaslState.COMPLETE
        self.completions += 1
        self.takes_bare_tokens = False
        most_ms = max(self._session_ms_of(self._mechanism), NO_SESSION_LIFETIME_MS)
        left_ms = None if expires_ms is None else max(expires_ms - self._wall_ms(), 0)
        self.session_ms = most_ms if left_ms is None else min(left_ms, most_ms or left_ms)
        self._ends = most_ms > 0 or left_ms is not None
        self._ends_ms = self._now_ms() + self.session_ms
        self._exchange = None


def _other_mechanism(wanted: str, *, before: str) -> AuthenticationFailed:
    message = (
        f"SASL mechanism '{wanted}' requested by client is not supported for re-authentication of mechanism '{before}'"
    )
    return AuthenticationFailed(message, message=message)


def _format_principal(principal_name: str) -> str:
    return principal_name.replace(":", ".", 1)
