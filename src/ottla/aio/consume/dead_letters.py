"""The sink of failed records on an event loop: a task sends each, and awaits it (`DeadLetterProducer`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from ottla.aio.produce.producer import AsyncProducer
from ottla.app.member.dead_letter_producer import DeadLetterProducer
from ottla.consumer.model.failed_writes import FormsToWrite, OnWritten, Write
from ottla.errors import DeliveryError


class DeadLetterSink(Protocol):
    """Where the member writes dead letters. Tests have one that refuses."""

    def write(self, failed_write: Write, on_written: OnWritten) -> None:
        """Start writing. Must not raise, and must eventually call `on_written`."""

    async def close(self, timeout_s: float) -> None:
        """Wait for what is under way, at most `timeout_s` seconds."""


class ProducerSink(DeadLetterProducer):
    """Dead letters through an idempotent producer."""

    _producer: AsyncProducer[Any, Any] | None

    def __init__(self, bootstrap_servers: Any, settings: Mapping[str, Any]) -> None:
        super().__init__(bootstrap_servers, settings)
        self._starting = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, failed_write: Write, on_written: OnWritten) -> None:
        task = asyncio.get_running_loop().create_task(self._write(failed_write, on_written))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, timeout_s: float) -> None:
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        if self._producer is not None:
            try:
                await self._producer.close(timeout_s)
            except DeliveryError:
                pass  # Each failure was reported to the session, which has not committed those records.

    async def _write(self, failed_write: Write, on_written: OnWritten) -> None:
        forms = FormsToWrite(failed_write, on_written)
        while (dead := forms.next()) is not None:
            failure: Exception | None = None
            try:
                producer = await self._started()
                await producer.send(
                    failed_write.target,
                    dead.value,
                    key=dead.key,
                    headers=dead.headers,
                    partition=failed_write.target_partition,
                    detached=True,
                )
            except Exception as error:  # whatever it is: a write that is never answered is never retried
                failure = error
            if forms.is_settled(failure):
                return

    async def _started(self) -> AsyncProducer[Any, Any]:
        async with self._starting:
            if self._producer is None:
                producer = self._made(AsyncProducer)
                try:
                    await producer.start(0)  # the session retries the write
                except BaseException:
                    await producer.close(0)
                    raise
                self._producer = producer
            return self._producer
