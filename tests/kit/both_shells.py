"""One test body for the producers of both shells: the threaded one behind the asyncio one's calls.

Every call that may wait runs in another thread and is awaited, so that a body reads as it does for `AsyncProducer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from confluent_kafka import Consumer as ConfluentConsumer

from broker_embedded.cluster import EmbeddedCluster
from ottla import AsyncConsumer, AsyncProducer, Consumer, Producer
from ottla.producer import ProducerTransactionState


class ThreadedDelivery:
    """A `Delivery` that can be awaited."""

    def __init__(self, delivery: Any) -> None:
        self.delivery = delivery

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.to_thread(self.delivery.result, 30).__await__()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.delivery, name)


class ThreadedTransaction:
    def __init__(self, transaction: Any) -> None:
        self.transaction = transaction

    async def send_offsets(self, *arguments: Any) -> None:
        consumer = getattr(arguments[-1], "consumer", arguments[-1])
        await asyncio.to_thread(lambda: self.transaction.send_offsets(*arguments[:-1], consumer))

    async def commit(self) -> None:
        await asyncio.to_thread(self.transaction.commit)

    async def abort(self) -> None:
        await asyncio.to_thread(self.transaction.abort)

    async def __aenter__(self) -> ThreadedTransaction:
        await asyncio.to_thread(self.transaction.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.transaction.__exit__, kind, error, trace)


class ThreadedProducer:
    """A `Producer` with the calls of an `AsyncProducer`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.producer = Producer(*arguments, **named)

    @property
    def _transactions(self) -> Any:
        return self.producer._transactions

    def send(self, topic: str, value: Any = None, **named: Any) -> Any:
        return ThreadedDelivery(self.producer.send(topic, value, **named))

    async def send_many(self, topic: str, records: Any, **named: Any) -> Any:
        return ThreadedDelivery(await asyncio.to_thread(self.producer.send_many, topic, records, **named))

    def transaction(self, timeout_s: float = 60.0) -> ThreadedTransaction:
        return ThreadedTransaction(self.producer.transaction(timeout_s))

    async def start(self) -> None:
        await asyncio.to_thread(self.producer.start)

    async def flush(self, timeout_s: float | None = None) -> None:
        await asyncio.to_thread(self.producer.flush, timeout_s)

    async def close(self, timeout_s: float | None = None) -> None:
        await asyncio.to_thread(self.producer.close, timeout_s)

    async def __aenter__(self) -> ThreadedProducer:
        await asyncio.to_thread(self.producer.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.producer.__exit__, kind, error, trace)


class ThreadedConsumer:
    """A pulled `Consumer` with the calls of an `AsyncConsumer`."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.consumer = Consumer(*arguments, **named)

    async def poll(self, timeout_s: float = 1.0, *, max_records: int = 500) -> Any:
        return await asyncio.to_thread(self.consumer.poll, timeout_s, max_records=max_records)

    async def commit(self) -> None:
        await asyncio.to_thread(self.consumer.commit)

    async def start(self) -> ThreadedConsumer:
        await asyncio.to_thread(self.consumer.start)
        return self

    async def close(self) -> None:
        await asyncio.to_thread(self.consumer.close)

    async def __aenter__(self) -> ThreadedConsumer:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)


CONSUMERS: dict[str, Callable[..., Any]] = {"threads": ThreadedConsumer, "asyncio": AsyncConsumer}
PRODUCERS: dict[str, Callable[..., Any]] = {"threads": ThreadedProducer, "asyncio": AsyncProducer}


def state_of(producer: Any) -> ProducerTransactionState:
    state: ProducerTransactionState = producer._transactions.states.state
    return state


async def committed_values(cluster: EmbeddedCluster, topic: str) -> list[bytes | None]:
    """All values of the topic's partition 0 that a read_committed consumer sees."""

    def read() -> list[bytes | None]:
        reader = ConfluentConsumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": f"{topic}-reader",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        values: list[bytes | None] = []
        try:
            while True:
                message = reader.poll(30)
                assert message is not None, "the partition does not come to an end"
                problem = message.error()
                if problem is None:
                    values.append(message.value())
                elif problem.code() == KafkaError._PARTITION_EOF:
                    return values
        finally:
            reader.close()

    return await asyncio.to_thread(read)
