"""Servers of an AsyncAPI document: the addresses that stand in the code, and how clients log in. No secret is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.config.catalog import ALIASES

_SCHEMES: Final = {
    "PLAIN": {"type": "plain"},
    "SCRAM-SHA-256": {"type": "scramSha256"},
    "SCRAM-SHA-512": {"type": "scramSha512"},
    "GSSAPI": {"type": "gssapi"},
    "OAUTHBEARER": {"type": "http", "scheme": "bearer", "description": "SASL OAUTHBEARER"},
}


def servers_of(bootstrap_servers: object, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the servers and the security schemes, each by its name. Both are empty without an address.

    The environment is not read: the document is the same on every machine.
    """
    named = {ALIASES.get(name, name): value for name, value in settings.items()}
    addresses = _addresses(bootstrap_servers or named.get("bootstrap.servers"))
    protocol = str(named.get("security.protocol", "PLAINTEXT")).upper()
    scheme = _scheme(protocol, named)
    name = None if scheme is None else str(scheme["type"])
    servers: dict[str, Any] = {}
    for number, address in enumerate(addresses, 1):
        server: dict[str, Any] = {"host": address, "protocol": "kafka-secure" if protocol.endswith("SSL") else "kafka"}
        if name is not None:
            server["security"] = [{"$ref": f"#/components/securitySchemes/{name}"}]
        servers["kafka" if len(addresses) == 1 else f"kafka-{number}"] = server
    return servers, {} if name is None or not servers else {name: dict(scheme or {})}


def _addresses(given: object) -> list[str]:
    """Return host and port of each address, without a protocol or credentials in front."""
    parts = given.split(",") if isinstance(given, str) else given if isinstance(given, list | tuple) else ()
    plain = (str(part).rpartition("://")[2].rpartition("@")[2].strip() for part in parts)
    return [address for address in plain if address]


def _scheme(protocol: str, named: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if protocol.startswith("SASL"):
        return _SCHEMES.get(str(named.get("sasl.mechanism", "")).upper())
    is_certificate = any(name in named for name in ("ssl.certificate.location", "ssl.keystore.location"))
    return {"type": "X509"} if protocol == "SSL" and is_certificate else None
