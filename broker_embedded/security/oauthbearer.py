"""SASL OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, once.

    n,[a=NAME],^Aauth=Bearer TOKEN^A[NAME=VALUE^A]...^A     ^A is the byte 1

A token that is not accepted is answered with a JSON object, `{"status":"invalid_token"}`; the client sends ^A, and is
then refused, as by Kafka's OAuthBearerSaslServer. The connection's session ends with the token, or earlier where
`connections.max.reauth.ms` says so (KIP-368).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker_embedded.security.exchange import AuthenticationFailed
from broker_embedded.security.web_tokens import AcceptedToken, TokenNotAccepted

_FIRST: Final = re.compile(
    r"n,(?:a=(?P<name>(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01\Z"
)
_BEARER: Final = re.compile(r"(\w+)[ ]+([A-Za-z0-9\-._~+/]+=*)\Z", re.ASCII)
_LAST: Final = b"\x01"


class OAuthBearerExchange:
    """`accept(token)` returns the principal and the expiry, or raises TokenNotAccepted."""

    def __init__(self, accept: Callable[[str], AcceptedToken]) -> None:
        self._accept = accept
        self._refusal: tuple[str, str] | None = None
        self.user: str | None = None
        self.expires_ms: int | None = None

    def evaluate(self, token: bytes) -> bytes:
        if self._refusal is not None:
            reason, answer = self._refusal
            raise AuthenticationFailed(reason, message=answer)
        name, bearer = _first_message(token)
        try:
            accepted = self._accept(bearer)
        except TokenNotAccepted as refused:
            self._refusal = f"OAUTHBEARER: {refused}", refused.answer
            return refused.answer.encode()
        if name and name != accepted.principal:
            message = (
                f"Authentication failed: Client requested an authorization id ({name}) that is different from the "
                f"token's principal name ({accepted.principal})"
            )
            raise AuthenticationFailed(message, message=message)
        self.expires_ms = accepted.expires_ms
        self.user = accepted.principal
        return b""


def _first_message(message: bytes) -> tuple[str, str]:
    """Return the authorization id and the token."""
    try:
        text = message.decode("utf-8")
    except UnicodeDecodeError:
        raise _invalid("not UTF-8") from None
    found = _FIRST.match(text)
    if found is None:
        raise _invalid("other fields than n,[a=NAME],^Aauth=Bearer TOKEN^A^A")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01")[:-1])
    auth = pairs.get("auth")
    if auth is None:
        raise _invalid("no auth=")
    bearer = _BEARER.match(auth)
    if bearer is None or bearer[1].lower() != "bearer":
        raise _invalid("another scheme than Bearer, or a token with other characters than RFC 6750 has")
    name = (found["name"] or "").replace("=2C", ",").replace("=3D", "=")
    return name, bearer[2]


def _invalid(what: str) -> AuthenticationFailed:
    message = f"Invalid OAUTHBEARER client first message: {what}"
    return AuthenticationFailed(message, message=message)
