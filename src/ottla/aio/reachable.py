"""Whether anything listens at an address, said at once: the client itself would go on trying until its time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

_DEFAULT_PORT = 9092


async def first_listening(addresses: Sequence[str], *, timeout_s: float) -> str | None:
    """None when something accepts a connection at one of the addresses, else what was found at each of them."""
    problems = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host:
            host, port = port, str(_DEFAULT_PORT)
        try:
            async with asyncio.timeout(timeout_s / len(addresses)):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            writer.close()
            return None
        except (OSError, ValueError, OverflowError) as error:
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error or 'no answer'}")
    return "; ".join(problems) or "no address given"
