"""The name of a client, as Kafka's KafkaPrincipal writes it: `User:alice`."""

from __future__ import annotations

from collections.abc import Sequence

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client without authentication."""

_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}

Subject = Sequence[Sequence[tuple[str, str]]]
"""The subject of a certificate as the standard library gives it: name parts, the largest first."""


def user(name: str) -> str:
    """Return the principal of a user name."""
    return f"User:{name}"


def certificate_holder(subject: Subject) -> str:
    """Return the principal of a certificate: its distinguished name (RFC 2253), as Kafka's default builder makes it."""
    parts = ["+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part) for part in subject]
    return user(",".join(reversed(parts)))


def _escaped(value: str) -> str:
    escaped = "".join(f"\\{letter}" if letter in ',+"\\<>;' else letter for letter in value)
    return f"\\{escaped}" if escaped.startswith(("#", " ")) else escaped
