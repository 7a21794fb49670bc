"""Whether anything listens at an address, said at once: the client itself would go on trying until its time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from ottla.config import Address
from ottla.telemetry import log_event

_AGAIN_S: Final = 0.2
_CONNECT_S: Final = 1.0
"""What one round of connecting has at least: a wait of 0 seconds still asks once."""


async def first_listening(addresses: Sequence[Address], *, timeout_s: float) -> str | None:
    """None when something accepts a connection at one of the addresses, else what was found at each of them."""
    problems = []
    for address in addresses:
        try:
            async with asyncio.timeout(timeout_s / len(addresses)):
                _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return None
        except (OSError, UnicodeError) as error:  # the latter from a name that no resolver can be asked for
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error or 'no answer'}")
    return "; ".join(problems)


async def await_listening(
    addresses: Sequence[Address], *, timeout_s: float, should_give_up: Callable[[], bool] = lambda: False
) -> str | None:
    """`first_listening`, asked again for `timeout_s`: the broker may be starting too. A warning tells it at once."""
    deadline_s = monotonic() + timeout_s
    is_told = False
    while True:
        problem = await first_listening(addresses, timeout_s=max(_CONNECT_S, deadline_s - monotonic()))
        left_s = deadline_s - monotonic()
        if problem is None or left_s <= 0 or should_give_up():
            return problem
        if not is_told:
            log_event("broker_awaited", "warning", {"problem": problem, "for_s": round(left_s, 1)})
            is_told = True
        await asyncio.sleep(min(_AGAIN_S, left_s))
