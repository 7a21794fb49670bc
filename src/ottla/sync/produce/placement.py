"""Where librdkafka's partitioners end and Ottla's begin.

Where librdkafka has an equal partitioner it does the work, in C. The others (`round_robin`, `sticky`, a function) need
the topic's partitions, which a background thread asks for: records sent before the answer are held, in order.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from ottla.config import Settings
from ottla.errors import InputError, OttlaError
from ottla.producer import CustomPartitioner, Partitioner, make_partitioner
from ottla.producer.partitioners import is_known_partitioner
from ottla.sync.produce.delivery import RecordDelivery

# Ottla's name -> librdkafka's name, and whether null keys stick to one partition per batch (else: one per record).
_IN_LIBRDKAFKA: Final = {
    "murmur2": ("murmur2_random", True),
    "murmur2_random": ("murmur2_random", False),
    "consistent": ("consistent", False),
    "consistent_random": ("consistent_random", False),
    "fnv1a": ("fnv1a", False),
    "fnv1a_random": ("fnv1a_random", False),
    "random": ("random", False),
    "explicit": ("murmur2_random", False),
}


class RecordToPlace(NamedTuple):
    """A record that waits for its topic's partitions."""

    delivery: RecordDelivery
    value: bytes | None
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]] | None
    size_bytes: int
    expires_ms: int


def librdkafka_settings(choice: Any, settings: Settings) -> dict[str, Any]:
    """Return librdkafka's settings for a partitioner. With one of Ottla's own they do not matter: partitions are
    explicit."""
    name, is_sticky = _IN_LIBRDKAFKA.get(choice if isinstance(choice, str) else "", ("murmur2_random", True))
    config: dict[str, Any] = {"partitioner": name}
    if "sticky.partitioning.linger.ms" not in settings:
        # At 0 librdkafka gives null keys to the partitioner, which is what all names but `murmur2` promise.
        config["sticky.partitioning.linger.ms"] = max(10, int(2 * settings["linger.ms"])) if is_sticky else 0
    return config


def own_partitioner(choice: str | CustomPartitioner | Partitioner, random: Random) -> Partitioner | None:
    """Return the partitioner that Ottla runs itself, or None where librdkafka's is equal. Refuses an unknown name."""
    if isinstance(choice, str) and is_known_partitioner(choice) and choice in _IN_LIBRDKAFKA:
        return None
    return make_partitioner(choice, random=random)


class PartitionPlacement:
    """Chooses partitions with one of Ottla's own partitioners. Thread-safe; order per topic is kept."""

    def __init__(
        self,
        partitioner: Partitioner,
        *,
        produce: Callable[[RecordDelivery, bytes | None, int, int, list[tuple[str, bytes | None]] | None], None],
        fail: Callable[[RecordDelivery, OttlaError], None],
        sticky_ms: int,
        most_bytes: int,
    ) -> None:
        self._partitioner = partitioner
        self._produce = produce
        self._fail = fail
        self._sticky_ms = sticky_ms
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._partitions: dict[str, tuple[list[int], list[int]]] = {}
        self._held: dict[str, deque[RecordToPlace]] = {}
        self._held_bytes = 0
        self._turn_ends_ms: dict[str, int] = {}

    @property
    def held(self) -> int:
        """Records that wait for partitions."""
        return sum(len(line) for line in self._held.values())

    def place(self, record: RecordToPlace, *, now_ms: int) -> bool:
        """Send a record to its partition, or hold it until the partitions are known. Returns False if the topic is not
        watched yet. Raises BufferError if there is no room, as the client does."""
        topic = record.delivery.topic
        with self._lock:
            known = self._partitions.get(topic)
            line = self._held.get(topic)
            if known is None or line:
                if self._held_bytes + record.size_bytes > self._most_bytes:
                    raise BufferError
                self._held.setdefault(topic, deque()).append(record)
                self._held_bytes += record.size_bytes
                return known is not None
            self._send(record, known, now_ms)
            return True

    def partitions_are(self, topic: str, every: list[int], available: list[int], *, now_ms: int) -> None:
        """Send the held records of a topic, now that its partitions are known."""
        with self._lock:
            self._partitions[topic] = (every, available)
            self._drain(topic, now_ms)

    def drain(self, *, now_ms: int) -> None:
        """Send what can be sent, and give up what has waited for too long."""
        if not self._held:
            return
        with self._lock:
            for topic in list(self._held):
                self._drain(topic, now_ms)

    def take_expired(self, *, now_ms: int, all_of_them: bool = False) -> list[RecordDelivery]:
        """Remove and return the held records that have timed out."""
        expired: list[RecordDelivery] = []
        if not self._held:
            return expired
        with self._lock:
            for topic, line in list(self._held.items()):
                while line and (all_of_them or line[0].expires_ms <= now_ms):
                    record = line.popleft()
                    self._held_bytes -= record.size_bytes
                    expired.append(record.delivery)
                if not line:
                    del self._held[topic]
        return expired

    def take_all_of(self, topic: str) -> list[RecordDelivery]:
        """Remove and return the held records of a topic."""
        with self._lock:
            line = self._held.pop(topic, deque())
            self._held_bytes -= sum(record.size_bytes for record in line)
        return [record.delivery for record in line]

    def _drain(self, topic: str, now_ms: int) -> None:
        known, line = self._partitions.get(topic), self._held.get(topic)
        if known is None or line is None:
            return
        while line:
            try:
                self._send(line[0], known, now_ms)
            except BufferError:
                return  # the client is full: go on when it has room
            except Exception as error:  # a warning that was turned into an error counts as well
                own = error if isinstance(error, OttlaError) else InputError(f"{topic}: {error!r}")
                self._fail(line[0].delivery, own)
            self._held_bytes -= line.popleft().size_bytes
        del self._held[topic]

    def _send(self, record: RecordToPlace, known: tuple[list[int], list[int]], now_ms: int) -> None:
        delivery = record.delivery
        topic = delivery.topic
        if now_ms >= self._turn_ends_ms.get(topic, 0):  # a batch's time is up, as far as one can tell from outside
            self._turn_ends_ms[topic] = now_ms + self._sticky_ms
            self._partitioner.batch_is_full(topic)
        partition = self._partitioner.choose(delivery.key, known[0], known[1], topic=topic)
        self._produce(delivery, record.value, partition, record.timestamp_ms, record.headers)
