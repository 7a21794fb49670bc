"""Parses `host:port[,host:port...]`: the one place that reads `bootstrap.servers`.

Accepted is what every client here takes: a host name, an IPv4 address or an IPv6 address in brackets, a port (Kafka's
9092 where there is none), and before them librdkafka's `PROTOCOL://`. What clients understand differently is refused,
rather than guessed: `::1:9092` is a host with a port to some and an address without one to others, and an item that is
empty is skipped by some and looked up by others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

DEFAULT_PORT: Final = 9092
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FORM: Final = "host:port[,host:port...]"
_NOT_IN_A_HOST: Final = re.compile(r"[\s/@?#\[\]]")
_PORT: Final = re.compile(r"[0-9]{1,5}")


class BadAddress(ValueError):
    """Not a valid address. The text says what was wanted, to follow what was found and where."""


@dataclass(frozen=True, slots=True)
class Address:
    """One broker to ask first. `protocol` is the security.protocol that was written before it, in capitals."""

    host: str
    port: int = DEFAULT_PORT
    protocol: str | None = None

    @property
    def host_and_port(self) -> str:
        """Return the address as clients write it: an IPv6 address stands in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return self.host_and_port if self.protocol is None else f"{self.protocol}://{self.host_and_port}"


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Return every address of a list with commas, in order. Raises BadAddress."""
    if not text.strip():
        raise BadAddress(f"{_FORM} of at least one broker")
    items = [item.strip() for item in text.split(",")]
    for number, item in enumerate(items, 1):
        if not item:
            raise BadAddress(f"{_FORM}; address {number} of {len(items)} is empty: is a comma too many?")
    return tuple(_address(item) for item in items)


def _address(item: str) -> Address:
    before, separator, rest = item.rpartition("://")
    protocol = before.upper() if separator else None
    if protocol is not None and protocol not in _PROTOCOLS:
        raise BadAddress(f"{_FORM}, before it nothing or one of {', '.join(f'{name}://' for name in _PROTOCOLS)}")
    if rest.startswith("["):
        inside, bracket, behind = rest[1:].partition("]")
        if not bracket or (behind and not behind.startswith(":")) or not _is_ipv6(inside):
            raise BadAddress(f"{_FORM}, with an IPv6 address in brackets: [::1]:9092")
        return Address(inside, _port(behind[1:]) if behind else DEFAULT_PORT, protocol)
    if ":" in rest.rpartition("@")[0]:
        raise BadAddress(f"{_FORM}, without a user and a password: these are settings, sasl.username and sasl.password")
    host, colon, port = rest.partition(":")
    if ":" in port:
        raise BadAddress(f"{_FORM}; an IPv6 address stands in brackets: [::1]:9092")
    if not host or _NOT_IN_A_HOST.search(host):
        raise BadAddress(f"{_FORM}, and {host!r} is no host name")
    if host.isdecimal():  # a port alone, as a rule; resolvers would take it for an address of four bytes
        raise BadAddress(f"{_FORM}; {host!r} has no host, as in localhost:{host}")
    return Address(host, _port(port) if colon else DEFAULT_PORT, protocol)


def _is_ipv6(text: str) -> bool:
    import ipaddress  # of a start, two milliseconds that names and IPv4 addresses have no use for

    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _port(text: str) -> int:
    if _PORT.fullmatch(text) and 1 <= int(text) <= 65_535:
        return int(text)
    raise BadAddress(f"{_FORM}, each port from 1 to 65535")
