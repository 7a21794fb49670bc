"""One token, and what a JSON web token (RFC 7519) says of itself. Nothing is verified here: brokers do that."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.foreign_json import ForeignJsonError, read_json
from ottla.showing import shown
from ottla_wire.facts import fact

_BEARER: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*\Z")
"""b64token of RFC 6750, section 2.1."""

_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+\Z")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+\Z")
"""RFC 7628, section 3.1. Neither can hold the separator, \\x01."""

MOST_CHARACTERS: Final = 256 * 1024
"""Kafka's brokers take 512 KiB of a client that has not authenticated yet (sasl.server.max.receive.size)."""


@fact
class Token:
    """A bearer token. `expires_at` is in seconds since the epoch; `extensions` are SASL extensions (KIP-342).
    `principal` is for logs only: the broker decides a client's principal. Raises ConfigError for a token that cannot be
    sent."""

    value: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value, str):
            raise ConfigError(f"token: found {_kind(self.value)}, wanted text")
        if len(self.value) > MOST_CHARACTERS:
            raise ConfigError(f"token: found {len(self.value):,} characters, wanted at most {MOST_CHARACTERS:,}")
        if not _BEARER.match(self.value):
            raise ConfigError(
                "token: found text with other characters than a bearer token has (RFC 6750), wanted letters, digits "
                "and -._~+/="
            )
        is_time = isinstance(self.expires_at, int | float) and not isinstance(self.expires_at, bool)
        if not is_time or not 0 < self.expires_at < 1e11:
            raise ConfigError(f"token: expires_at: found {shown(self.expires_at)}, wanted seconds since the epoch")
        check_extensions(self.extensions, where="token: extensions")

    @property
    def expires_ms(self) -> int:
        """`expires_at` in milliseconds."""
        return int(self.expires_at * 1000)


def check_extensions(extensions: Mapping[str, str], *, where: str) -> None:
    """Raise ConfigError for SASL extensions that cannot be sent. Their values are not shown: one may be a key."""
    for name, value in extensions.items():
        if not isinstance(name, str) or not _EXTENSION_NAME.match(name) or name == "auth":
            raise ConfigError(
                f"{where}: found the name {shown(name)}, wanted letters alone, and another word than auth"
            )
        if not isinstance(value, str) or not _EXTENSION_VALUE.match(value):
            raise ConfigError(f"{where}: {name}: found {_kind(value)} that cannot be sent, wanted printable ASCII text")


def claims_of(value: str) -> dict[str, Any]:
    """Return the claims of a JSON web token, unverified; empty for a token of another kind."""
    parts = value.split(".")
    if len(parts) != 3 or len(value) > MOST_CHARACTERS:
        return {}
    try:
        found = read_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), most_depth=50)
    except (binascii.Error, ValueError, ForeignJsonError):
        return {}
    return found if isinstance(found, dict) else {}


def expiry_of(claims: Mapping[str, Any]) -> float | None:
    """Return the `exp` claim in seconds since the epoch; None if it is missing or invalid."""
    found = claims.get("exp")
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < 1e11:
        return None
    return float(found)


def text_claim(claims: Mapping[str, Any], name: str) -> str:
    """Return a claim if it is text, else an empty text."""
    found = claims.get(name)
    return found if isinstance(found, str) else ""


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else type(value).__name__
