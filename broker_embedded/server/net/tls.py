"""TLS for a listener, by the standard library. Imported only where it is wanted: it takes 7 ms and 3 MB."""

from __future__ import annotations

import os
import ssl

from broker_embedded.common.errors import StartupError
from broker_embedded.security.settings import Security

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


def server_context(security: Security) -> ssl.SSLContext:
    """Return a context for TLS 1.2 and 1.3, Kafka's default. StartupError says which file cannot be used, and why."""
    assert security.certificate is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    certificate = os.fspath(security.certificate)
    key = None if security.key is None else os.fspath(security.key)
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=security.key_password or "")
    except (OSError, ssl.SSLError) as error:
        files = certificate if key is None else f"{certificate} and {key}"
        raise StartupError(f"no certificate and key can be read from {files}: {_reason(error)}") from None
    if security.client_ca is not None:
        authority = os.fspath(security.client_ca)
        try:
            context.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as error:
            raise StartupError(f"no certificate authority can be read from {authority}: {_reason(error)}") from None
    context.verify_mode = _CLIENT_AUTH[security.client_auth]
    return context


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return error.strerror or str(error)
