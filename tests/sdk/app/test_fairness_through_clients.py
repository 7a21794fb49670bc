"""C3 through the real clients: a hot partition's backlog does not keep the others waiting."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from ottla import App, CommitPolicy, ConfigError, FlowLimits, TopicPartition

SHELLS = ["threads", "asyncio", "columns"]

QUANTUM = 32


@pytest.mark.representative("asyncio")
def test_while_two_partitions_have_records_none_gets_more_than_a_quantum(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    for partition in (0, 1):
        kafka.produce(topic, [b"x" * 100] * 6_000, value=bytes, partition=partition)
    app = App(
        kafka_group, bootstrap_servers=kafka.bootstrap_servers, flow=FlowLimits(high_records=400, low_records=200)
    )
    order: list[int] = []
    longest = streak = 0

    @app.handler(topic, max_records_per_turn=QUANTUM)
    def handle(record: Any) -> None:
        # One worker: while it is here, what it does not have is in the buffers.
        nonlocal longest, streak
        session = app.runner.members[kafka_group]._session
        other = session._partitions.get(TopicPartition(topic, 1 - record.partition))
        is_same = bool(order) and order[-1] == record.partition
        other_has_records = other is not None and other.lanes.waiting > 0
        if not is_same or not other_has_records:
            streak = 0
        streak += other_has_records
        longest = max(longest, streak)
        order.append(record.partition)
        if len(order) % 10 == 0:
            time.sleep(0.001)  # the client's thread fetches and decodes meanwhile, also where processors are few

    shell.start(app)
    wait(lambda: len(order) == 12_000, timeout_s=60)
    shell.stop(app)

    assert 0 < longest <= QUANTUM
    turns = sum(before != after for before, after in itertools.pairwise(order))
    assert turns >= 12_000 / 400 / 2, "both were served all along, not one after the other"


@pytest.mark.representative("asyncio")
def test_a_trickle_beside_a_hot_partition_is_handled_at_once(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    kafka.produce(topic, [b"x" * 100] * 20_000, value=bytes, partition=0)
    waited_ms: list[float] = []
    hot = 0
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.5))

    @app.handler(topic)
    def handle(record: Any) -> None:
        nonlocal hot
        if record.partition == 1:
            waited_ms.append(time.time() * 1_000 - record.timestamp_ms)
        else:
            hot += 1
            time.sleep(0.0004)

    shell.start(app)
    wait(lambda: hot > 200)
    for _ in range(20):
        sent = len(waited_ms)
        kafka.produce(topic, [b"cold"], value=bytes, partition=1)
        wait(lambda sent=sent: len(waited_ms) > sent, timeout_s=20)
    hot_then = hot
    shell.stop(app)

    assert hot_then < 20_000, "the hot partition still had a backlog"
    # Elsewhere it is seconds: everything of the hot partition that was prefetched comes first.
    assert sorted(waited_ms)[len(waited_ms) // 2] < 500


def test_a_weight_that_is_none_ends_the_app_and_names_the_partition(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str
) -> None:
    topic = make_topic("orders")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers)
    app.handler(topic, name="handle", weight_of=lambda partition: 0)(lambda value: None)
    shell.start(app)
    error = shell.error_of(app, 30)
    assert isinstance(error, ConfigError)
    assert f"handle: weight_of({topic}-0) must be 1 or more, got 0" in str(error)
