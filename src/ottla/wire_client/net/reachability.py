"""Whether anything listens at an address, and whether it is a Kafka that takes these settings. Quick."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from ottla.config import Address, BadAddress, parse_addresses
from ottla.errors import BrokerUnavailable, ConfigError
from ottla.showing import shown
from ottla.stepping import Steps, run
from ottla.wire_client.net.connection_check import greet

START_TIMEOUT_S: Final = 10.0
"""How long a start waits for something to listen at the address, unless the caller chose."""


Connect = Callable[[Address, float], Any]
"""Connects to an address within a number of seconds, and closes. Raises `OSError`, or `UnicodeError` for a name that no
resolver can be asked for. On an event loop this is to be awaited."""


def first_listening(addresses: Sequence[Address], *, timeout_s: float, connect: Connect) -> Steps[Address | str]:
    """Return the first address that accepts a connection, or the error of each address."""
    problems = []
    for address in addresses:
        try:
            yield partial(connect, address, timeout_s / len(addresses))
            return address
        except (OSError, UnicodeError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or str(error) or 'no answer'}")
    return "; ".join(problems)


def first_reachable(
    addresses: Sequence[Address],
    settings: Mapping[str, Any],
    *,
    timeout_s: float,
    connect: Connect,
    greet: Callable[[Address, Mapping[str, Any]], Any] = greet,
) -> Steps[str | None]:
    """Connect as `first_listening` does, and greet what listens. Returns None, or what there is to wait for. Raises
    `AuthenticationError` or `ConfigError` for what is wrong there for good (`wire_client.net.connection_check`)."""
    found = yield from first_listening(addresses, timeout_s=timeout_s, connect=connect)
    if isinstance(found, str):
        return found
    problem: str | None = yield partial(greet, found, settings)
    return problem


def connect(address: Address, timeout_s: float) -> None:
    socket.create_connection((address.host, address.port), timeout=timeout_s).close()


def require_reachable(servers: str, settings: Mapping[str, Any], *, timeout_s: float) -> None:
    """Raise what is wrong at the address: `BrokerUnavailable`, or what `first_reachable` raises."""
    problem = run(first_reachable(addresses_of(servers), settings, timeout_s=timeout_s, connect=connect))
    if problem is not None:
        raise BrokerUnavailable(f"no Kafka broker answered at {problem}")


def addresses_of(servers: str) -> tuple[Address, ...]:
    """Return the addresses, or ConfigError. librdkafka passes over what it cannot read, and waits."""
    try:
        return parse_addresses(servers)
    except BadAddress as error:
        raise ConfigError(f"bootstrap servers: found {shown(servers)}, wanted {error}") from None
