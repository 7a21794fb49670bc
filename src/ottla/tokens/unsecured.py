"""Unsecured tokens (RFC 7515, appendix A.5), for tests: without a signature, so that a broker believes any client.

`enable.sasl.oauthbearer.unsecure.jwt=true` with `sasl.oauthbearer.config="principal=alice scope=kafka,orders
lifeSeconds=3600"`, in librdkafka's words.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.errors import ConfigError
from ottla.tokens.settings import TokenSettings
from ottla.tokens.shared import current_clock
from ottla.tokens.token import Token

_OPTION: Final = re.compile(r"(\w+)=(\S*)")
_KNOWN: Final = ("lifeSeconds", "principal", "principalClaimName", "scope", "scopeClaimName")
_LIFE_S: Final = 3600
_EXTENSION: Final = "extension_"


def fetch(settings: TokenSettings) -> Token:
    """Make a token by `sasl.oauthbearer.config`."""
    name = "sasl.oauthbearer.config"
    options: dict[str, str] = {}
    extensions = dict(settings.extensions)
    for part in settings.unsecured.split():
        found = _OPTION.fullmatch(part)
        key = found[1] if found else ""
        if found and key.startswith(_EXTENSION):
            extensions[key.removeprefix(_EXTENSION)] = found[2]
        elif found and key in _KNOWN:
            options[key] = found[2]
        else:
            raise ConfigError(f"{name}: found {key or 'text'!r}, wanted NAME=VALUE of {', '.join(_KNOWN)}")
    if not options.get("principal"):
        raise ConfigError(f"{name}: found no principal, wanted principal=NAME")
    life = options.get("lifeSeconds", str(_LIFE_S))
    if not (life.isascii() and life.isdigit() and 0 < len(life) < 10):
        raise ConfigError(f"{name}: lifeSeconds: found {life!r}, wanted a whole number of seconds")
    now_s = current_clock().now_ms() / 1000
    claims: dict[str, Any] = {
        options.get("principalClaimName", "sub"): options["principal"],
        "iat": now_s,
        "exp": now_s + int(life),
    }
    if "scope" in options:
        claims[options.get("scopeClaimName", "scope")] = options["scope"].split(",")
    return Token(
        value=unsecured_token(claims),
        expires_at=claims["exp"],
        principal=options["principal"],
        extensions=extensions,
    )


def unsecured_token(claims: Mapping[str, Any]) -> str:
    """Return a JSON web token with these claims and without a signature."""
    return ".".join([_part({"alg": "none"}), _part(claims), ""])


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
