"""Whether anything listens at an address, said at once: the client itself would go on trying until its time is up."""

from __future__ import annotations

import socket

_DEFAULT_PORT = 9092


def first_listening(servers: str, *, timeout_s: float) -> str | None:
    """None when something accepts a connection at one of the addresses, else what was found at each of them."""
    problems = []
    addresses = [address.strip() for address in servers.split(",") if address.strip()]
    for address in addresses:
        host, _, port = address.removeprefix("PLAINTEXT://").rpartition(":")
        try:
            if not host:
                host, port = port, str(_DEFAULT_PORT)
            socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s / len(addresses)).close()
            return None
        except (OSError, ValueError, OverflowError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    return "; ".join(problems) or "no address given"
