"""A Kafka that encrypts and asks for passwords, to test a service's own security settings against.

    with secure_kafka("SASL_SSL", mechanism="SCRAM-SHA-512") as kafka:
        app = App(group="billing", bootstrap_servers=kafka.bootstrap_servers, settings=kafka.settings)

The certificates are of a throw-away authority, made for the occasion with trustme. Nothing of the system is touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from broker_embedded.cluster.certificates import HOSTS
from broker_embedded.cluster.certificates import Certificates as Certificates
from broker_embedded.cluster.certificates import make_certificates as certificates_of_the_broker
from broker_embedded.common.errors import StartupError
from ottla.errors import ConfigError
from ottla.testing.kafka import EMBEDDED, Kafka, embedded_cluster

if TYPE_CHECKING:
    from broker_embedded.cluster import EmbeddedCluster, Security
    from broker_embedded.cluster.time import VirtualClock
    from ottla.testing.oidc import OidcEndpoint

Protocol: TypeAlias = Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
Tokens: TypeAlias = Literal["signed", "unsecured"]
ClientAuth: TypeAlias = Literal["none", "requested", "required"]

AUDIENCE: Final = "kafka"
"""The audience of the endpoint's tokens."""

USERS: Final = MappingProxyType({"alice": "alice-secret"})


def make_certificates(directory: Path, *, hosts: Sequence[str] = HOSTS, client: str = "test-client") -> Certificates:
    """Write the certificates of an authority, of a broker on `hosts`, and of a client, as PEM files. Raises
    `ConfigError` naming what is missing."""
    try:
        return certificates_of_the_broker(directory, hosts=hosts, client=client)
    except StartupError as error:
        raise ConfigError(str(error)) from None


class SecureKafka(Kafka):
    """A running Kafka that is one of ours, and asks who you are.

    `settings` lets the first user in; `settings_of` makes those of another, or by another mechanism. `certificates` is
    None where nothing is encrypted, `endpoint` where no tokens are issued.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        security: Security,
        certificates: Certificates | None,
        endpoint: OidcEndpoint | None = None,
    ) -> None:
        super().__init__(cluster.bootstrap_servers, kind=EMBEDDED, cluster=cluster)
        self.security = security
        self.certificates = certificates
        self.endpoint = endpoint
        self.settings = self.settings_of(*next(iter(security.users.items()), ("", "")))

    def _tokens_of(self, username: str) -> dict[str, str]:
        """Return the settings of the user's tokens: of the endpoint, or unsecured ones, which any client can make."""
        if self.endpoint is not None:
            ca = {} if self.certificates is None else {"https.ca.location": str(self.certificates.ca)}
            return self.endpoint.settings(username) | ca
        return {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={username}",
        }

    def settings_of(self, username: str, password: str, *, mechanism: Mechanism | None = None) -> dict[str, str]:
        """Return what a client of this user needs, in the names that confluent-kafka, Ottla and its wire client
        share."""
        security = self.security
        settings = {"security.protocol": security.protocol}
        if security.uses_sasl:
            chosen = mechanism or security.mechanisms[0]
            settings |= {"sasl.mechanism": chosen}
            if chosen == "OAUTHBEARER":
                settings |= self._tokens_of(username)
            else:
                settings |= {"sasl.username": username, "sasl.password": password}
        if self.certificates is not None:
            settings["ssl.ca.location"] = str(self.certificates.ca)
            if security.client_auth != "none":
                settings["ssl.certificate.location"] = str(self.certificates.client)
                settings["ssl.key.location"] = str(self.certificates.client)
        return settings


@contextlib.contextmanager
def secure_kafka(
    protocol: Protocol = "SASL_SSL",
    *,
    mechanism: Mechanism | Sequence[Mechanism] = "SCRAM-SHA-512",
    users: Mapping[str, str] = USERS,
    client_auth: ClientAuth = "none",
    brokers: int = 1,
    config: Mapping[str, object] | None = None,
    tokens: Tokens = "signed",
    max_reauth_ms: Mapping[str, int] | None = None,
    clock: VirtualClock | None = None,
) -> Iterator[SecureKafka]:
    """Start an embedded cluster that asks for what `protocol` says, for as long as the block lasts.

    `mechanism`: the SASL mechanism, or several. `users`: passwords by name. `client_auth`: `required` for clients that
    have to show a certificate (mTLS), `requested` for those that may.

    With OAUTHBEARER, `users` are the clients of a token endpoint (`ottla.testing.oidc`), and their passwords its client
    secrets; `tokens="unsecured"` starts none, and lets anybody in. `max_reauth_ms`: how long a session lasts, by
    mechanism. `clock`: the cluster's, by which sessions and tokens end as well.
    """
    from broker_embedded.cluster import OAuthBearer, Security

    with contextlib.ExitStack() as stack:
        certificates = None
        files: dict[str, Any] = {}
        if protocol.endswith("SSL"):
            directory = stack.enter_context(TemporaryDirectory(prefix="ottla-certificates-"))
            certificates = make_certificates(Path(directory))
            files = {"certificate": certificates.server, "client_ca": certificates.ca, "client_auth": client_auth}
        sasl: dict[str, Any] = {}
        if protocol.startswith("SASL_"):
            sasl = {"users": users, "mechanisms": (mechanism,) if isinstance(mechanism, str) else tuple(mechanism)}
        endpoint = None
        if "OAUTHBEARER" in sasl.get("mechanisms", ()):
            from ottla.testing.oidc import OidcEndpoint, token_clock
            from ottla.tokens.shared import forget_sources

            if clock is not None:
                stack.enter_context(token_clock(clock))
            if tokens == "signed":
                endpoint = stack.enter_context(
                    OidcEndpoint(clients=users, clock=clock, audience=AUDIENCE, certificate=files.get("certificate"))
                )
                stack.callback(forget_sources)  # between the cluster, with its clients, and the endpoint
                sasl["oauth"] = OAuthBearer(
                    endpoint.jwks_url, issuer=endpoint.issuer, audience=AUDIENCE, jwks_ca=files.get("client_ca")
                )
        security = Security(protocol, **files, **sasl, max_reauth_ms=max_reauth_ms or {})
        cluster = stack.enter_context(embedded_cluster(brokers, config or {}, security, clock))
        yield SecureKafka(cluster, security, certificates, endpoint)
