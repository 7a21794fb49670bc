"""Where a group at `latest` begins: partitions that are added are read from their start, the others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from ottla import App, CommitPolicy, Json
from ottla.testing.topics import create_topic

SHELLS = ["threads", "asyncio", "columns"]

SLOW_TO_NOTICE = {"metadata.max.age.ms": 1_000}
"""Records are there before the member knows of their partition."""


def add_partitions(kafka: Any, topic: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(topic, count)]).values():
        future.result(10)


def counting(kafka: Any, group: str, topic: str, **settings: Any) -> tuple[App, list[int]]:
    seen: list[int] = []
    app = App(
        group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=CommitPolicy(every_s=0.05),
        settings={"auto.offset.reset": "latest", **SLOW_TO_NOTICE, **settings},
    )

    @app.handler(topic, value=Json())
    def handle(value: int) -> None:
        seen.append(value)

    return app, seen


@pytest.fixture
def topic(kafka: Any) -> str:
    name: str = kafka.fresh_name("grows")
    create_topic(kafka.bootstrap_servers, name)
    return name


@pytest.mark.representative("threads-settings1")
@pytest.mark.parametrize(
    ("shell", "settings"),
    [
        ("threads", {}),
        ("threads", {"partition.assignment.strategy": "range"}),
        ("threads", {"group.protocol": "consumer"}),
        ("threads", {"auto.offset.reset": "none"}),
        ("asyncio", {}),
        ("asyncio", {"auto.offset.reset": "none"}),
        ("columns", {}),
        ("columns", {"group.protocol": "consumer"}),
        ("columns", {"auto.offset.reset": "none"}),
    ],
    indirect=["shell"],
)
def test_a_partition_that_is_added_while_a_member_runs_is_read_from_its_start(
    shell: Any,
    settings: dict[str, Any],
    kafka: Any,
    topic: str,
    kafka_group: str,
    wait: Callable[..., None],
    committed: Any,
) -> None:
    kafka.produce(topic, [-1], value=Json(), partition=0)
    if settings.get("auto.offset.reset") == "none":
        commit(kafka, kafka_group, topic, 1)
    app, seen = counting(kafka, kafka_group, topic, **settings)
    shell.start(app)
    wait(lambda: committed(kafka_group, topic) == 1)
    kafka.produce(topic, range(10), value=Json(), partition=0)
    wait(lambda: len(seen) == 10)

    add_partitions(kafka, topic, 3)
    kafka.produce(topic, range(100, 150), value=Json(), partition=1)
    kafka.produce(topic, range(200, 250), value=Json(), partition=2)
    wait(lambda: len(seen) >= 110)
    shell.stop(app)

    assert sorted(seen) == [*range(10), *range(100, 150), *range(200, 250)]
    assert [committed(kafka_group, topic, number) for number in range(3)] == [11, 50, 50]


def commit(kafka: Any, group: str, topic: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "log_level": 0})
    client.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    client.close()


def test_a_group_at_latest_goes_on_from_where_it_began_also_where_nothing_came(
    shell: Any, kafka: Any, topic: str, kafka_group: str, wait: Callable[..., None], committed: Any
) -> None:
    kafka.produce(topic, range(5), value=Json(), partition=0)
    first, seen = counting(kafka, kafka_group, topic)
    shell.start(first)
    wait(lambda: committed(kafka_group, topic) == 5)
    shell.stop(first)
    assert seen == []

    kafka.produce(topic, range(5, 8), value=Json(), partition=0)
    second, seen = counting(kafka, kafka_group, topic)
    shell.start(second)
    wait(lambda: len(seen) == 3)
    assert seen == [5, 6, 7]


def test_what_was_written_to_a_partition_that_no_member_knew_of_is_logged_with_its_range(
    shell: Any, kafka: Any, topic: str, kafka_group: str, wait: Callable[..., None], committed: Any, capsys: Any
) -> None:
    first, _ = counting(kafka, kafka_group, topic)
    shell.start(first)
    wait(lambda: committed(kafka_group, topic) == 0)
    shell.stop(first)

    add_partitions(kafka, topic, 2)
    kafka.produce(topic, range(4), value=Json(), partition=1)
    second, seen = counting(kafka, kafka_group, topic)
    shell.start(second)
    wait(lambda: committed(kafka_group, topic, 1) == 4)
    shell.stop(second)

    assert seen == []
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "started_at_log_end" in line]
    assert f'"partition": "{topic}-1", "from": 0, "to": 4, "records_at_most": 4' in line
