"""aiokafka's login with a token, with an end where the broker refuses it.

aiokafka sends the token and takes any answer for a yes: the JSON object that says no as well (RFC 7628). The connection
is then dropped at its first request, and made again with the same token, for ever. Here that answer is read. A token
that is refused is replaced once; when the next one is refused too, aiokafka raises what the broker says.
"""

from __future__ import annotations

from typing import Any

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator

from ottla.aio.aiokafka_internals import token_provider_of
from ottla.tokens.aiokafka import AiokafkaTokens

_LAST = b"\x01"


class TokenAuthenticator(OAuthAuthenticator):  # type: ignore[misc]  # aiokafka has no types
    """One login. aiokafka calls `step` with each answer, until it returns None."""

    def __init__(self, *, sasl_oauth_token_provider: AiokafkaTokens) -> None:
        super().__init__(sasl_oauth_token_provider=sasl_oauth_token_provider)
        self._tokens = sasl_oauth_token_provider

    async def step(self, payload: bytes | None) -> tuple[bytes, bool] | None:
        if not self._token_sent or payload is None:
            step: tuple[bytes, bool] | None = await super().step(payload)
            return step
        if not payload:
            self._tokens.was_accepted()
            return None
        self._tokens.was_refused()  # raises TokenUnavailable, the first time
        return _LAST, True


def _authenticator(connection: Any) -> Any:
    provider = token_provider_of(connection)
    if isinstance(provider, AiokafkaTokens):
        return TokenAuthenticator(sasl_oauth_token_provider=provider)
    return OAuthAuthenticator(sasl_oauth_token_provider=provider)


AbstractTokenProvider.register(AiokafkaTokens)
AIOKafkaConnection.authenticator_oauth = _authenticator
