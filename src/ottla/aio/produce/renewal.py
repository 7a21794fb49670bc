"""Replaces an aiokafka client that a refused batch has made useless, without losing what waits behind it.

An idempotent producer numbers its batches per partition. aiokafka counts a batch when it is sent; when the broker
refuses it for good (too large, no permission), the number stays used on one side only, and every later batch of that
partition is answered with OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka starts over with a new epoch, and Ottla with a
new client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from aiokafka.errors import KafkaError, ProducerClosed

from ottla.aio.aiokafka_internals import fail_batches, sender_of
from ottla.aio.client.ending import end
from ottla.errors import OttlaError
from ottla.retrying import Awaited, try_again_async

if TYPE_CHECKING:
    from ottla.aio.produce.send_buffer import SendBuffer

_LONGEST_S: Final = 1.0


class Renewal:
    """The gate before the client, and the task that puts a new one behind it.

    A transactional producer does not renew `by_itself`: the transaction has failed, and its abort is the moment.
    """

    def __init__(self, owner: SendBuffer, new_client: Callable[[float], Awaitable[Any]], *, by_itself: bool) -> None:
        self._owner = owner
        self._new_client = new_client
        self._by_itself = by_itself
        self.is_wanted = False
        self._task: asyncio.Task[None] | None = None

    def wanted(self) -> None:
        """Have the client replaced: its state of at least one partition is unknown."""
        self.is_wanted = True
        if self._by_itself and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._renew(), name="ottla-producer-renewal")

    async def done(self) -> None:
        """Wait while a client is being replaced."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def now(self, timeout_s: float) -> bool:
        """Replace the client if that is wanted, and wait for it. Returns False if that takes too long."""
        if self.is_wanted and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._renew(), name="ottla-producer-renewal")
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout_s)
        return not self.is_wanted

    async def stop(self) -> None:
        task, self._task = self._task, None
        await end(task)

    async def _try(self) -> Any:
        try:
            return await self._new_client(10.0)
        except OttlaError as error:
            raise Awaited("producer_renewal_failed", {"error": str(error)}) from error

    async def _renew(self) -> None:
        try:
            while self._owner.under_way():  # what is with the old client is settled by it, one way or the other
                await self._owner.wait_for_progress(0.5)
            client = await try_again_async(self._try, what="producer renewal", longest_s=_LONGEST_S)
            old = self._owner.client
            self._owner.use_client(client)
            self.is_wanted = False
            await stop_client(old)
        finally:
            self._task = None


async def stop_client(client: Any) -> None:
    """Stop aiokafka within seconds. By itself it waits for batches as long as it takes, which may be for ever.

    Its sender comes first: a batch that the sender is about to try again must not be settled under its hands. Both
    names are not public, and there is no public way.
    """
    await _within(3.0, sender_of(client).close())
    fail_batches(client, ProducerClosed())
    await _within(2.0, client.stop())
    await _within(1.0, client.client.close())


async def _within(seconds: float, awaitable: Awaitable[Any]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await awaitable
    except (TimeoutError, KafkaError, OSError):
        pass
