"""The task that commits what handlers with ``exactly_once=`` did, with a transactional producer of the member's own.

The twin of `ottla.sync.consume.transactions`. The coordinator of the group checks each commit against the member and
its generation (KIP-447), which are asked for at each commit: on an event loop that blocks no other task.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Unpack

from ottla.aio.produce.producer import AsyncProducer
from ottla.app.member.member_commits import END_S, CommitParts
from ottla.app.member.member_transactions import Join, MemberTransactions, TransactionalClient
from ottla.app.once.exactly_once_invoker import TransactionOptions
from ottla.once.transaction_parts import TransactionPart
from ottla.stepping import run_async


class _Client(TransactionalClient):
    producer_type = AsyncProducer
    run = staticmethod(run_async)
    _is_over: asyncio.Event

    async def pause(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        return not self._is_over.is_set()


class Transactions(MemberTransactions):
    """See the module."""

    _client_type = _Client

    def __init__(self, options: TransactionOptions, *, join: Join, **parts: Unpack[CommitParts]) -> None:
        super().__init__(options, join=join, is_over=asyncio.Event(), **parts)
        self._queue: asyncio.Queue[TransactionPart | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await run_async(self._starting())
        self._task = asyncio.create_task(run_async(self._working()), name=f"ottla-{self._group}-transactions")

    def submit(self, work: TransactionPart) -> None:
        self._queue.put_nowait(work)

    async def stop(self) -> None:
        """End. What is not committed by now is not."""
        self._is_over.set()
        self._queue.put_nowait(None)
        task, self._task = self._task, None
        if task is not None:
            _, late = await asyncio.wait({task}, timeout=END_S)
            for one in late:
                one.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _next(self) -> list[TransactionPart] | None:
        works = [await self._queue.get()]
        while not self._queue.empty():
            works.append(self._queue.get_nowait())
        if self._is_over.is_set():
            return None
        return [work for work in works if work is not None]
