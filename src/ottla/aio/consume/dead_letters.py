"""The sink of failed records on an event loop: a task sends each, and awaits it (`DeadLetterProducer`)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ottla.aio.produce.producer import AsyncProducer
from ottla.app.member.dead_letter_producer import DeadLetterProducer, send_arguments
from ottla.consumer.model.failed_writes import FormsToWrite, OnWritten, Write
from ottla.stepping import run_async


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
        await run_async(self._closing(timeout_s))

    async def _write(self, failed_write: Write, on_written: OnWritten) -> None:
        forms = FormsToWrite(failed_write, on_written)
        while (dead := forms.next()) is not None:
            failure: Exception | None = None
            try:
                producer = await self._started()
                await producer.send(**send_arguments(failed_write, dead))
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
