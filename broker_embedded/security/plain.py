"""SASL PLAIN (RFC 4616): the client sends its name and its password, once."""

from __future__ import annotations

from collections.abc import Mapping

from broker_embedded.security.exchange import AuthenticationFailed, other_authorization_id


class PlainExchange:
    """`passwords`: those of all users, by name."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise AuthenticationFailed("the token of PLAIN is not UTF-8") from None
        if len(parts) != 3:
            raise AuthenticationFailed(f"PLAIN: found {len(parts)} parts in the token, wanted 3")
        authorization_id, username, password = parts
        if not username or not password:
            raise _refused(f"Authentication failed: {'password' if username else 'username'} not specified")
        if not self._is_password(username, password):
            raise _refused("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != username:
            raise other_authorization_id()
        self.user = username
        return b""

    def _is_password(self, username: str, password: str) -> bool:
        import hmac  # here: a broker without SASL loads no hash

        expected = self._passwords.get(username)
        return hmac.compare_digest((expected or "").encode(), password.encode()) and expected is not None


def _refused(message: str) -> AuthenticationFailed:
    return AuthenticationFailed(message, message=message)
