"""What the scripts beside this one share: a broker, topics, committed offsets, and how a finding is printed.

Every script takes the address of a Kafka as its argument, or starts the embedded broker as a process of its own. It
prints what it saw in one line, with the versions it saw it with; it judges nothing and always exits with 0.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import logging
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


@contextlib.contextmanager
def kafka(*options: str) -> Iterator[str]:
    """Yield the given address, or the address of an embedded broker with these options, which ends with the block."""
    logging.disable(logging.CRITICAL)
    if len(sys.argv) > 1:
        yield sys.argv[1]
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "broker_embedded", "--log-level", "error", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip().removeprefix("ready bootstrap=")
    finally:
        process.terminate()
        process.wait(20)


def new_topic(bootstrap: str, partitions: int = 1, **config: str) -> str:
    """A topic nobody used before; `max_message_bytes="1000"` sets `max.message.bytes`."""
    name = f"hazard-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(10)
    return name


def new_group() -> str:
    return f"hazard-{uuid.uuid4().hex[:8]}"


def send(
    bootstrap: str,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    keyed: bool = False,
    **options: Any,
) -> None:
    """Write the values to one partition; `keyed`: each is its own key."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        key = {"key": value} if keyed else {}
        producer.produce(topic, value, partition=partition, **key, **options)
    producer.flush(10)


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    """The group's committed offset; 0 when there is none."""
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    answer = admin.list_consumer_group_offsets([asked])
    offset: int = answer[group].result(10).topic_partitions[0].offset
    return max(0, offset)


def per_partition(bootstrap: str, topic: str) -> list[int]:
    """How many records each partition of the topic has."""
    client = Consumer({"bootstrap.servers": bootstrap, "group.id": "counting"})
    partitions = client.list_topics(topic, 10).topics[topic].partitions
    counts = []
    for number in sorted(partitions):
        low, high = client.get_watermark_offsets(TopicPartition(topic, number), 10)
        counts.append(high - low)
    client.close()
    return counts


def wait_for(condition: Callable[[], Any], seconds: float = 15.0) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def found(*packages: str, text: str) -> None:
    """Print a finding with the versions of the packages it is about."""
    versions = ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
    print(f"{versions}: {text}", flush=True)
