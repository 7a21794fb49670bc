"""The services of `exactly_once.py` with Ottla's own pulled consumers, in threads and on asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla import AsyncConsumer, AsyncProducer, Consumer, FencedError, InTransactions, OttlaError, Producer

if TYPE_CHECKING:
    from exactly_once import Work

Reached = Callable[[str, int], None]


def _named(work: Work) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the producer's arguments, the consumer's)."""
    settings = {"session.timeout.ms": 2_000, "heartbeat.interval.ms": 200}
    consumer = {"group": work.group, "commit": InTransactions(), "settings": settings, "drain_s": 2.0}
    return (
        {"settings": {"transactional.id": work.transactional_id}},
        {"bootstrap_servers": work.servers, **consumer},
    )


def in_threads(work: Work, *, reached: Reached, is_over: Callable[[], bool]) -> None:
    """One transaction after the other, until it is over. `reached` is told each point of each transaction."""
    number = 0
    of_producer, of_consumer = _named(work)
    with Producer(work.servers, **of_producer) as producer, Consumer(work.source, **of_consumer) as consumer:
        while not is_over():
            try:
                with producer.transaction(timeout_s=15) as transaction:
                    records = consumer.poll(0.1, max_records=work.batch)
                    transaction.send_offsets(records, consumer)
                    if not records:
                        continue
                    number += 1
                    reached("after the offsets", number)
                    for record in records:
                        producer.send(work.target, record.value, partition=record.partition)
                        if work.crash_at == "after a send":
                            producer.flush()
                        reached("after a send", number)
                    reached("after the records", number)
                reached("after the commit", number)
            except FencedError:
                raise
            except OttlaError:
                continue  # aborted, or not answered: the records come again, or the next transaction asks


def on_asyncio(work: Work, *, reached: Reached, is_over: Callable[[], bool]) -> None:
    """The same on an event loop."""
    asyncio.run(_on_asyncio(work, reached, is_over))


async def _on_asyncio(work: Work, reached: Reached, is_over: Callable[[], bool]) -> None:
    number = 0
    of_producer, of_consumer = _named(work)
    async with (
        AsyncProducer(work.servers, **of_producer) as producer,
        AsyncConsumer(work.source, **of_consumer) as consumer,
    ):
        while not is_over():
            try:
                async with producer.transaction(timeout_s=15) as transaction:
                    records = await consumer.poll(0.1, max_records=work.batch)
                    await transaction.send_offsets(records, consumer)
                    if not records:
                        continue
                    number += 1
                    reached("after the offsets", number)
                    for record in records:
                        producer.send(work.target, record.value, partition=record.partition)
                        if work.crash_at == "after a send":
                            await producer.flush()
                        reached("after a send", number)
                    reached("after the records", number)
                reached("after the commit", number)
            except FencedError:
                raise
            except OttlaError:
                continue
