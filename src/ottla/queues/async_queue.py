"""`AsyncQueue`: jobs by `async for`.

async with AsyncQueue("images", group="resize", bootstrap_servers="localhost:9092", value=Json(Image)) as jobs:
    async for job in jobs:
        await resize(job.value)
        job.accept()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, Unpack, overload

from ottla.config.arguments import explained
from ottla.quantities import Span, timeout
from ottla.queues.core.acknowledgements import Acknowledgement
from ottla.queues.core.effects import Effect
from ottla.queues.core.lease import Lease
from ottla.queues.job import Job
from ottla.queues.queue_base import NOT_SETTLED_S, QueueBase, QueueOptions, Value
from ottla.records import Malformed
from ottla.serdes.base import SerdeOf
from ottla.typevars import Builtin, V_co


class AsyncQueue(QueueBase, Generic[V_co]):
    """`Queue` for asyncio. It belongs to the loop that it was started on; what leases has threads of its own."""

    _name: ClassVar[str] = "AsyncQueue"

    @overload
    def __init__(self: AsyncQueue[bytes], *topics: str, group: str, **options: Unpack[QueueOptions]) -> None: ...

    @overload
    def __init__(
        self: AsyncQueue[Value | Malformed],
        *topics: str,
        group: str,
        value: SerdeOf[Value],
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncQueue[Builtin | Malformed],
        *topics: str,
        group: str,
        value: type[Builtin],
        **options: Unpack[QueueOptions],
    ) -> None: ...

    @explained("AsyncQueue")
    def __init__(self, *topics: str, group: str, **options: Any) -> None:
        self._leases: asyncio.Queue[Lease | None] = asyncio.Queue()
        self._has_ended = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting = asyncio.Lock()
        self._is_stopping = False
        super().__init__(*topics, group=group, **options)

    __init__.__wrapped__ = QueueBase.__init__  # type: ignore[attr-defined]  # whose arguments `help` shows

    async def take(self, timeout_s: Span = 1.0) -> Job[V_co] | None:
        """Return the next job; None when there was none for `timeout_s`, or `stop` was called."""
        await self._start_once()
        try:
            async with asyncio.timeout(timeout("take", timeout_s)):
                return await self._next()
        except TimeoutError:
            return None

    async def __aiter__(self) -> AsyncIterator[Job[V_co]]:
        """Yield jobs until `stop` or `close`. Settle each: while `concurrency` are not settled no other comes."""
        while not self._is_closed:
            await self._start_once()
            job = await self._next()
            if job is not None:
                yield job
            elif self._is_stopping:
                return

    def stop(self) -> None:
        """End the iteration. From any thread. Jobs in the caller's hands stay leased."""
        self._is_stopping = True
        self._on_loop(self._leases.put_nowait, None)

    async def close(self, timeout_s: Span = 10.0) -> None:
        """Release what is not settled, send what is, and leave the group; at most `timeout_s` seconds."""
        self.stop()
        self._is_closed = True
        if self._has_started and not self._has_ended.is_set():
            self._client.abandon()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_ended.wait(), timeout("close", timeout_s))

    async def __aenter__(self) -> Self:
        await self._start_once()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _start_once(self) -> None:
        async with self._starting:
            self._check_open()
            if not self._has_started:
                self._loop = asyncio.get_running_loop()
                await asyncio.to_thread(self._prepare)
                self._client.start()
                self._has_started = True

    async def _next(self) -> Job[V_co] | None:
        while not self._is_stopping:
            try:
                lease = await asyncio.wait_for(self._leases.get(), NOT_SETTLED_S)
            except TimeoutError:
                if self._client.has_no_free_worker:
                    self._say_not_settled()
                lease = await self._leases.get()
            if lease is not None:
                job = await self._decoded(lease)
                if job is not None:
                    return job
            elif self._error is not None:
                self._check_open()
        return None

    async def _decoded(self, lease: Lease) -> Job[V_co] | None:
        if not self._would_block(lease):
            return self._job(lease)
        try:
            return await asyncio.to_thread(self._job, lease)
        except asyncio.CancelledError:
            self._client.settle_once(lease, Acknowledgement.RELEASE)
            raise

    def _on_effects(self, effects: list[Effect]) -> None:
        for lease in self._leased(effects):
            self._on_loop(self._leases.put_nowait, lease)

    def _on_ended(self, error: BaseException | None) -> None:
        self._error = self._error or error
        self._on_loop(self._has_ended.set)
        self._on_loop(self._leases.put_nowait, None)

    def _on_loop(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: its caller is gone
                self._loop.call_soon_threadsafe(call, *arguments)
