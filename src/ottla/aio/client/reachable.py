"""Whether anything listens at an address, and the start of a client there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from aiokafka.errors import KafkaConnectionError

from ottla.app.member.broker_wait import BROKER_LONGEST_S, START_ATTEMPTS, START_LONGEST_S, BrokerWait, one_round
from ottla.config import Address, Settings
from ottla.retrying import try_again_async
from ottla.stepping import run_async
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


async def connect(address: Address, timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()


async def wait_for_broker(settings: Settings, timeout_s: float, should_give_up: Callable[[], bool]) -> None:
    """Wait until a broker listens at the address. Raises `BrokerUnavailable` with what was found there, and what
    `first_reachable` raises."""
    wait = BrokerWait(settings, timeout_s, monotonic())

    async def attempt() -> None:
        await run_async(one_round(wait, settings, should_give_up, connect=connect, greet=_greet))

    if wait.addresses:
        await try_again_async(attempt, what="broker", longest_s=BROKER_LONGEST_S, until_s=wait.until_s)


async def _greet(address: Address, settings: Mapping[str, Any]) -> str | None:
    return await asyncio.to_thread(greet, address, settings)
