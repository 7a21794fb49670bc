"""The authentication of one connection, from its first request until it may ask for everything.

    INITIAL_REQUEST    ApiVersions -> HANDSHAKE_REQUEST    SaslHandshake -> AUTHENTICATE
    HANDSHAKE_REQUEST  SaslHandshake -> AUTHENTICATE
    AUTHENTICATE       SaslAuthenticate, as often as the mechanism asks -> COMPLETE
    any of them        -> FAILED, after which the connection is closed

The states and what they allow are those of Kafka's SaslServerAuthenticator. After version 0 of SaslHandshake the client
sends its tokens bare, each with its size, and is answered the same way: a wrong password then shows as nothing but a
closed connection. Sessions have no end (KIP-368): nobody is asked to authenticate again.
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
"""Longest frame of somebody who is not known yet: Kafka's default of sasl.server.max.receive.size."""

NO_SESSION_LIFETIME_MS = 0


def out_of_turn() -> BrokerError:
    """The answer to SaslAuthenticate where nobody waits for it."""
    return BrokerError(
        ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate request received after successful authentication"
    )


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
"""What may be asked before it is known who asks. Whoever is known may ask for everything."""


class SaslAuthenticator:
    """The state machine. Who calls it closes the connection when the state is FAILED."""

    def __init__(self, *, mechanisms: Sequence[str], new_exchange: Callable[[str], Exchange]) -> None:
        """`mechanisms`: those that are enabled. `new_exchange(mechanism)` begins one of them."""
        self.mechanisms = list(mechanisms)
        self.state = SaslState.INITIAL_REQUEST
        self.principal = principal.ANONYMOUS
        self.takes_bare_tokens = False
        self._new_exchange = new_exchange
        self._exchange: Exchange | None = None
        self._mechanism = ""

    @property
    def is_complete(self) -> bool:
        return self.state is SaslState.COMPLETE

    @property
    def has_begun(self) -> bool:
        """A mechanism is chosen, and the client is about to show who it is."""
        return self.state is SaslState.AUTHENTICATE

    @property
    def has_failed(self) -> bool:
        return self.state is SaslState.FAILED

    def allows(self, api_key: int) -> bool:
        """Whether a request may be handled now."""
        return self.is_complete or api_key in _ALLOWED[self.state]

    def fail(self) -> None:
        """The client did something that ends it."""
        self.state = SaslState.FAILED

    def versions_told(self) -> None:
        """ApiVersions was answered: it is asked once."""
        if self.state is SaslState.INITIAL_REQUEST:
            self.state = SaslState.HANDSHAKE_REQUEST

    def shake_hands(self, mechanism: str, *, version: int) -> None:
        """The client has chosen. UNSUPPORTED_SASL_MECHANISM if that is not enabled."""
        if self.state not in (SaslState.INITIAL_REQUEST, SaslState.HANDSHAKE_REQUEST):
            raise BrokerError(ErrorCode.ILLEGAL_SASL_STATE)
        if mechanism not in self.mechanisms:
            self.fail()
            raise BrokerError(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self._mechanism = mechanism
        self._exchange = self._new_exchange(mechanism)
        self.takes_bare_tokens = version == 0
        self.state = SaslState.AUTHENTICATE

    def authenticate(self, token: bytes) -> bytes:
        """One step of the mechanism; returns its answer. SASL_AUTHENTICATION_FAILED if it was the last one."""
        if self._exchange is None or self.state is not SaslState.AUTHENTICATE:
            raise out_of_turn()
        try:
            answer = self._exchange.evaluate(token)
        except AuthenticationFailed as failure:
            self.fail()
            log.info("somebody was not let in by %s: %s", self._mechanism, failure.reason)
            told = failure.message or (
                "Authentication failed during authentication due to invalid credentials with SASL mechanism "
                + self._mechanism
            )
            raise BrokerError(ErrorCode.SASL_AUTHENTICATION_FAILED, told) from None
        if self._exchange.user is not None:
            self.principal = principal.user(self._exchange.user)
            self.state = SaslState.COMPLETE
            self.takes_bare_tokens = False
            self._exchange = None
        return answer
