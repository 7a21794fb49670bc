"""The address that a console listens at, and its token."""

from __future__ import annotations

import ipaddress
import secrets
from typing import Final

from ottla.errors import ConfigError

_LEAST_TOKEN: Final = 16
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(host: str, *, allow_remote: bool, has_tls: bool, proxy: str | None, is_named: bool = False) -> None:
    """Refuse an address that others reach, unless that is meant, what they send is encrypted, and it has a name: a
    console that answered under any name would answer under that of a foreign page too (DNS rebinding)."""
    if is_loopback(host):
        return
    if not allow_remote:
        raise ConfigError(f"--host {host}: other machines can reach this address; --allow-remote allows it")
    if not has_tls and proxy is None:
        raise ConfigError(f"--host {host}: wanted --tls-cert and --tls-key, or --behind-proxy NAME of one with HTTPS")
    if host in _EVERY_ADDRESS and proxy is None and not is_named:
        raise ConfigError(f"--host {host}: wanted --name HOST as well: the name that browsers use")


def token_of(given: str | None) -> str:
    """Return the token in the environment, or a new one."""
    if given is None or given == "":
        return secrets.token_urlsafe(24)
    if len(given) < _LEAST_TOKEN or not all(each.isascii() and (each.isalnum() or each in "-_.~") for each in given):
        raise ConfigError(
            f"OTTLA_CONSOLE_TOKEN: wanted at least {_LEAST_TOKEN} letters, digits or any of -_.~ (found {len(given)})"
        )
    return given
