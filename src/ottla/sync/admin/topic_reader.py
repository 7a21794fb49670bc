"""Read what is in a topic, without a group: for tests, the command line and anything else that looks and leaves.

No offsets are committed and no group is joined, so reading disturbs no service. Partitions are read side by side;
within a partition records come in offset order, between partitions in the order they arrive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, cast

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as ClientPartition

from ottla.errors import BrokerUnavailable, LifecycleError, UnknownTopic
from ottla.producer.encoded import check_topic
from ottla.records import Record, TimestampType
from ottla.serdes import SerdeContext, as_serde
from ottla.sync.client.guarded import Consumer
from ottla.sync.client.headers import HeaderReader
from ottla.tokens.confluent import with_tokens
from ottla.wire_client.net.reachability import addresses_of, require_reachable

_TIMESTAMP_TYPES: Final = {
    TIMESTAMP_CREATE_TIME: TimestampType.CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME: TimestampType.LOG_APPEND_TIME,
}
_AT_MOST: Final = 10_000
_AT_MOST_KEPT: Final = 500
"""Records that are in memory at once where they are streamed."""

_WAIT_S: Final = 0.1


class TopicReader:
    """All partitions of one topic, from the earliest record (or from now on, with `from_latest`)."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        from_latest: bool = False,
        settings: Mapping[str, object] | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        check_topic(topic)
        self.topic = topic
        self._key, self._key_ctx = as_serde(key), SerdeContext(topic, "key")
        self._value, self._value_ctx = as_serde(value), SerdeContext(topic, "value")
        self._waiting: list[Record[Any]] = []
        addresses_of(bootstrap_servers)
        self._headers = HeaderReader({**(settings or {}), "bootstrap.servers": bootstrap_servers})
        if settings:  # a login is what goes wrong, and librdkafka tries a wrong one for ever
            require_reachable(bootstrap_servers, settings, timeout_s=timeout_s)
        self._consumer: Consumer | None = Consumer(
            {
                "log_level": 0,  # its errors are raised; on stderr they would come once per attempt
                "bootstrap.servers": bootstrap_servers,
                "group.id": "ottla-topic-reader",  # required by the client; never joined, nothing is committed under it
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                # The end of a partition is known from an empty answer: the broker should not hold it back for 500 ms.
                "fetch.wait.max.ms": 10,
                **with_tokens(settings or {}),
            }
        )
        try:
            partitions = self._partitions(bootstrap_servers, timeout_s)
        except BaseException:
            self.close()
            raise
        self.partitions = frozenset(partitions)
        self._unfinished = set(partitions)
        start = OFFSET_END if from_latest else OFFSET_BEGINNING
        self._consumer.assign([ClientPartition(topic, partition, start) for partition in partitions])

    def take(self, count: int, *, timeout_s: float = 10.0) -> list[Record[Any]]:
        """The next `count` records. Raises TimeoutError, saying what did arrive, when they do not come in time."""
        deadline = time.monotonic() + timeout_s
        while len(self._waiting) < count:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                arrived = ", ".join(f"{record.position} {record.value!r}"[:100] for record in self._waiting[:5])
                raise TimeoutError(
                    f"{self.topic}: wanted {count} records, {len(self._waiting)} arrived in {timeout_s} s: [{arrived}]"
                )
            self._poll(min(remaining_s, _WAIT_S))
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def read_to_end(self, *, timeout_s: float = 10.0) -> list[Record[Any]]:
        """Every record up to the end of each partition, as it is when it is reached."""
        deadline = time.monotonic() + timeout_s
        while self._unfinished:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError(
                    f"{self.topic}: the end of partition(s) {sorted(self._unfinished)} not reached in {timeout_s} s; "
                    f"{len(self._waiting)} records were read"
                )
            self._poll(min(remaining_s, _WAIT_S))
        taken, self._waiting = self._waiting, []
        return taken

    def stream_to_end(self, *, timeout_s: float = 10.0) -> Iterator[Record[Any]]:
        """As `read_to_end`, but a record at a time: nothing that was read is kept. TimeoutError when nothing comes for
        `timeout_s` seconds."""
        deadline = time.monotonic() + timeout_s
        while self._unfinished or self._waiting:
            if self._waiting:
                yield from self._waiting
                self._waiting.clear()
                deadline = time.monotonic() + timeout_s
                continue
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"{self.topic}: no record arrived for {timeout_s} s, and the end of partition(s) "
                    f"{sorted(self._unfinished)} is not reached"
                )
            self._poll(_WAIT_S, at_most=_AT_MOST_KEPT)

    def record_at(self, partition: int, offset: int, *, timeout_s: float = 10.0) -> Record[Any] | None:
        """The record at one offset; None if there is none. Reads nothing else afterwards."""
        if self._consumer is None:
            raise LifecycleError(f"the reader of {self.topic} is closed")
        wanted = ClientPartition(self.topic, partition, offset)
        low, end = self._consumer.get_watermark_offsets(wanted, timeout=timeout_s)
        if not low <= offset < end:
            return None
        self._waiting.clear()
        self._consumer.assign([wanted])
        self._unfinished = {partition}
        deadline = time.monotonic() + timeout_s
        while self._unfinished and not self._waiting:
            if time.monotonic() >= deadline:
                raise TimeoutError(f"{self.topic}-{partition}: offset {offset} was not read in {timeout_s} s")
            self._poll(_WAIT_S, at_most=1)
        first = self._waiting[0] if self._waiting else None
        return first if first is not None and first.offset == offset else None

    def close(self) -> None:
        """Free the connection. Safe to call twice."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
            self._headers.close()

    def _partitions(self, bootstrap_servers: str, timeout_s: float) -> Sequence[int]:
        assert self._consumer is not None
        try:
            found = self._consumer.list_topics(self.topic, timeout=timeout_s).topics[self.topic]
        except KafkaException as error:
            raise BrokerUnavailable(
                f"no Kafka broker answered at {bootstrap_servers}: {error.args[0].str()}"
            ) from error
        if found.error is not None:
            raise UnknownTopic(f"{self.topic}: {found.error.str()}")
        return sorted(found.partitions)

    def _poll(self, timeout_s: float, *, at_most: int = _AT_MOST) -> None:
        if self._consumer is None:
            raise LifecycleError(f"the reader of {self.topic} is closed")
        first = self._consumer.poll(timeout_s)
        if first is None:
            return
        for message in (first, *self._consumer.consume(at_most, 0)):
            error = message.error()
            if error is None:
                # An end already passed was the end of an earlier moment: this partition has grown since.
                self._waiting.append(self._record(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._unfinished.discard(message.partition())
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)

    def _record(self, message: Message) -> Record[Any]:
        kind, timestamp_ms = message.timestamp()
        raw_key, raw_value = message.key(), message.value()
        return Record(
            self.topic,
            cast(int, message.partition()),
            cast(int, message.offset()),
            timestamp_ms,
            self._key.deserialize(raw_key, self._key_ctx),
            self._value.deserialize(raw_value, self._value_ctx),
            self._headers.headers_of(message),
            raw_key,
            raw_value,
            _TIMESTAMP_TYPES.get(kind, TimestampType.NOT_AVAILABLE),
        )

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
