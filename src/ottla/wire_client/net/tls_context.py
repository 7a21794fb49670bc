"""TLS as the settings want it (`security.protocol`, `ssl.*`)."""

from __future__ import annotations

import socket
import ssl

from ottla.errors import BrokerUnavailable, ConfigError
from ottla.wire_client.client_settings import WireSettings
from ottla.wire_client.errors import AuthenticationRefused


def wrapped(raw: socket.socket, settings: WireSettings, *, host: str, address: str) -> ssl.SSLSocket:
    """Return the connection with TLS, shaken hands. Raises what is wrong; an OSError that is not TLS's own is the
    caller's."""
    try:
        return tls_context(settings).wrap_socket(raw, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise AuthenticationRefused(
            f"{address}: its certificate is not trusted: {error.verify_message}"
            " (ssl.ca.location names the trusted authorities, ssl.endpoint.identification.algorithm whether the"
            " name is checked)"
        ) from error
    except ssl.SSLError as error:
        raise BrokerUnavailable(f"{address}: the TLS handshake failed: {error}") from error


def tls_context(settings: WireSettings) -> ssl.SSLContext:
    """Return a context with the trusted authorities and the client's certificate of the settings. ConfigError names
    files that cannot be read."""
    try:
        context = ssl.create_default_context(cafile=settings.ssl_ca_location, cadata=settings.ssl_ca_pem)
        context.check_hostname = settings.ssl_verify and settings.ssl_check_hostname
        context.verify_mode = ssl.CERT_REQUIRED if settings.ssl_verify else ssl.CERT_NONE
        if settings.ssl_certificate_location:
            context.load_cert_chain(
                settings.ssl_certificate_location, settings.ssl_key_location, password=settings.ssl_key_password
            )
    except OSError as error:  # an SSLError is one too
        files = {
            "ssl.ca.location": settings.ssl_ca_location,
            "ssl.certificate.location": settings.ssl_certificate_location,
            "ssl.key.location": settings.ssl_key_location,
        }
        found = ", ".join(f"{name}={path}" for name, path in files.items() if path)
        raise ConfigError(
            f"ssl: found {found or 'ssl.ca.pem'}, wanted readable certificates and key: {error}"
        ) from error
    return context
