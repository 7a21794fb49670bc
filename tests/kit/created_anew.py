"""A topic that is deleted and created again under its name."""

from __future__ import annotations

import time

from ottla.testing import Kafka


def create_anew(kafka: Kafka, topic: str, *, partitions: int = 1) -> None:
    """Whatever Kafka it is: the deletion may take its time."""
    kafka.delete_topics([topic])
    deadline = time.monotonic() + 60
    while True:
        try:
            kafka.create_topic(topic, partitions=partitions)
            return
        except Exception:  # the deletion is not done yet
            assert time.monotonic() < deadline
            time.sleep(0.05)
