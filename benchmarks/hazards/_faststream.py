"""Runs a FastStream broker for a while, over either of its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

CLIENTS = ("faststream[confluent]", "faststream[kafka]")


def broker(client: str, bootstrap: str, **options: Any) -> Any:
    if client == "faststream[confluent]":
        from faststream.confluent import KafkaBroker
    else:
        from faststream.kafka import KafkaBroker
    return KafkaBroker(bootstrap, logger=None, **options)


async def run_until(running: Any, condition: Callable[[], Any], seconds: float) -> None:
    """Start the broker, wait for the condition or the time, stop it gracefully."""
    await running.start()
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await running.stop()


def handler(function: Callable[[Any], Awaitable[None]], kind: Any) -> Any:
    """`function` with its parameter annotated, which is how FastStream learns what to decode to."""
    function.__annotations__ = {"message": kind, "return": None}
    return function
