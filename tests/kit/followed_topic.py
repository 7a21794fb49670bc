"""How many records a topic has, looked at again and again while a test waits for them.

`kafka.consume_all` starts a client and reads the topic from its beginning: right once, and most of what a test does
where it is asked in a loop. Here one client stays, and reads what is new.
"""

from __future__ import annotations

from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

LOOK_S = 0.02
"""How long a look waits for a record when there is none."""

AT_ONCE = 10_000


class FollowedTopic:
    """What a read_committed reader has seen of a topic that exists. Use it in a `with` block, or close it."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._seen = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "followed-topic",  # never joined, nothing is committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 20,
                "log_level": 0,  # brokers die while a topic is followed
            }
        )
        found = self._consumer.list_topics(topic, timeout=60).topics[topic]
        assert found.error is None, found.error
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in found.partitions])

    def count(self) -> int:
        """The records that were seen so far: all of the topic, after a few looks at the latest."""
        first = self._consumer.poll(LOOK_S)
        if first is not None:
            messages = (first, *self._consumer.consume(AT_ONCE, 0))
            self._seen += sum(message.error() is None for message in messages)
        return self._seen

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
