"""A bridge and its Kafka as processes of a measurement, and what is in the topic."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import servers
from confluent_kafka import Consumer, TopicPartition

LISTENER = "ottla"
WAIT_S = 300.0


@contextlib.contextmanager
def bridging(bootstrap: str, *arguments: str) -> Iterator[servers.Server]:
    command = [sys.executable, "-m", "ottla", "bridge", *arguments, "-b", bootstrap, "--map", "#=m"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if "bridge_listening" in line or "bridge_source_connected" in line:
                break
        else:
            raise SystemExit("the bridge did not start")
        yield servers.Server(LISTENER, bootstrap, process.pid)
    finally:
        process.terminate()
        process.wait(60)


@contextlib.contextmanager
def embedded() -> Iterator[servers.Server]:
    with tempfile.TemporaryDirectory(prefix="ottla-bridge-data-") as data:
        command = [*servers.OTTLA, "--port", "0", "--data-dir", data]
        with servers.started("embedded broker", command) as broker:
            yield broker


def ends_at(bootstrap: str, wanted: int) -> float:
    """Wait until the topic has so many records; returns the time."""
    until_s = time.perf_counter() + WAIT_S
    with _watching(bootstrap) as consumer:
        while (found := end_offsets(consumer)) < wanted:
            if time.perf_counter() >= until_s:
                raise SystemExit(f"only {found:,} of {wanted:,} records came")
            time.sleep(0.05)
    return time.perf_counter()


def total(bootstrap: str) -> int:
    with _watching(bootstrap) as consumer:
        return end_offsets(consumer)


def end_offsets(consumer: Consumer) -> int:
    """Return the sum of the topic's end offsets."""
    return sum(consumer.get_watermark_offsets(TopicPartition("m", n), timeout=10)[1] for n in range(4))


@contextlib.contextmanager
def _watching(bootstrap: str) -> Iterator[Consumer]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench"})
    try:
        yield consumer
    finally:
        consumer.close()
