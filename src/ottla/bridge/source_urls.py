"""Where a bridge connects to, and what it reads there: `mqtt://user@host:port`, `amqps://host/vhost`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from ottla.errors import ConfigError

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "amqp": 5672, "amqps": 5671}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUrl:
    """One broker. `str` shows no password."""

    scheme: str
    host: str
    port: int
    username: str | None
    password: str | None = field(repr=False)
    path: str

    @property
    def is_tls(self) -> bool:
        """Return whether the connection begins with TLS."""
        return self.scheme.endswith("s")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSource:
    """A broker to subscribe to."""

    url: SourceUrl
    filters: Sequence[str]
    client_id: str
    group: str | None = None
    """The name of a shared subscription: several bridges with one share the messages."""
    qos: int = 1
    version: int = 5
    window: int = 1_000

    def __post_init__(self) -> None:
        if not self.filters:
            raise ConfigError("--subscribe: found no topic filter, wanted at least one")
        if not self.client_id:
            raise ConfigError("--client-id: wanted an id that stays the same: the broker keeps the session under it")

    @property
    def subscriptions(self) -> list[str]:
        """Return the filters as the broker gets them."""
        return [name if self.group is None else f"$share/{self.group}/{name}" for name in self.filters]


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSource:
    """A queue to consume."""

    url: SourceUrl
    queue: str
    prefetch: int = 1_000


def source_url(text: str, *, kind: str, password: str | None = None) -> SourceUrl:
    """Return the address; `kind` is `mqtt` or `amqp`, and `password` stands in for one in the URL.

    Raises `ConfigError`, which does not show the text: it may have a password.
    """
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError:  # its text has the part that was taken for the port, which may be one of the password
        raise ConfigError(
            f"--connect: found no host, or no port of 1 to 65535, wanted {kind}://host:port; "
            "a password with / ? # or [ is percent-encoded, or in OTTLA_BRIDGE_PASSWORD"
        ) from None
    if found.scheme not in (kind, f"{kind}s") or not found.hostname:
        raise ConfigError(f"--connect: found scheme {found.scheme!r}, wanted {kind}://host or {kind}s://host")
    return SourceUrl(
        scheme=found.scheme,
        host=found.hostname,
        port=port or _PORTS[found.scheme],
        username=None if found.username is None else unquote(found.username),
        password=password if found.password is None else unquote(found.password),
        path=found.path,
    )
