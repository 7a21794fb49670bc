"""Says who can do what where brokers listen beyond loopback."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_embedded.security.settings import Security

OAUTHBEARER: Final = "OAUTHBEARER"


def what_is_open(listen_host: str, ports: Sequence[int], security: Security | None) -> str | None:
    """Return what other machines can do that reach the ports, in one line; None on loopback."""
    if listen_host == "localhost" or listen_host.startswith("127."):
        return None
    shown = ", ".join(map(str, ports))
    place = (
        f"listening on {listen_host}, {'port' if len(ports) == 1 else 'ports'} {shown}: every machine that reaches it"
    )
    protocol = "PLAINTEXT" if security is None else security.protocol
    has_login = "SASL" in protocol or (security is not None and security.client_auth == "required")
    if security is not None and "SASL" in protocol and OAUTHBEARER in security.mechanisms:
        # Unsigned tokens do not authenticate: every client can make one.
        has_login = security.oauth is not None and security.oauth.jwks is not None
    is_encrypted = protocol.endswith("SSL")
    who = "needs a login to read, write and delete" if has_login else "can read, write and delete everything, no login"
    secrecy = "encrypted" if is_encrypted else "data and passwords unencrypted" if has_login else "data unencrypted"
    return f"{place} {who}; {secrecy} ({protocol}). For development only"
