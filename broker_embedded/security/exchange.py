"""One exchange of a SASL mechanism, seen by the server, and how it fails."""

from __future__ import annotations

from typing import Protocol


class AuthenticationFailed(Exception):
    """Authentication failed: wrong credentials, or a violation of the mechanism. `message` is sent to the client, which
    is then disconnected.

    Without a `message` the client gets the same text in all cases, so that it cannot find out user names.
    `reason` is for the broker's log.
    """

    def __init__(self, reason: str, *, message: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.message = message


def other_authorization_id() -> AuthenticationFailed:
    """Return the error for a client that wants to act as another user, which no mechanism here allows."""
    message = "Authentication failed: Client requested an authorization id that is different from username"
    return AuthenticationFailed(message, message=message)


class Exchange(Protocol):
    """The server's half of one authentication."""

    @property
    def user(self) -> str | None:
        """Return the authenticated user; None before."""
        ...

    @property
    def expires_ms(self) -> int | None:
        """Return when the credentials expire, in milliseconds since the epoch; None for a password."""
        ...

    def evaluate(self, token: bytes) -> bytes:
        """Process the client's message and return the response. Raises AuthenticationFailed."""
        ...
