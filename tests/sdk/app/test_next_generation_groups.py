"""Groups under KIP-848 (`group.protocol=consumer`), where the coordinator assigns.

In threads only: aiokafka does not speak the protocol, and an app on asyncio is told so when it starts.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ottla import App, CommitPolicy, ConfigError, Context, Json, Record, RetryTopics, TopicPartition
from ottla.testing.running import RunningApp
from ottla.testing.topics import create_topic

OFTEN = CommitPolicy(every_s=0.05)
SOON = RetryTopics(delays_s=(0.2, 0.4))


def member(servers: str, group: str, **settings: str) -> App:
    return App(group, bootstrap_servers=servers, commit=OFTEN, settings={"group.protocol": "consumer", **settings})


def test_two_members_share_retry_topics_and_a_key_keeps_its_order_when_one_leaves(make_cluster: Any, wait: Any) -> None:
    servers = make_cluster(brokers=1, config={"group.consumer.heartbeat.interval.ms": "200"}).bootstrap_servers
    create_topic(servers, "orders", partitions=4)
    done: list[tuple[int, int]] = []
    lock = threading.Lock()

    def make() -> App:
        app = member(servers, "billing")

        @app.handler("orders", value=Json(), key=str, retry_topics=SOON)
        def handle(record: Record[int], context: Context) -> None:
            if record.value % 10 == 0 and context.attempt == 1:
                raise RuntimeError("flaky")
            with lock:
                done.append((record.partition, record.value))

        return app

    def owned(app: App) -> set[TopicPartition]:
        return {part.topic_partition for part in app.health().partitions}

    def send(numbers: range) -> None:
        from ottla import Producer

        with Producer(servers, key=str, value=Json()) as producer:
            for partition in range(4):
                for number in numbers:
                    producer.send("orders", number, key="k", partition=partition)

    first, second = make(), make()
    with RunningApp(first, servers):
        with RunningApp(second, servers):
            wait(lambda: len(owned(first)) == len(owned(second)) == 6, timeout_s=60)
            for app in (first, second):
                numbers = {name.partition for name in owned(app)}
                topics = ("orders", "orders.billing.retry.1", "orders.billing.retry.2")
                assert owned(app) == {TopicPartition(topic, number) for topic in topics for number in numbers}
            send(range(30))
            wait(lambda: len(done) >= 60, timeout_s=60)
        wait(lambda: len(owned(first)) == 12, timeout_s=60)
        send(range(30, 40))
        wait(lambda: len(set(done)) == 160, timeout_s=60)

    for partition in range(4):
        in_order = list(dict.fromkeys(value for owner, value in done if owner == partition))
        assert in_order == list(range(40))


def test_another_assignor_is_refused_where_retry_topics_keep_the_order(make_cluster: Any) -> None:
    servers = make_cluster(brokers=1).bootstrap_servers
    app = member(servers, "billing", **{"group.remote.assignor": "uniform"})
    app.handler("orders", retry_topics=SOON)(lambda value: None)

    with pytest.raises(ConfigError, match=r"needs group\.remote\.assignor=range, found 'uniform'"):
        app.run(handle_signals=False)


def test_a_coordinator_without_the_range_assignor_ends_the_app_with_an_error_that_says_so(make_cluster: Any) -> None:
    servers = make_cluster(brokers=1, config={"group.consumer.assignors": "uniform"}).bootstrap_servers
    create_topic(servers, "orders")
    app = member(servers, "billing")
    app.handler("orders", retry_topics=SOON)(lambda value: None)

    with pytest.raises(ConfigError, match=r"refused the consumer's settings: .*assignor .* is not supported"):
        app.run(handle_signals=False)


async def test_on_asyncio_the_protocol_is_refused_at_start(kafka: Any, kafka_topic: str, kafka_group: str) -> None:
    app = member(kafka.bootstrap_servers, kafka_group)
    app.handler(kafka_topic)(lambda value: None)

    with pytest.raises(ConfigError, match=r"aiokafka knows only group\.protocol=classic"):
        await app.serve()
