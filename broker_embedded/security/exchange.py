"""One exchange of a SASL mechanism, seen by the server, and how it fails."""

from __future__ import annotations

from typing import Protocol


class AuthenticationFailed(Exception):
    """The client is not who it says, or does not keep to the mechanism. It is told `message` and let go.

    Without a `message` the client hears a sentence that is the same for all: it shall not learn which users there are.
    `reason` is for the broker's log.
    """

    def __init__(self, reason: str, *, message: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


def other_authorization_id() -> AuthenticationFailed:
    """The client wants to act as somebody else, which no mechanism here allows."""
    message = "Authentication failed: Client requested an authorization id that is different from username"
    return AuthenticationFailed(message, message=message)


class Exchange(Protocol):
    """The server's half of one authentication."""

    @property
    def user(self) -> str | None:
        """Who has proved who they are; None until then."""
        ...

    @property
    def expires_ms(self) -> int | None:
        """When what it was proved by expires, in milliseconds since the epoch; None for a password, which does not."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """Take what the client sent; returns what to answer. AuthenticationFailed ends it."""
        ...
