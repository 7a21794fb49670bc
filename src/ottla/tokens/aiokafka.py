"""How aiokafka is handed tokens: its token provider, from the process's source.

aiokafka asks for one with each connection. It wants an instance of its own abstract class, which `ottla.aio` registers
this one with: nothing else imports aiokafka.
"""

from __future__ import annotations

import asyncio

from ottla.tokens.callables import prefer_loop
from ottla.tokens.errors import TokenUnavailable
from ottla.tokens.shared import Tokens
from ottla.tokens.token import Token


class AiokafkaTokens:
    """The `sasl_oauth_token_provider`. One connection is made at a time, per client and event loop."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._last: Token | None = None
        self._was_refused = False

    async def token(self) -> str:
        """Return the token itself. Raises TokenUnavailable, an OSError, which aiokafka takes for a broker that is
        away."""
        prefer_loop(asyncio.get_running_loop())
        self._last = token = await self.tokens.get_async()
        return token.value

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions of that token (KIP-342)."""
        return {} if self._last is None else dict(self._last.extensions)

    def was_accepted(self) -> None:
        """Record that a broker let the client in with the last token."""
        self._was_refused = False

    def was_refused(self) -> None:
        """Record that a broker refused the last token. Raises TokenUnavailable the first time: the next connection uses
        another."""
        if self._last is not None:
            self.tokens.was_refused(self._last)
        if not self._was_refused:
            self._was_refused = True
            raise TokenUnavailable(f"{self.tokens.name}: a broker refused the token, another one is fetched")

    def __repr__(self) -> str:
        return f"AiokafkaTokens({self.tokens.name})"
