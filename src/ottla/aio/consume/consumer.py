"""`AsyncConsumer`: records by iterating or polling, with everything that handlers have underneath.

    async with AsyncConsumer("orders", group="billing", bootstrap_servers="localhost:9092") as consumer:
        async for record in consumer:
            await charge(record.value)       # done when the next record is asked for

    for record in await consumer.poll(timeout_s=1.0, max_records=100):
        await charge(record.value)
        consumer.ack(record)

The twin of `ottla.sync.consume.consumer`. Polling the client, heartbeats and commits run in their own tasks: the time
between two calls does not matter to the group. Records come fairly from all partitions. With a `dead_letter_topic`,
what cannot be decoded goes there and is not seen here; without one it is given out as a record whose value is a
`Malformed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self, Unpack, overload

from ottla.aio.client.declared_topics import ensure_topics
from ottla.aio.client.transactional_groups import TransactionalMember
from ottla.aio.consume.dead_letters import ProducerSink
from ottla.aio.consume.group_member import GroupMember
from ottla.app.handler.handler_options import RENAMED_OPTIONS, ConsumerOptions, Value
from ottla.app.pull.pull_consumer import PullConsumer
from ottla.config.arguments import explained
from ottla.consumer.model.run import Run
from ottla.consumer.pulled.transactional_reads import refuse_to_settle
from ottla.quantities import Span
from ottla.records import Malformed, Record, TopicPartition
from ottla.serdes.base import SerdeOf
from ottla.stepping import run_async
from ottla.typevars import Builtin, V_co


class AsyncConsumer(PullConsumer[V_co]):
    """A member of a group. Starts with the first record asked for, or as a context manager. One task uses it.

    `token` is a function, sync or async, that returns an `ottla.tokens.Token` for SASL OAUTHBEARER.

    For type checkers it is generic in what `record.value` is: `AsyncConsumer[Order]`, and without a `dead_letter_topic`
    `AsyncConsumer[Order | Malformed]`. A tombstone is None in every serde: where there are some, say
    `value=Json[Order | None](Order)`.
    """

    _member_type = GroupMember
    _sink_type = ProducerSink
    _ensure_topics = staticmethod(ensure_topics)
    _left_behind: ClassVar[str] = "event loop and connections"
    _member: GroupMember

    @overload
    def __init__(
        self: AsyncConsumer[bytes],
        *topics: str,
        value: None = None,
        dead_letter_topic: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Value],
        *topics: str,
        value: SerdeOf[Value],
        dead_letter_topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Value | Malformed],
        *topics: str,
        value: SerdeOf[Value],
        dead_letter_topic: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Builtin],
        *topics: str,
        value: type[Builtin],
        dead_letter_topic: str,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: AsyncConsumer[Builtin | Malformed],
        *topics: str,
        value: type[Builtin],
        dead_letter_topic: None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...

    @explained("AsyncConsumer", renamed=RENAMED_OPTIONS)
    def __init__(self, *topics: str, **options: Any) -> None:
        super().__init__(*topics, **options)

    __init__.__wrapped__ = PullConsumer.__init__  # type: ignore[attr-defined]  # whose arguments `help` shows

    async def __aiter__(self) -> AsyncIterator[Record[V_co]]:
        """Yield records without end. A record is done when the next one is asked for; leaving the loop at a record
        leaves it open (it will be delivered again), unless you `ack` it first."""
        while not self._is_closed:
            for record in self._given(await run_async(self._taking())):
                yield record

    async def poll(self, timeout_s: Span = 1.0, *, max_records: int | None = None) -> list[Record[V_co]]:
        return await run_async(self._polling(timeout_s, max_records))

    async def commit(self) -> None:
        refuse_to_settle(self._reads)
        await self._member.commit_now()

    async def start(self) -> Self:
        await run_async(self._starting())
        return self

    async def close(self) -> None:
        await run_async(self._closing())

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _join_transaction(
        self, records: Iterable[Record[Any]], owner: object
    ) -> tuple[dict[TopicPartition, int], TransactionalMember]:
        offsets, epochs = self._offsets_joining(records, owner)
        return offsets, await self._member.membership(epochs)

    async def seek_to_time(self, topic_partition: TopicPartition, timestamp_ms: int) -> int:
        return await self._member.seek_to_time(topic_partition, timestamp_ms)

    async def _decode(self, run: Run) -> Any:
        # A loop body that never waits must not keep the heartbeats from the event loop.
        await asyncio.sleep(0)
        if self._decoder.would_block(run):
            return await asyncio.to_thread(self._decoder.decode, run)
        return await self._decoder.decode_on_loop(run, partial(asyncio.sleep, 0))
