"""The topics an asyncio producer writes to: their partitions, once known, and the records that wait until then.

A send never waits for metadata: it is a plain function. The first record of a topic starts a task that asks for the
partitions and for the limit on record sizes; records are held, in order, until it has the answers, or until their
delivery.timeout.ms is up. The limit comes first because aiokafka does not survive a refused batch: it has counted the
batch's sequence numbers, and the broker refuses everything after the gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from ottla.aio.client.ending import end
from ottla.aio.produce.delivery import Receiver
from ottla.errors import OttlaError
from ottla.records import Header


class HeldRecord(NamedTuple):
    """A record that waits for its topic's partitions, or for room in the buffer."""

    topic: str
    receiver: Receiver
    key: bytes | None
    value: bytes | None
    headers: list[Header]
    partition: int | None
    timestamp_ms: int
    size_bytes: int
    expires_ms: int


class Topic:
    """The cached metadata of one topic."""

    __slots__ = ("available", "finder", "has_limit", "held", "is_stale", "name", "partitions")

    def __init__(self, name: str) -> None:
        self.name = name
        self.partitions: list[int] = []
        self.available: list[int] = []
        self.is_stale = True
        self.has_limit = False
        self.held: deque[HeldRecord] = deque()
        self.finder: asyncio.Task[None] | None = None


class Topics:
    """The topics of one producer."""

    def __init__(
        self,
        client: Any,
        *,
        propagation_ms: int,
        ask_for_limit: Callable[[str], Awaitable[None]],
        on_found: Callable[[Topic], None],
        on_missing: Callable[[Topic], None],
        on_refused: Callable[[Topic], None],
    ) -> None:
        self._client = client
        self._cluster = client.client.cluster
        self._propagation_s = propagation_ms / 1000
        self._ask_for_limit = ask_for_limit
        self._on_found = on_found
        self._on_missing = on_missing
        self._on_refused = on_refused
        self._topics: dict[str, Topic] = {}
        self._cluster.add_listener(self._metadata_changed)

    def use(self, client: Any) -> None:
        """Use the metadata of this client from now on."""
        self._cluster.remove_listener(self._metadata_changed)
        self._client = client
        self._cluster = client.client.cluster
        self._cluster.add_listener(self._metadata_changed)
        self._metadata_changed(None)
        for name in self._topics:
            client.client.add_topic(name)

    def get(self, name: str) -> Topic:
        """Return the topic, with its partitions if they are known; else a task is asking for them."""
        topic = self._topics.get(name)
        if topic is None:
            topic = self._topics[name] = Topic(name)
        if topic.is_stale and topic.has_limit:
            self._read(topic)
        if topic.is_stale and topic.finder is None:
            loop = asyncio.get_running_loop()
            topic.finder = loop.create_task(self._find(topic), name=f"ottla-topic-{name}")
        return topic

    def held(self) -> int:
        """Return records that wait for partitions."""
        return sum(len(topic.held) for topic in self._topics.values())

    def take_expired(self, *, now_ms: int | None) -> list[HeldRecord]:
        """Remove and return the held records that have timed out (all of them if `now_ms` is None)."""
        expired = []
        for topic in self._topics.values():
            while topic.held and (now_ms is None or topic.held[0].expires_ms <= now_ms):
                expired.append(topic.held.popleft())
        return expired

    async def stop(self) -> None:
        self._cluster.remove_listener(self._metadata_changed)
        await end(*(topic.finder for topic in self._topics.values()))

    def _metadata_changed(self, _: Any) -> None:
        for topic in self._topics.values():
            topic.is_stale = True

    def _read(self, topic: Topic) -> bool:
        """Take what the client knows. False when it does not know the topic."""
        partitions = self._cluster.partitions_for_topic(topic.name)
        if partitions:
            topic.partitions = sorted(partitions)
            topic.available = sorted(self._cluster.available_partitions_for_topic(topic.name) or ())
            topic.is_stale = False
        return not topic.is_stale

    async def _find(self, topic: Topic) -> None:
        """Request metadata until the topic exists. It is missing if a broker has responded without it for
        `_propagation_s`."""
        loop = asyncio.get_running_loop()
        try:
            self._client.client.add_topic(topic.name)
            missing_since: float | None = None
            pause_s = 0.05
            while True:
                is_answered = await self._client.client.force_metadata_update()
                if self._cluster.partitions_for_topic(topic.name):
                    break
                if topic.name in self._cluster.unauthorized_topics:
                    self._on_refused(topic)
                    return
                if is_answered:
                    missing_since = loop.time() if missing_since is None else missing_since
                    if loop.time() - missing_since >= self._propagation_s:
                        self._on_missing(topic)
                        return
                await asyncio.sleep(pause_s)
                pause_s = min(1.0, pause_s * 2, max(0.05, self._propagation_s / 4))
            if not topic.has_limit:
                await self._ask_for_limit(topic.name)
                topic.has_limit = True
            self._read(topic)
        finally:
            topic.finder = None
        self._on_found(topic)


def fail_held(records: list[HeldRecord], error_of: Callable[[str], OttlaError]) -> None:
    """Settle held records as failed."""
    for record in records:
        record.receiver.not_delivered(error_of(record.topic), record.partition, record.key)
