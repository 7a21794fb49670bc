"""The event loop's own producer: made by the task that asks first, shared by all tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from ottla.aio.produce.producer import AsyncProducer
from ottla.producer.sharing import Shared, closing, identity_of
from ottla.stepping import run_async

_shared: Shared[AsyncProducer[Any, Any]] = Shared()
_starting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


async def shared_async_producer(
    bootstrap_servers: str | Sequence[str] | None = None,
    *,
    profile: str | None = None,
    settings: Mapping[str, Any] | None = None,
    partitioner: Any = None,
    key: Any = None,
    value: Any = None,
) -> AsyncProducer[Any, Any]:
    """Return the running loop's producer with these settings, started: every call on this loop gives the same one.

    Close it with `close_shared_async_producers` before the loop ends: it cannot be closed afterwards.
    """
    make = partial(
        AsyncProducer,
        bootstrap_servers,
        profile=profile,
        settings=settings,
        partitioner=partitioner,
        key=key,
        value=value,
    )
    identity = (asyncio.get_running_loop(), identity_of(make))
    producer = _shared.get(identity, make)
    async with _starting.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        if not producer._is_started:
            await producer.start()
    return producer


async def close_shared_async_producers(timeout_s: float | None = None) -> None:
    """Flush and close the producers of the running loop. Raises the first `DeliveryError`, after all are closed."""
    loop = asyncio.get_running_loop()
    own = _shared.take_all(lambda identity: isinstance(identity, tuple) and identity[0] is loop)
    await run_async(closing(own, timeout_s))
