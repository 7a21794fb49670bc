"""Security of a cluster's client listeners: `Security(protocol="SASL_SSL", users={"alice": "secret"}, ...)`.

It belongs to the listeners of clients alone: brokers speak to each other in plain text, on a listener of their own that
is not advertised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike

from broker_embedded.common.errors import StartupError
from broker_embedded.security.web_tokens import OAuthBearer

PROTOCOLS: Mapping[str, int] = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""Kafka's security protocols, numbered as registrations of brokers number them."""

PLAIN, SCRAM_SHA_256, SCRAM_SHA_512 = MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OAUTHBEARER = "OAUTHBEARER"
KNOWN_MECHANISMS = (*MECHANISMS, OAUTHBEARER)
CLIENT_AUTH = ("none", "requested", "required")

Path = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Security:
    """How clients connect. `protocol` is Kafka's `security.protocol`; the other fields depend on it.

    With SASL: `users`, and the mechanisms they may use. With TLS: the broker's certificate chain and private key as PEM
    files (one file may hold both), and whether clients must show a certificate that `client_ca` vouches for.
    """

    protocol: str
    _: KW_ONLY
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by user name. Each holds for every mechanism that is enabled."""
    mechanisms: Sequence[str] = MECHANISMS
    """Kafka's sasl.enabled.mechanisms: by default all mechanisms with passwords."""
    oauth: OAuthBearer | None = None
    """Which tokens OAUTHBEARER accepts: unsecured ones if nothing is said, as in Kafka."""
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    """By mechanism, in place of connections.max.reauth.ms: listener.name.NAME.MECHANISM.connections.max.reauth.ms."""
    certificate: Path | None = None
    """Kafka's ssl.keystore.location, with ssl.keystore.type=PEM."""
    key: Path | None = None
    """If it is not in the file of the certificate."""
    key_password: str | None = field(default=None, repr=False)
    """Kafka's ssl.key.password."""
    client_ca: Path | None = None
    """Kafka's ssl.truststore.location, with ssl.truststore.type=PEM."""
    client_auth: str = "none"
    """Kafka's ssl.client.auth: none, requested or required."""

    def __post_init__(self) -> None:
        _check_one_of("security protocol", self.protocol, PROTOCOLS)
        _check_one_of("client_auth", self.client_auth, CLIENT_AUTH)
        for mechanism in self.mechanisms:
            _check_one_of("SASL mechanism", mechanism, KNOWN_MECHANISMS)
        for mechanism in self.max_reauth_ms:
            _check_one_of("max_reauth_ms", mechanism, self.mechanisms)
        if self.oauth is not None and (OAUTHBEARER not in self.mechanisms or not self.uses_sasl):
            raise StartupError("oauth: found without OAUTHBEARER among the SASL mechanisms")
        if self.uses_sasl and not self.mechanisms:
            raise StartupError(f"{self.protocol} needs a SASL mechanism: {', '.join(KNOWN_MECHANISMS)}")
        if self.users and not self.uses_sasl:
            raise StartupError(f"{self.protocol} asks for no password: users need SASL_PLAINTEXT or SASL_SSL")
        if any(not name or not password for name, password in self.users.items()):
            raise StartupError("users: a name or a password is empty")
        if self.uses_tls and self.certificate is None:
            raise StartupError(f"{self.protocol} needs the broker's certificate and its key, as PEM files")
        if self.certificate is not None and not self.uses_tls:
            raise StartupError(f"{self.protocol} shows no certificate: that needs SSL or SASL_SSL")
        if self.client_auth != "none" and self.client_ca is None:
            raise StartupError(f"client_auth={self.client_auth} needs client_ca: who vouches for clients")

    @property
    def uses_sasl(self) -> bool:
        """Return whether clients authenticate by SASL."""
        return self.protocol.startswith("SASL_")

    @property
    def uses_tls(self) -> bool:
        """Return whether connections are encrypted."""
        return self.protocol.endswith("SSL")


def _check_one_of(what: str, found: str, wanted: Sequence[str] | Mapping[str, int]) -> None:
    if found not in wanted:
        raise StartupError(f"{what}: found {found!r}, wanted {', '.join(wanted)}")
