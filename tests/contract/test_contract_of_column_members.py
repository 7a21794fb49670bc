"""Members of Ottla's own client in groups of the broker: both protocols, static members, and members of other clients.

What they are assigned, that nothing is lost or repeated when partitions are handed over, and what is committed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pytest
from apache_kafka import wanted
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ClientPartition

from ottla import App, CommitPolicy, Json
from ottla.testing.waiting import wait_until

pytestmark = pytest.mark.client_contract

_numbers = count(1)
PARTITIONS = 4
KINDS: dict[str, dict[str, Any]] = {
    "range": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 300},
    "cooperative-sticky": {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 300},
    "next generation": {"group.protocol": "consumer"},
}


class Group:
    """Members of one group, each in a thread of its own, and what they have handled."""

    def __init__(self, servers: str, topic: str, kind: str) -> None:
        self.servers = servers
        self.topic = topic
        self.id = f"columns-{kind.replace(' ', '-')}-{next(_numbers)}-{time.time_ns()}"
        self.kind = kind
        self.handled: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._running: dict[App, threading.Thread] = {}
        self._sent = 0

    def join(self, *, is_columnar: bool = True, **settings: Any) -> App:
        app = App(
            self.id,
            bootstrap_servers=self.servers,
            commit=CommitPolicy(every_s=0.1),
            drain_s=5,
            settings=KINDS[self.kind] | settings,
        )
        if is_columnar:

            @app.handler(self.topic, value=Json(int), columns=True, name="handle")
            def handle(batch: pa.RecordBatch) -> None:
                self._count(batch.column("value").to_pylist())
        else:

            @app.handler(self.topic, value=Json(int), name="handle")
            def handle_one(value: int) -> None:
                self._count([value])

        self._running[app] = threading.Thread(target=lambda: app.run(handle_signals=False), daemon=True)
        self._running[app].start()
        return app

    def leave(self, app: App) -> None:
        app.stop()
        thread = self._running.pop(app)
        thread.join(30)
        assert not thread.is_alive()

    def leave_all(self) -> None:
        for app in list(self._running):
            self.leave(app)

    def send(self, number: int) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        for value in range(self._sent, self._sent + number):
            producer.produce(self.topic, b"%d" % value, partition=value % PARTITIONS)
        producer.flush(30)
        self._sent += number

    def share(self, app: App, partitions: int) -> None:
        """Wait until the member has so many partitions."""
        wait_until(lambda: app._runner is not None and len(app.health().partitions) == partitions, timeout_s=60)

    def is_through(self) -> None:
        """Wait until all that was sent is handled, and committed."""
        wait_until(lambda: len(self.handled) == self._sent, timeout_s=60)
        wait_until(lambda: sum(self.committed()) == self._sent, timeout_s=30)

    def committed(self) -> list[int]:
        client = Consumer({"bootstrap.servers": self.servers, "group.id": self.id})
        try:
            asked = [ClientPartition(self.topic, number) for number in range(PARTITIONS)]
            return [max(0, found.offset) for found in client.committed(asked, timeout=10)]
        finally:
            client.close()

    def _count(self, values: list[int]) -> None:
        with self._lock:
            self.handled.update(values)


@pytest.fixture
def make_group(kafka: Any, bootstrap_servers: str) -> Iterator[Callable[[str], Group]]:
    groups: list[Group] = []

    def make(kind: str) -> Group:
        if "group.protocol" in KINDS[kind] and (wanted() or "4") < "4":
            pytest.skip(f"Kafka {wanted()} does not serve the next generation protocol (KIP-848)")
        groups.append(Group(bootstrap_servers, kafka.create_topic(partitions=PARTITIONS), kind))
        return groups[-1]

    yield make
    for group in groups:
        group.leave_all()


@pytest.mark.representative("range")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(180)
def test_members_share_partitions_with_those_of_another_client_and_hand_over_without_loss(
    make_group: Callable[[str], Group], kind: str
) -> None:
    group = make_group(kind)
    first = group.join()
    group.share(first, 4)
    group.send(400)
    group.is_through()
    second = group.join(is_columnar=False)
    group.share(second, 2)
    group.share(first, 2)
    group.send(400)
    group.is_through()
    group.leave(first)
    group.share(second, 4)
    third = group.join()
    group.share(third, 2)
    group.send(400)
    group.is_through()
    group.leave(second)
    group.share(third, 4)

    assert set(group.handled.values()) == {1}, "what is handed over gracefully is not repeated"


@pytest.mark.representative("range")
@pytest.mark.parametrize("kind", ["range", "next generation"])
@pytest.mark.timeout(180)
def test_a_static_member_that_comes_back_has_its_partitions_and_the_others_keep_theirs(
    make_group: Callable[[str], Group], kind: str
) -> None:
    group = make_group(kind)
    stays = group.join(**{"group.instance.id": "till-1"})
    group.share(stays, 4)
    leaves = group.join(**{"group.instance.id": "till-2"})
    group.share(leaves, 2)
    group.share(stays, 2)
    before = {each.topic_partition for each in stays.health().partitions}
    group.leave(leaves)
    back = group.join(**{"group.instance.id": "till-2"})
    group.share(back, 2)
    group.send(200)
    group.is_through()

    assert {each.topic_partition for each in stays.health().partitions} == before
    assert set(group.handled.values()) == {1}
