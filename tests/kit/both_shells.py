"""One test body for the producers of both shells: the threaded one behind the asyncio one's calls.

Every call that may wait runs in another thread and is awaited, so that a body reads as it does for `AsyncProducer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any

from ottla import AsyncProducer, Producer
from ottla.producer import TransactionState


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
        await asyncio.to_thread(self.transaction.send_offsets, *arguments[:-1], consumer)

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
    def transactions(self) -> Any:
        return self.producer.transactions

    def send(self, topic: str, value: Any = None, **named: Any) -> Any:
        return ThreadedDelivery(self.producer.send(topic, value, **named))

    async def send_many(self, topic: str, records: Any) -> Any:
        return ThreadedDelivery(await asyncio.to_thread(self.producer.send_many, topic, records))

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


PRODUCERS: dict[str, Callable[..., Any]] = {"threads": ThreadedProducer, "asyncio": AsyncProducer}


def state_of(producer: Any) -> TransactionState:
    state: TransactionState = producer.transactions.states.state
    return state
