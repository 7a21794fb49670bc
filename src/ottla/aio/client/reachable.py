"""Whether anything listens at an address, and the start of a client there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from aiokafka.errors import KafkaConnectionError

from ottla.app.member.broker_wait import BROKER_LONGEST_S, START_ATTEMPTS, START_LONGEST_S, BrokerWait
from ottla.config import Address, Settings
from ottla.retrying import try_again_async
from ottla.wire_client.net.connection_check import greet


async def start_client(client: Any) -> None:
    """Start a client of aiokafka, which asks each address once. Raises the last error of three attempts."""
    await try_again_async(
        client.start,
        what="client start",
        errors=KafkaConnectionError,
        longest_s=START_LONGEST_S,
        attempts=START_ATTEMPTS,
    )


async def first_listening(addresses: Sequence[Address], *, timeout_s: float) -> str | None:
    """Return None if one of the addresses accepts a connection, else the error of each address."""
    found = await _first_listening(addresses, timeout_s)
    return found if isinstance(found, str) else None


async def first_reachable(addresses: Sequence[Address], settings: Mapping[str, Any], *, timeout_s: float) -> str | None:
    """Connect as `first_listening` does, and greet what listens: raises `AuthenticationError` or `ConfigError` for what
    is wrong there for good (`wire_client.net.connection_check`)."""
    found = await _first_listening(addresses, timeout_s)
    if isinstance(found, str):
        return found
    return await asyncio.to_thread(greet, found, settings)


async def _first_listening(addresses: Sequence[Address], timeout_s: float) -> Address | str:
    problems = []
    for address in addresses:
        try:
            async with asyncio.timeout(timeout_s / len(addresses)):
                _, writer = await asyncio.open_connection(address.host, address.port)
            writer.close()
            return address
        except (OSError, UnicodeError) as error:  # the latter from a name that no resolver can be asked for
            problems.append(f"{address}: {getattr(error, 'strerror', None) or error or 'no answer'}")
    return "; ".join(problems)


async def wait_for_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_reachable` raises."""
    wait = BrokerWait(settings, timeout_s, monotonic())

    async def attempt() -> None:
        problem = await first_reachable(wait.addresses, settings, timeout_s=wait.connect_s(monotonic()))
        wait.check(problem, monotonic(), gives_up=should_give_up())

    if wait.addresses:
        await try_again_async(attempt, what="broker", longest_s=BROKER_LONGEST_S, until_s=wait.until_s)
