"""Certificates of a listener, which may be replaced while it runs."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificate and key of a listener. With `client_ca` clients need a certificate that it signed."""

    certificate: str | Path
    key: str | Path | None = None
    client_ca: str | Path | None = None

    def context(self) -> ssl.SSLContext:
        """Return a server's context, made from the files as they are now. Raises `ConfigError`."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"--tls-certificate {self.certificate}: cannot be loaded: {error}") from error
        return context


class ReplaceableContext(ssl.SSLContext):
    """A context that begins each connection with `current`.

    A server has one context for all its time, and OpenSSL only adds authorities to a context: one that was taken out of
    the file would stay trusted. A new context also forgets the tickets with which clients of the old one resume.
    """

    current: ssl.SSLContext

    def __new__(cls, current: ssl.SSLContext) -> ReplaceableContext:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made.current = current
        return made

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begin a connection."""
        return self.current.wrap_bio(*args, **options)
