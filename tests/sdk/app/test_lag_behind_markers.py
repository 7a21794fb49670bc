"""What stands behind the last record of a log is no lag: the marker of a transaction, an aborted record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer as ClientProducer

from ottla import App, AtMostOnce, CommitPolicy, Json

SHELLS = ["threads", "asyncio", "columns"]


def in_transaction(kafka: Any, topic: str, values: list[bytes], *, commits: bool = True) -> None:
    producer = ClientProducer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": kafka.fresh_name("id"), "log_level": 0}
    )
    producer.init_transactions(10)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(10)
    if commits:
        producer.commit_transaction(10)
    else:
        producer.abort_transaction(10)


def counting(kafka: Any, group: str, topic: str, **options: Any) -> tuple[App, list[int]]:
    seen: list[int] = []
    options = {"commit": CommitPolicy(every_s=0.05), **options}
    exactly_once = options.pop("exactly_once", None)
    app = App(group, bootstrap_servers=kafka.bootstrap_servers, unready_after_s=2.0, **options)

    @app.handler(topic, value=Json(), exactly_once=exactly_once)
    def handle(value: int) -> None:
        seen.append(value)

    return app, seen


@pytest.mark.representative("columns-at least once")
@pytest.mark.parametrize("options", [{}, {"commit": AtMostOnce()}], ids=["at least once", "at most once"])
def test_the_position_goes_on_over_the_marker_of_a_transaction(
    shell: Any,
    options: dict[str, Any],
    kafka: Any,
    kafka_topic: str,
    kafka_group: str,
    wait: Callable[..., None],
    committed: Any,
) -> None:
    in_transaction(kafka, kafka_topic, [b"1", b"2"])
    app, seen = counting(kafka, kafka_group, kafka_topic, **options)
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 3, timeout_s=20)
    in_transaction(kafka, kafka_topic, [b"8", b"9"], commits=False)  # offsets 3 and 4, and a marker
    wait(lambda: committed(kafka_group, kafka_topic) == 6, timeout_s=20)
    in_transaction(kafka, kafka_topic, [b"3"])
    wait(lambda: committed(kafka_group, kafka_topic) == 8, timeout_s=20)
    assert app.health().is_ready
    shell.stop(app)
    assert seen == [1, 2, 3]


@pytest.mark.representative("threads")
def test_a_group_that_stood_before_a_marker_goes_on_when_it_is_started_again(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None], committed: Any
) -> None:
    in_transaction(kafka, kafka_topic, [b"1"])
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": kafka_group, "log_level": 0})
    client.commit(offsets=[TopicPartition(kafka_topic, 0, 1)], asynchronous=False)
    client.close()
    app, seen = counting(kafka, kafka_group, kafka_topic)
    shell.start(app)
    wait(lambda: committed(kafka_group, kafka_topic) == 2, timeout_s=20)
    kafka.produce(kafka_topic, [2], value=Json(), partition=0)
    wait(lambda: committed(kafka_group, kafka_topic) == 3, timeout_s=20)
    assert seen == [2]
