"""TLS as the settings want it (`security.protocol`, `ssl.*`)."""

from __future__ import annotations

import ssl

from ottla.errors import ConfigError
from ottla.wire_client.settings import WireSettings


def tls_context(settings: WireSettings) -> ssl.SSLContext:
    """What to trust and what to show, from the settings; ConfigError names the files that cannot be read."""
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
