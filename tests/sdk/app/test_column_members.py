"""Members of our own in groups with others, and what they survive: rebalances, brokers that die, kills, fencing."""

from __future__ import annotations

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from killed_services import KilledService

from broker_embedded.cluster import EmbeddedCluster
from ottla import App, CommitPolicy, FencedError, Json
from ottla.browse.topic_writer import write_all
from ottla.testing.topics import create_topic
from ottla.testing.waiting import wait_until

SHELLS = ["columns"]
BRISK = {"heartbeat.interval.ms": 200}


class Seen:
    """Which values were handled, by which member, in which order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.values: list[int] = []
        self.by: dict[str, int] = defaultdict(int)

    def add(self, name: str, values: list[int]) -> None:
        with self._lock:
            self.values.extend(values)
            self.by[name] += len(values)

    def has(self, count: int) -> bool:
        with self._lock:
            return set(range(count)) <= set(self.values)


def of_columns(servers: str, group: str, topic: str, seen: Seen, name: str, **settings: Any) -> App:
    app = App(group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.05), drain_s=5, settings=settings)

    @app.handler(topic, value=Json(int), columns=True, max_batch=50, name="handle")
    def handle(batch: pa.RecordBatch) -> None:
        seen.add(name, batch.column("value").to_pylist())

    return app


def of_records(servers: str, group: str, topic: str, seen: Seen, name: str, **settings: Any) -> App:
    app = App(group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.05), drain_s=5, settings=settings)

    @app.handler(topic, value=Json(int), name="handle")
    def handle(value: int) -> None:
        seen.add(name, [value])

    return app


def sent(servers: str, topic: str, numbers: range, *, partitions: int) -> None:
    for partition in range(partitions):
        own = [number for number in numbers if number % partitions == partition]
        write_all(servers, topic, own, value=Json(), partition=partition)


@pytest.mark.representative("range")
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range", "next generation"])
def test_members_of_both_kinds_share_a_group_and_hand_over_without_loss(
    kafka: Any, make_topic: Any, kafka_group: str, run: Any, committed: Any, strategy: str
) -> None:
    topic, seen = make_topic("orders", partitions=6), Seen()
    is_new = strategy == "next generation"
    settings = {"group.protocol": "consumer"} if is_new else {"partition.assignment.strategy": strategy, **BRISK}
    servers = kafka.bootstrap_servers

    def stand_at(count: int) -> None:
        wait_until(lambda: seen.has(count), timeout_s=60)
        wait_until(lambda: sum(max(0, committed(kafka_group, topic, p)) for p in range(6)) == count, timeout_s=60)

    def joined(app: App, partitions: int) -> None:
        wait_until(lambda: app._runner is not None and len(app.health().partitions) == partitions, timeout_s=60)

    first = of_columns(servers, kafka_group, topic, seen, "columns-1", **settings)
    stop_first = run(first)
    sent(servers, topic, range(600), partitions=6)
    stand_at(600)
    second = of_records(servers, kafka_group, topic, seen, "records", **settings)
    run(second)
    joined(second, 3)
    sent(servers, topic, range(600, 1_200), partitions=6)
    third = of_columns(servers, kafka_group, topic, seen, "columns-2", **settings)
    run(third)
    joined(third, 2)
    stand_at(1_200)
    stop_first()
    joined(second, 3)
    joined(third, 3)
    sent(servers, topic, range(1_200, 1_800), partitions=6)
    stand_at(1_800)

    assert seen.by.keys() == {"columns-1", "records", "columns-2"}
    assert len(seen.values) == 1_800, "a graceful rebalance repeats nothing"


def test_a_storm_of_members_that_come_and_go_loses_nothing(
    kafka: Any, make_topic: Any, kafka_group: str, run: Any
) -> None:
    topic, seen = make_topic("orders", partitions=4), Seen()
    servers = kafka.bootstrap_servers
    run(of_columns(servers, kafka_group, topic, seen, "stays", **BRISK))
    count = 0
    for turn in range(6):
        make = of_columns if turn % 2 else of_records
        stop = run(make(servers, kafka_group, topic, seen, f"guest-{turn}", **BRISK))
        sent(servers, topic, range(count, count + 200), partitions=4)
        count += 200
        stop()
    wait_until(lambda: seen.has(count), timeout_s=60)


def test_brokers_that_die_one_after_the_other_cost_no_record(kafka_group: str, run: Any) -> None:
    with EmbeddedCluster(brokers=3, config={"offsets.topic.num.partitions": 1}) as cluster:
        servers = cluster.bootstrap_servers
        create_topic(servers, "orders", partitions=3, replication_factor=3, config={"min.insync.replicas": 1})
        seen = Seen()
        app = of_columns(servers, kafka_group, "orders", seen, "columns", **BRISK, **{"session.timeout.ms": 10_000})
        stop = run(app)
        sent(servers, "orders", range(300), partitions=3)
        wait_until(lambda: seen.has(300), timeout_s=60)
        count = 300
        for broker in (1, 2, 3):
            cluster.kill(broker)
            for partition in range(3):
                cluster.wait_for_leader("orders", partition)
            sent(servers, "orders", range(count, count + 300), partitions=3)
            count += 300
            cluster.start_broker(broker)
            wait_until(lambda wanted=count: seen.has(wanted), timeout_s=90)  # type: ignore[misc]
            for partition in range(3):
                cluster.wait_for_isr("orders", partition)
        stop()


def test_a_member_whose_name_was_taken_ends_and_says_so(
    kafka: Any, kafka_topic: str, kafka_group: str, shell: Any
) -> None:
    seen = Seen()
    apps = [
        of_columns(
            kafka.bootstrap_servers,
            kafka_group,
            kafka_topic,
            seen,
            str(number),
            **BRISK,
            **{"group.instance.id": "till-1"},
        )
        for number in range(2)
    ]
    shell.start(apps[0])
    wait_until(lambda: apps[0]._runner is not None and bool(apps[0].health().partitions), timeout_s=60)
    shell.start(apps[1])

    error = shell.error_of(apps[0], timeout_s=60)
    assert isinstance(error, FencedError)
    assert "another member runs with the same group.instance.id" in str(error)
    wait_until(lambda: bool(apps[1].health().partitions), timeout_s=60)


SERVICE = """
import os, sys
import pyarrow as pa
from ottla import App, CommitPolicy, Json

servers, group, topic, journal = sys.argv[1:]
out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
app = App(
    group, bootstrap_servers=servers, commit=CommitPolicy(every_s=0.05),
    settings={"session.timeout.ms": 6000, "heartbeat.interval.ms": 500},
)

@app.handler(topic, value=Json(int), columns=True, max_batch=40)
def handle(batch: pa.RecordBatch) -> None:
    os.write(out, "".join(f"{value}\\n" for value in batch.column("value").to_pylist()).encode())

app.run()
"""


@pytest.mark.complete
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_lose_nothing_and_keep_the_order_of_each_partition(
    kafka: Any, make_topic: Any, kafka_group: str, tmp_path: Path
) -> None:
    topic = make_topic("orders", partitions=2)
    servers = kafka.bootstrap_servers
    place = {"bootstrap_servers": servers, "group": kafka_group, "folder": tmp_path}
    with KilledService(SERVICE, servers, kafka_group, topic, **place) as service:

        def handled() -> list[int]:
            return [int(line) for line in service.lines()]

        count = 0
        for turn in range(4):
            if turn:
                service.kill()
                service.start()
            sent(servers, topic, range(count, count + 1_000), partitions=2)
            count += 1_000
            # The last one is left to finish; the others die amid their work, wherever they are.
            wanted = count if turn == 3 else count - 600
            wait_until(lambda wanted=wanted: len(set(handled())) >= wanted, timeout_s=60)  # type: ignore[misc]

    values = handled()
    assert set(values) == set(range(count))
    for partition in range(2):
        first: dict[int, None] = dict.fromkeys(value for value in values if value % 2 == partition)
        assert list(first) == sorted(first)
