"""Sends that wait for a schema registry, so that the event loop does not.

The first record of a topic may need an answer of the registry before it can be serialized. `send` is a plain function
and must not wait: the registry is asked in a thread, and the topic's sends are held, in order, until it has answered.
Topics that were named when the producer was made are asked for by `start`, and are never held here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.aio.produce.delivery import AsyncDelivery
from ottla.errors import OttlaError, SerializationError
from ottla.producer.later import DelayedSend
from ottla.records import Headers
from ottla.serdes import Serde, SerdeContext


class Unserialized(NamedTuple):
    """The arguments of a send."""

    delivery: AsyncDelivery
    value: Any
    key: Any
    headers: Headers
    partition: int | None
    timestamp_ms: int
    later: DelayedSend | None = None
    """When it is to be delivered, if not now."""


class Schemas:
    """Cached schemas of topics. `accept` serializes and sends, and may raise for one record."""

    def __init__(
        self,
        unprepared: Callable[[str], Sequence[tuple[Serde[Any], SerdeContext]]],
        accept: Callable[[str, Unserialized], None],
    ) -> None:
        self._unprepared = unprepared
        self._accept = accept
        self._ready: set[str] = set()
        self._held: dict[str, deque[Unserialized]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def is_ready(self, topic: str) -> bool:
        """Return whether a record of this topic can be serialized now, without waiting and in its order."""
        if topic in self._ready:
            return True
        if topic not in self._held and not self._unprepared(topic):
            self._ready.add(topic)
        return topic in self._ready

    def hold(self, topic: str, send: Unserialized) -> None:
        """Keep the send until the registry has answered."""
        self._held.setdefault(topic, deque()).append(send)
        if topic not in self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks[topic] = loop.create_task(self._fetch(topic), name=f"ottla-schema-{topic}")

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    async def prepare(self, topic: str) -> None:
        """Fetch the schemas of a topic. Raises the registry's error."""
        for serde, context in self._unprepared(topic):
            await asyncio.to_thread(serde.prepare, context)

    async def settle(self, timeout_s: float) -> None:
        """Wait until nothing is held, or time is up."""
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=timeout_s)

    async def stop(self, error: Callable[[str], OttlaError]) -> None:
        """End the tasks, and give up what is held."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.give_up(error)

    def give_up(self, error: Callable[[str], OttlaError]) -> None:
        """Settle everything that is held as failed."""
        for topic in list(self._held):
            self._fail(topic, error(topic))

    async def _fetch(self, topic: str) -> None:
        try:
            await self.prepare(topic)
        except Exception as error:
            self._fail(topic, _own(topic, error))
            return
        finally:
            del self._tasks[topic]
        for send in self._held.pop(topic, ()):
            try:
                self._accept(topic, send)
            except Exception as error:
                send.delivery.not_delivered(_own(topic, error), send.partition, None)

    def _fail(self, topic: str, error: OttlaError) -> None:
        for send in self._held.pop(topic, ()):
            send.delivery.not_delivered(error, send.partition, None)


def _own(topic: str, error: Exception) -> OttlaError:
    return error if isinstance(error, OttlaError) else SerializationError(f"{topic}: {type(error).__name__}: {error}")
