"""How commands and pages reach a schema registry: address, login and TLS, as the serdes of services take them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.errors import ConfigError, InputError
from ottla.topics import text_problem

if TYPE_CHECKING:
    import ssl

    from ottla.serdes.registry_admin import RegistryAdmin

_MOST_CHARACTERS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """The options of one registry. Secrets are in no `repr`; `url` may hold some."""

    url: str = field(repr=False)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    """A bearer token, in place of user and password."""
    ca: Path | None = None
    """The authorities to trust (PEM), in place of the system's."""
    certificate: Path | None = None
    """A client certificate (PEM)."""
    key: Path | None = None
    """Its private key (PEM), if it is not in that file."""
    key_password: str | None = field(default=None, repr=False)
    timeout_s: float = 5.0
    is_default: bool = False
    """The address is the default: none was given."""

    def open(self) -> RegistryAdmin:
        """Return a client. Nothing is sent yet. Raises `ConfigError` for options that cannot work."""
        from ottla.serdes.registry_admin import RegistryAdmin

        if self.token is not None and (self.user is not None or self.password is not None):
            raise ConfigError("schema registry: found a token and a user, wanted one of them")
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        return RegistryAdmin(
            self.url,
            user=self.user,
            password=self.password,
            headers=headers,
            tls=self._tls(),
            timeout_s=self.timeout_s,
        )

    def _tls(self) -> ssl.SSLContext | None:
        files = {"CA": self.ca, "certificate": self.certificate, "key": self.key}
        found = ", ".join(f"{name} {path}" for name, path in files.items() if path is not None)
        if not found:
            return None
        if self.key is not None and self.certificate is None:
            raise ConfigError(f"schema registry: found {found}, wanted a certificate with the key")
        import ssl

        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                # Without a password OpenSSL would ask at the terminal for that of an encrypted key.
                context.load_cert_chain(self.certificate, self.key, password=self.key_password or "")
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(f"schema registry: found {found}, wanted readable PEM files: {error}") from None
        return context


def opened_registry(registry: str | RegistryAccess) -> RegistryAdmin:
    """Return a client of a registry: an address alone needs no login."""
    return (RegistryAccess(url=registry) if isinstance(registry, str) else registry).open()


def checked_subject(subject: str) -> str:
    """Return the subject. Raises `InputError` for text that is no name of a subject."""
    problem = text_problem(subject)
    if problem is not None:
        raise InputError(f"SUBJECT: {problem}")
    if not subject or len(subject) > _MOST_CHARACTERS or not subject.isprintable():
        raise InputError(f"SUBJECT: found {subject[:100]!r}, wanted 1 to {_MOST_CHARACTERS:,} printable characters")
    return subject
