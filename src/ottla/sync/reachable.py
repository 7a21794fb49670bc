"""Whether anything listens at an address, said at once: the client itself would go on trying until its time is up."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Final

from ottla.config import Address
from ottla.telemetry import log_event

_AGAIN_S: Final = 0.2
_CONNECT_S: Final = 1.0
"""What one round of connecting has at least: a wait of 0 seconds still asks once."""


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


def await_listening(
    addresses: Sequence[Address], *, timeout_s: float, should_give_up: Callable[[], bool] = lambda: False
) -> str | None:
    """`first_listening`, asked again for `timeout_s`: the broker may be starting too. A warning tells it at once."""
    deadline_s = time.monotonic() + timeout_s
    is_told = False
    while True:
        problem = first_listening(addresses, timeout_s=max(_CONNECT_S, deadline_s - time.monotonic()))
        left_s = deadline_s - time.monotonic()
        if problem is None or left_s <= 0 or should_give_up():
            return problem
        if not is_told:
            log_event("broker_awaited", "warning", {"problem": problem, "for_s": round(left_s, 1)})
            is_told = True
        time.sleep(min(_AGAIN_S, left_s))
