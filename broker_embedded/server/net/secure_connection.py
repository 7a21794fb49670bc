"""A connection of a listener that encrypts, or asks who the client is, or both.

Until the client is known, each frame is held against the authenticator: what it does not allow ends the connection. A
client that is known, or that nobody asks, is served as on any other connection; where sessions end (KIP-368) the
authenticator looks at every frame. Encrypted bytes leave through asyncio's transport: nothing is written to the socket
past it.
"""

from __future__ import annotations

import logging
import socket

from broker_embedded.common.errors import BrokerError
from broker_embedded.common.promises import Promise
from broker_embedded.security.authenticator import MAX_FRAME_BYTES, SaslAuthenticator
from broker_embedded.security.principal import ANONYMOUS, certificate_holder
from broker_embedded.server.net.connection import ClientConnection, Host
from broker_embedded.server.net.response_writer import Parts
from ottla_wire.protocol import ErrorCode

log = logging.getLogger(__name__)


class SecureConnection(ClientConnection):
    """The protocol object of one accepted connection, once its TLS handshake is done."""

    __slots__ = ("_authenticator", "_is_known", "_is_leaving")

    def __init__(self, server: Host, authenticator: SaslAuthenticator | None) -> None:
        super().__init__(server)
        self._authenticator = authenticator
        self._is_known = authenticator is None
        self._is_leaving = False

    @property
    def authenticator(self) -> SaslAuthenticator | None:
        return self._authenticator

    @property
    def principal(self) -> str:
        """Return the principal: the user, else the certificate's holder, else anonymous."""
        if self._authenticator is not None:
            return self._authenticator.principal
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert()
        return certificate_holder(certificate["subject"]) if certificate else ANONYMOUS

    def _direct_descriptor(self, sock: socket.socket) -> int:
        assert self._transport is not None
        is_encrypted = self._transport.get_extra_info("ssl_object") is not None
        return -1 if is_encrypted else super()._direct_descriptor(sock)

    # --- until the client is known

    def _handle(self, frame: memoryview) -> None:
        if self._is_known:
            super()._handle(frame)
            return
        authenticator = self._authenticator
        assert authenticator is not None
        if authenticator.takes_bare_tokens:
            self._take_token(authenticator, bytes(frame))
        elif authenticator.allows(int.from_bytes(frame[:2], "big", signed=True)):
            super()._handle(frame)
        else:
            self._turn_away(authenticator, frame)
        self._after_a_step(authenticator)

    def _take_token(self, authenticator: SaslAuthenticator, token: bytes) -> None:
        try:
            answer = authenticator.authenticate(token)
        except BrokerError:
            return  # there is no way to say so
        self.send([len(answer).to_bytes(4, "big"), answer])

    def _turn_away(self, authenticator: SaslAuthenticator, frame: memoryview) -> None:
        """Refuse a request. A client that has started to authenticate gets the reason, as from Kafka."""
        error = BrokerError(ErrorCode.ILLEGAL_SASL_STATE, "Unexpected Kafka request during SASL authentication.")
        answer = self._server.dispatcher.refuse(frame, error) if authenticator.has_begun else None
        has_expired = authenticator.has_expired
        authenticator.fail()
        if answer is not None:
            self.send(answer)
        if has_expired:
            reason = "its session is over, and it does not authenticate again"
        else:
            reason = "it asks before it has authenticated"
        self.log_limited(logging.INFO, "closed the connection from %s: %s", self.client_host, reason)

    def _answered(self, answer: Promise[Parts | None]) -> None:
        super()._answered(answer)
        if not self._is_known and self._authenticator is not None:
            self._after_a_step(self._authenticator)

    def _after_a_step(self, authenticator: SaslAuthenticator) -> None:
        if authenticator.is_complete:
            self._is_known = not authenticator.session_ends
        elif authenticator.has_failed and self._waiting_for is None:
            self._refuse_and_close([])

    def send(self, parts: Parts) -> None:
        """Send a response; a refused client gets it delayed."""
        if self._authenticator is not None and self._authenticator.has_failed:
            self._refuse_and_close(parts)
        else:
            super().send(parts)

    def mute(self, ms: int) -> None:
        if not self._is_leaving:  # else it is held longer than any quota would, and then closed
            super().mute(ms)

    def _refuse_and_close(self, last_words: Parts) -> None:
        """Send the refusal and close after `connection.failed.authentication.delay.ms`, as Kafka does: this slows
        password guessing. Until then nothing is read.
        """
        if self._is_leaving:
            return
        self._is_leaving = True
        if self._muted is not None:
            self._muted.cancel()

        def say_and_close() -> None:
            self._muted = None
            if last_words:
                super(SecureConnection, self).send(last_words)
            self.close()

        delay_s = self._server.failed_authentication_delay_ms / 1000
        self._muted = self._server.call_later_for_client(delay_s, say_and_close)

    def _start_frame(self, received: memoryview, total: int) -> None:
        is_let_in = self._is_known or (self._authenticator is not None and self._authenticator.is_complete)
        if not is_let_in and total - 4 > MAX_FRAME_BYTES:
            log.warning(
                "closed the connection from %s: a frame announces %d bytes, wanted at most %d before authentication",
                self.client_host,
                total - 4,
                MAX_FRAME_BYTES,
            )
            self.abort()
            return
        super()._start_frame(received, total)

    def _refuses_frame(self, length: int) -> bool:
        """Return whether a frame is refused before the login. A token without a header may be short."""
        is_token = self._authenticator is not None and self._authenticator.takes_bare_tokens and 0 <= length < 8
        return not is_token and super()._refuses_frame(length)
