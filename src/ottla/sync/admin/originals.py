"""Reads single records at the positions that claims name. A client is made with the first: most redrives need none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from ottla.config import consumer_settings
from ottla.errors import BrokerUnavailable
from ottla.failures.foreign import DeadLetterView
from ottla.failures.redrive import Original
from ottla.sync.client.guarded import Consumer
from ottla.sync.client.headers import HeaderReader

_TIMEOUT_S: Final = 10.0
_GONE: Final = frozenset(
    {
        KafkaError._PARTITION_EOF,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)


class Originals:
    """A reader without a group of its own. Commits nothing."""

    def __init__(self, bootstrap_servers: str, settings: Mapping[str, Any] | None, reader: HeaderReader) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._settings = settings
        self._reader = reader
        self._consumer: Consumer | None = None

    def find(self, view: DeadLetterView) -> Original | None:
        """The record that the dead letter was made of; None when its topic does not have it any more.

        Raises `BrokerUnavailable` when that is not known now.
        """
        if view.topic is None or view.partition is None or view.offset is None:
            return None
        if not 0 <= view.partition < 1 << 31 or not 0 <= view.offset < 1 << 63:
            return None  # Headers are anybody's to write.
        consumer = self._opened()
        consumer.assign([ClientPartition(view.topic, view.partition, view.offset)])
        deadline_s = time.monotonic() + _TIMEOUT_S
        while (left_s := deadline_s - time.monotonic()) > 0:
            message = consumer.poll(left_s)
            if message is None:
                break
            problem = message.error()
            if problem is not None:
                if problem.code() in _GONE:
                    return None
                continue
            if message.offset() != view.offset:
                return None  # Retention or compaction took it: what comes next is another record.
            timestamp_ms = message.timestamp()[1]
            headers = self._reader.headers_of(message)
            return Original(key=message.key(), value=message.value(), headers=headers, timestamp_ms=timestamp_ms)
        raise BrokerUnavailable(f"{view.origin}: no response from {self._bootstrap_servers} within {_TIMEOUT_S:g} s")

    def __enter__(self) -> Originals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def _opened(self) -> Consumer:
        if self._consumer is None:
            effective = consumer_settings(self._bootstrap_servers, group_id="ottla-originals", settings=self._settings)
            config = {**effective.to_confluent(), "enable.partition.eof": True, "log_level": 0}
            self._consumer = Consumer(config)
        return self._consumer
