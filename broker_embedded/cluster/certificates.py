"""Certificates for tests: a temporary authority, made with trustme, and the certificates that it has signed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from broker_embedded.common.errors import StartupError
from ottla_wire.facts import positional_fact

HOSTS = ("localhost", "127.0.0.1")


@positional_fact
class Certificates:
    """PEM files of one temporary certificate authority. `server` and `client` hold a certificate and its key."""

    ca: Path
    """The authority's certificate, which both sides trust."""
    server: Path
    client: Path
    stranger: Path
    """An authority that has signed no certificate here, for tests of refused ones."""

    @classmethod
    def in_directory(cls, directory: Path) -> Self:
        """Return the paths of the files in this directory, whether they exist or not."""
        return cls(*(directory / f"{name}.pem" for name in ("ca", "server", "client", "stranger")))

    @property
    def exist(self) -> bool:
        """Return whether the files that a broker needs exist. The user may have put them there."""
        return self.ca.exists() and self.server.exists()


def make_certificates(directory: Path, *, hosts: Sequence[str] = HOSTS, client: str = "test-client") -> Certificates:
    """Write an authority's certificate, one that it signed for a broker on `hosts`, and one for a client, as PEM files.

    Raises StartupError with the command that installs trustme if it is missing.
    """
    try:
        trustme: Any = importlib.import_module("trustme")
        formats: Any = importlib.import_module("cryptography.hazmat.primitives.serialization")
    except ImportError:
        raise StartupError("certificates for tests are made with trustme: pip install 'ottla[tls]'") from None
    made = Certificates.in_directory(directory)
    authority = trustme.CA(organization_name="Ottla tests")
    authority.cert_pem.write_to_path(str(made.ca))
    trustme.CA(organization_name="Strangers").cert_pem.write_to_path(str(made.stranger))
    for path, issued in (
        (made.server, authority.issue_cert(*hosts)),
        # With an address: Java refuses a certificate whose list of names is empty.
        (made.client, authority.issue_cert(f"{client}@example.org", common_name=client)),
    ):
        # Java reads keys in PKCS #8 only.
        key = formats.load_pem_private_key(issued.private_key_pem.bytes(), password=None).private_bytes(
            formats.Encoding.PEM, formats.PrivateFormat.PKCS8, formats.NoEncryption()
        )
        path.touch(mode=0o600)
        path.write_bytes(key + b"".join(each.bytes() for each in issued.cert_chain_pems))
    return made


def found_or_made(directory: Path) -> Certificates:
    """Return the certificates of a folder, and create them first if it has none."""
    found = Certificates.in_directory(directory)
    if found.exist:
        return found
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return make_certificates(directory)
    except OSError as error:
        raise StartupError(f"certificates cannot be put into {directory}: {error.strerror or error}") from None
