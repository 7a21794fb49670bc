"""Workers decide on commits, pauses and resumes while the client is inside a rebalance callback.

confluent-kafka lets no other thread into a client that is polling, and callbacks run inside a poll. A worker that
waited for the client with the session's lock in its hands stopped the callback that waited for the lock, for ever.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from ottla import App, CommitPolicy, FlowLimits, Json

BRISK = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200}
"""Members hear of a rebalance with their next heartbeat."""


@pytest.mark.representative("threads-range")
@pytest.mark.parametrize(
    ("shell", "strategy"),
    [("threads", "range"), ("threads", "cooperative-sticky"), ("asyncio", "range")],  # aiokafka has no cooperative one
    indirect=["shell"],
)
def test_a_commit_that_is_due_while_partitions_are_taken_away_stops_nobody(
    kafka: Any, make_topic: Any, kafka_group: str, shell: Any, committed: Any, wait: Any, strategy: str
) -> None:
    topic = make_topic("orders", partitions=2)
    handled: list[int] = []
    lock = threading.Lock()

    def make() -> App:
        app = App(
            kafka_group,
            bootstrap_servers=kafka.bootstrap_servers,
            commit=CommitPolicy(every_s=0.02),
            flow=FlowLimits(high_records=4, low_records=1, hold_ms=0),
            settings=({"partition.assignment.strategy": strategy} if shell.name == "threads" else {}) | BRISK,
            drain_s=5,
        )

        @app.handler(topic, value=Json(), concurrency=2, max_records_per_turn=1, name="handle")
        def handle(value: int) -> None:
            # The work itself. It takes longer than a commit interval, so when partitions are taken away the run that
            # is in flight ends inside the callback, and then a commit is due.
            time.sleep(0.1)
            with lock:
                handled.append(value)

        return app

    for partition in range(2):
        kafka.produce(topic, range(partition, 60, 2), partition=partition, value=Json())
    first = shell.start(make())
    wait(lambda: len(handled) > 4)
    second = shell.start(make())
    wait(lambda: sum(max(0, committed(kafka_group, topic, p)) for p in range(2)) == 60, timeout_s=30)
    shell.stop(first)
    shell.stop(second)

    assert sorted(handled) == list(range(60)), "a graceful rebalance repeats nothing"


@pytest.mark.representative("threads")
def test_a_partition_that_was_full_when_it_was_taken_away_is_read_again(
    kafka: Any, make_topic: Any, kafka_group: str, shell: Any, wait: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    handled: set[int] = set()
    may_go_on = threading.Event()

    def make() -> App:
        app = App(
            kafka_group,
            bootstrap_servers=kafka.bootstrap_servers,
            flow=FlowLimits(high_records=4, low_records=1, hold_ms=0),
            drain_s=0.1,
            settings=BRISK,
        )

        @app.handler(topic, value=Json(), concurrency=2, max_records_per_turn=1)
        def handle(value: int) -> None:
            may_go_on.wait(60)
            handled.add(value)

        return app

    for partition in range(2):
        kafka.produce(topic, range(partition, 60, 2), partition=partition, value=Json())
    first = shell.start(make())
    wait(lambda: sum(p.buffered_records > 4 for p in first.health().partitions) == 2)
    second = shell.start(make())
    wait(lambda: len(second.health().partitions) == 1, timeout_s=30)
    may_go_on.set()
    shell.stop(second)  # its partition returns to the first
    wait(lambda: len(handled) == 60, timeout_s=30)
