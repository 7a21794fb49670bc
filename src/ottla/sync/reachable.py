"""Whether anything listens at an address, said at once: the client itself would go on trying until its time is up."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from ottla.config import Address


def first_listening(addresses: Sequence[Address], *, timeout_s: float) -> str | None:
    """None when something accepts a connection at one of the addresses, else what was found at each of them."""
    problems = []
    for address in addresses:
        try:
            socket.create_connection((address.host, address.port), timeout=timeout_s / len(addresses)).close()
            return None
        except (OSError, UnicodeError) as error:  # the latter from a name that no resolver can be asked for
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error}")
    return "; ".join(problems)
