"""The task that commits what handlers with ``exactly_once=`` did, with a transactional producer of the member's own.

The twin of `ottla.sync.consume.transactions`. The coordinator of the group checks each commit against the member and
its generation (KIP-447), which are asked for at each commit: on an event loop nobody waits for that.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from ottla.aio.client.driving import run
from ottla.aio.produce.producer import AsyncProducer
from ottla.aio.produce.transaction import Transaction
from ottla.app.exactly_once import TransactionalClient, TransactionOptions
from ottla.errors import OttlaError
from ottla.once.committing import Committing, together
from ottla.once.outputs import Output
from ottla.once.works import Work
from ottla.records import TopicPartition

_CALL_S: Final = 10.0
_END_S: Final = 15.0
_START_S: Final = 60.0
"""The first transactional producer of a cluster waits until its coordinators are made."""

Join = Callable[[Mapping[TopicPartition, int]], Awaitable[Any]]


class Transactions:
    """See the module. `join` gives what names the member, and raises unless partitions are its since these epochs."""

    def __init__(
        self,
        options: TransactionOptions,
        *,
        holds: Callable[[TopicPartition, int], bool],
        join: Join,
        tell: Callable[[str, str, Mapping[str, object]], None],
        end: Callable[[BaseException], None],
    ) -> None:
        self._committing = Committing(holds=holds, tell=tell)
        self._end = end
        self._group = options.group
        self._has_name = options.instance is not None
        self._is_over = asyncio.Event()
        self._results = _Client(options, "results", join=join, is_over=self._is_over)
        self._letters = _Client(options, "letters", join=join, is_over=self._is_over, is_for_letters=True)
        self._queue: asyncio.Queue[Work | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Before the member joins its group: what an earlier process of this name left open is aborted here, and the
        group's offsets are stable then."""
        await self._results.start()
        if self._has_name:
            await self._letters.start()
        self._task = asyncio.create_task(self._work(), name=f"ottla-{self._group}-transactions")

    def submit(self, work: Work) -> None:
        """Have it committed. Returns at once."""
        self._queue.put_nowait(work)

    async def stop(self) -> None:
        """End. What is not committed by now is not."""
        self._is_over.set()
        self._queue.put_nowait(None)
        task, self._task = self._task, None
        if task is not None:
            _, late = await asyncio.wait({task}, timeout=_END_S)
            for one in late:
                one.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while (works := await self._next()) is not None:
                for group in together(works):
                    client = self._letters if group[0].is_alone else self._results
                    await run(self._committing.settle(group, client))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._end(error)
        finally:
            await self._results.close()
            await self._letters.close()

    async def _next(self) -> list[Work] | None:
        """All that waits, as soon as something does; None at the end."""
        works = [await self._queue.get()]
        while not self._queue.empty():
            works.append(self._queue.get_nowait())
        if self._is_over.is_set():
            return None
        return [work for work in works if work is not None]


class _Client(TransactionalClient):
    """The calls of its producer."""

    _producer: AsyncProducer[Any, Any] | None
    _transaction: Transaction | None

    async def start(self) -> AsyncProducer[Any, Any]:
        producer: AsyncProducer[Any, Any] = self._new_producer(AsyncProducer)
        try:
            await producer.start(_START_S)
        except BaseException:
            await producer.close(0)
            raise
        self._producer = producer
        return producer

    async def close(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(OttlaError):
                await producer.close(1.0)

    async def begin(self) -> None:
        producer = self._producer or await self.start()
        self._transaction = await producer.transaction(_CALL_S).__aenter__()

    async def send_all(self, outputs: Sequence[Output]) -> None:
        assert self._producer is not None
        for topic, records in self._by_topic(outputs).items():
            await self._producer.send_many(topic, records)

    async def send(self, output: Output) -> Any:
        return self._sent(output)

    async def offsets(self, positions: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]) -> None:
        assert self._transaction is not None
        await self._transaction.send_offsets(positions, _Reader(lambda: self._join(epochs)))  # type: ignore[arg-type]

    async def commit(self) -> None:
        assert self._transaction is not None
        await self._transaction.commit()

    async def abort(self) -> None:
        producer = self._producer
        if producer is not None and producer.transactions is not None:
            with contextlib.suppress(OttlaError):
                await producer.transactions.run(producer.transactions.steps.abort_if_open(_CALL_S))

    async def renew(self) -> None:
        await self.close()

    async def pause(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        return not self._is_over.is_set()


class _Reader:
    """The member, as a transaction sees it."""

    def __init__(self, member: Callable[[], Awaitable[Any]]) -> None:
        self._member = member

    async def join_transaction(self, records: Any, owner: object) -> Any:
        return records, await self._member()

    def transaction_ended(self, owner: object, *, is_committed: bool) -> None:
        """The works are told by whoever committed."""
