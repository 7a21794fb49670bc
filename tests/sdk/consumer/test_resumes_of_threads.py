"""A resumed partition is fetched at once: librdkafka itself would look for it up to a second later."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

from confluent_kafka import Consumer

from ottla import Producer
from ottla.app.member.client_error_log import ClientErrorLog
from ottla.clock import SystemClock
from ottla.consumer.model.effects import PausePartitions, ResumePartitions, SeekPartition
from ottla.records import TopicPartition
from ottla.sync.consume.client_work import ClientWork
from ottla.telemetry.metrics.member_metrics import MemberMetrics

WOKEN = "Wake-up: fetch start"
"""What librdkafka logs when a broker's thread is to look for partitions to fetch."""


class Reading:
    """A client that has read a part of one partition, and the work in front of it."""

    def __init__(self, bootstrap_servers: str, topic: str, group: str, *, records: int, read: int) -> None:
        with Producer(bootstrap_servers) as producer:
            producer.send_many(topic, ((b"v",) for _ in range(records)))
        self.lines: list[str] = []
        self._offsets: deque[int] = deque()
        logger = logging.Logger(group)
        handler = logging.Handler()
        handler.emit = lambda line: self.lines.append(line.getMessage())  # type: ignore[method-assign]
        logger.addHandler(handler)
        config = {"bootstrap.servers": bootstrap_servers, "group.id": group, "debug": "queue"}
        self.client = Consumer({**config, "auto.offset.reset": "earliest", "enable.auto.commit": False}, logger=logger)
        self.client.subscribe([topic])
        self.place = TopicPartition(topic, 0)
        clock = SystemClock()
        self.work = ClientWork(
            group=group,
            step=lambda event, *, takes_run=False: None,
            error_log=ClientErrorLog(group, clock),
            watch=MemberMetrics(None, group=group, client=group, now_ms=0),
            clock=clock,
            look=lambda event: None,
        )
        self.work.client = self.client
        for offset in range(read):
            assert self.next() == offset

    def next(self) -> int:
        for _ in range(20):
            self._poll(0 if self._offsets else 1)
            if self._offsets:
                return self._offsets.popleft()
        raise AssertionError("no record came")

    def _poll(self, timeout_s: float) -> None:
        message = self.client.poll(timeout_s)
        if message is not None:
            assert message.error() is None
            self._offsets.append(message.offset())

    def woken_by(self, *effects: Any) -> int:
        """Return how often a broker's thread was woken to fetch, while these were carried out."""
        self._poll(0)
        before = self._woken()
        for effect in effects:
            self.work.add(effect)
        self.work.serve()
        self._poll(0)
        return self._woken() - before

    def _woken(self) -> int:
        return sum(WOKEN in line for line in self.lines)


def test_a_resumed_partition_is_fetched_at_once(kafka: Any, kafka_topic: str, kafka_group: str) -> None:
    reading = Reading(kafka.bootstrap_servers, kafka_topic, kafka_group, records=20, read=10)
    try:
        assert reading.woken_by(PausePartitions([reading.place])) == 0
        assert reading.woken_by(ResumePartitions([reading.place])) == 1
        assert [reading.next() for _ in range(10)] == list(range(10, 20)), "none is lost, none comes twice"
        reading.woken_by(PausePartitions([reading.place]))
        assert reading.woken_by(ResumePartitions([reading.place])) == 0, "nothing is known to be there"
    finally:
        reading.client.close()


def test_a_partition_that_was_sought_while_it_was_paused_goes_on_there(
    kafka: Any, kafka_topic: str, kafka_group: str
) -> None:
    reading = Reading(kafka.bootstrap_servers, kafka_topic, kafka_group, records=20, read=10)
    try:
        for effects in (
            [PausePartitions([reading.place]), SeekPartition(reading.place, 3), ResumePartitions([reading.place])],
            [PausePartitions([reading.place]), ResumePartitions([reading.place]), SeekPartition(reading.place, 3)],
        ):
            reading.woken_by(*effects)
            while reading.next() != 3:
                pass  # what it had fetched before
            assert [reading.next() for _ in range(3)] == [4, 5, 6]
    finally:
        reading.client.close()
