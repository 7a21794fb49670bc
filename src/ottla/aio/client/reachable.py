"""Whether anything listens at an address, and the start of a client there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from aiokafka.errors import KafkaConnectionError

from ottla.aio.client.driving import run
from ottla.config import Address, Settings
from ottla.consumer.member.broker_wait import START_AGAIN_S, awaiting_broker
from ottla.wire_client.net.connection_check import greet


async def start_client(client: Any) -> None:
    """Start a client of aiokafka, which asks each address once. Raises what that raises, in the end."""
    for again_s in START_AGAIN_S:
        try:
            await client.start()
            return
        except KafkaConnectionError:
            await asyncio.sleep(again_s)
    await client.start()


async def first_listening(addresses: Sequence[Address], *, timeout_s: float) -> str | None:
    """None when something accepts a connection at one of the addresses, else what was found at each of them."""
    found = await _first_listening(addresses, timeout_s)
    return found if isinstance(found, str) else None


async def first_answering(addresses: Sequence[Address], settings: Mapping[str, Any], *, timeout_s: float) -> str | None:
    """As `first_listening`, and what listens is greeted: `AuthenticationError` or `ConfigError` for what is wrong there
    for good (`wire_client.net.connection_check`)."""
    found = await _first_listening(addresses, timeout_s)
    if isinstance(found, str):
        return found
    await asyncio.to_thread(greet, found, settings)
    return None


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


async def await_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_answering` raises."""
    asking: dict[str, Any] = {"ask": first_answering, "now_s": monotonic, "sleep": asyncio.sleep}
    await run(awaiting_broker(settings, timeout_s, should_give_up, **asking))
