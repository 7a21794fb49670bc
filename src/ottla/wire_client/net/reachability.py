"""Whether anything listens at an address, and whether it is a Kafka that takes these settings. Blocking, and quick."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla.config import Address, BadAddress, parse_addresses
from ottla.errors import BrokerUnavailable, ConfigError
from ottla.showing import shown
from ottla.wire_client.net.connection_check import greet

START_TIMEOUT_S: Final = 10.0
"""How long a start waits for something to listen at the address, unless the caller chose."""


def first_listening(addresses: Sequence[Address], *, timeout_s: float) -> str | None:
    """Return None if one of the addresses accepts a connection, else the error of each address."""
    found = _first_listening(addresses, timeout_s)
    return found if isinstance(found, str) else None


def first_reachable(addresses: Sequence[Address], settings: Mapping[str, Any], *, timeout_s: float) -> str | None:
    """Connect as `first_listening` does, and greet what listens: raises `AuthenticationError` or `ConfigError` for what
    is wrong there for good (`wire_client.net.connection_check`)."""
    found = _first_listening(addresses, timeout_s)
    if isinstance(found, str):
        return found
    return greet(found, settings)


def require_reachable(servers: str, settings: Mapping[str, Any], *, timeout_s: float) -> None:
    """Raise what is wrong at the address: `BrokerUnavailable`, or what `first_reachable` raises."""
    problem = first_reachable(addresses_of(servers), settings, timeout_s=timeout_s)
    if problem is not None:
        raise BrokerUnavailable(f"no Kafka broker answered at {problem}")


def addresses_of(servers: str) -> tuple[Address, ...]:
    """Return the addresses, or ConfigError. librdkafka passes over what it cannot read, and waits."""
    try:
        return parse_addresses(servers)
    except BadAddress as error:
        raise ConfigError(f"bootstrap servers: found {shown(servers)}, wanted {error}") from None


def _first_listening(addresses: Sequence[Address], timeout_s: float) -> Address | str:
    problems = []
    for address in addresses:
        try:
            socket.create_connection((address.host, address.port), timeout=timeout_s / len(addresses)).close()
            return address
        except (OSError, UnicodeError) as error:  # the latter from a name that no resolver can be asked for
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    return "; ".join(problems)
