"""A schedule on an embedded cluster whose clock the test moves: schedulers, senders, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from broker_embedded.cluster import EmbeddedCluster
from broker_embedded.cluster.time import VirtualClock
from ottla import Producer
from ottla.records import Record
from ottla.schedule.wheel import WHEEL
from ottla.sync.serve.scheduler import Scheduler
from ottla.testing import Kafka, wait_until

ALL = range(WHEEL.partitions)


@dataclass
class Setup:
    cluster: EmbeddedCluster
    kafka: Kafka
    clock: Any

    def scheduler(self, **options: Any) -> Scheduler:
        made = Scheduler(self.cluster.bootstrap_servers, assigned=ALL, clock=self.clock, **options)
        made.start()
        return made

    def producer(self, **options: Any) -> Producer[Any, Any]:
        made: Producer[Any, Any] = Producer(self.cluster.bootstrap_servers, **options)
        made._clock = self.clock  # a sender whose clock is the cluster's
        return made

    def create(self, topic: str) -> None:
        self.cluster.create_topic(topic, config={"retention.ms": -1})

    def values(self, topic: str) -> list[Any]:
        return [record.value for record in self.kafka.consume_all(topic)]


@contextmanager
def virtual_setup() -> Iterator[Setup]:
    """A cluster whose time the test moves."""
    with EmbeddedCluster(clock=VirtualClock()) as cluster:
        yield Setup(cluster, Kafka(cluster.bootstrap_servers, kind="embedded"), _Clock(cluster.clock))


class _Clock:
    """The cluster's clock as the SDK asks for one."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock

    def now_ms(self) -> int:
        now: int = self.clock.now_ms()
        return now

    def monotonic_ms(self) -> int:
        return self.now_ms()

    def advance(self, **amount: int) -> None:
        self.clock.advance(**amount)


def settle(scheduler: Scheduler, topic: str, count: int, setup: Setup) -> list[Record[Any]]:
    """Tick until so many are delivered: the brokers' time is heard again once a second at the most."""

    def delivered() -> bool:
        scheduler.tick()
        return len(setup.kafka.consume_all(topic)) >= count

    wait_until(delivered, 60, what=f"{count} messages")
    return setup.kafka.consume_all(topic)
