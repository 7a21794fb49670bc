"""A running service changes so that its group needs another assignor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla import App, CommitPolicy, ConfigError, Json, RetryTopics

SHELLS = ["threads", "asyncio", "columns"]


def service(
    kafka: Any, group: str, topic: str, seen: list[int], *, retry_topics: RetryTopics | None = None, **settings: Any
) -> App:
    app = App(group, bootstrap_servers=kafka.bootstrap_servers, commit=CommitPolicy(every_s=0.05), settings=settings)

    @app.handler(topic, value=Json(), name="charge", retry_topics=retry_topics)
    def handle(value: int) -> None:
        seen.append(value)

    return app


def started(shell: Any, app: App, wait: Callable[..., None]) -> None:
    shell.start(app)
    wait(lambda: app._runner is not None and app.health().partitions, timeout_s=30)


def test_a_member_with_new_retry_topics_says_why_its_group_refuses_it_and_what_to_do(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None]
) -> None:
    before = service(kafka, kafka_group, kafka_topic, [])
    started(shell, before, wait)
    after = service(kafka, kafka_group, kafka_topic, [], retry_topics=RetryTopics(delays_s=(1,)))
    shell.start(after)
    error = shell.error_of(after, 40)

    assert isinstance(error, ConfigError)
    theirs = "roundrobin" if shell.name == "asyncio" else "cooperative-sticky"
    assert f"group '{kafka_group}': this member offers the assignor range" in str(error)
    assert f"the group's members use {theirs}" in str(error)
    assert "handler 'charge' has RetryTopics(keep_key_order=True), which needs range" in str(error)
    step = "'range,roundrobin'" if shell.name == "asyncio" else "'group.protocol': 'consumer'"
    assert step in str(error)
    assert "RetryTopics(keep_key_order=False)" in str(error)
    assert before.health().is_ready


@pytest.mark.parametrize("shell", ["threads"], indirect=True)
def test_a_member_on_asyncio_says_that_its_group_runs_in_threads(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None]
) -> None:
    in_threads = service(kafka, kafka_group, kafka_topic, [])
    started(shell, in_threads, wait)
    other = type(shell)("asyncio")
    on_asyncio = service(kafka, kafka_group, kafka_topic, [])
    other.start(on_asyncio)
    error = other.error_of(on_asyncio, 40)

    assert isinstance(error, ConfigError)
    assert "offers the assignor roundrobin, and the group's members use cooperative-sticky" in str(error)
    assert "a group runs either in threads or on asyncio" in str(error)


@pytest.mark.representative("asyncio")
def test_without_the_order_of_keys_retry_topics_keep_the_assignor_of_the_group(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Callable[..., None]
) -> None:
    topic = make_topic("orders", partitions=2)
    seen: list[int] = []
    started(shell, service(kafka, kafka_group, topic, seen), wait)
    topics = RetryTopics(delays_s=(1,), keep_key_order=False)
    after = service(kafka, kafka_group, topic, seen, retry_topics=topics)
    started(shell, after, wait)
    kafka.produce(topic, range(20), value=Json())
    wait(lambda: sorted(seen) == [*range(20)], timeout_s=30)


@pytest.mark.representative("columns")
@pytest.mark.parametrize("shell", ["threads", "columns"], indirect=True)
def test_under_the_next_generation_protocol_retry_topics_are_added_in_one_rolling_deploy(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Callable[..., None]
) -> None:
    topic = make_topic("orders", partitions=2)
    seen: list[int] = []
    before = service(kafka, kafka_group, topic, seen, **{"group.protocol": "consumer"})
    started(shell, before, wait)
    kafka.produce(topic, range(10), value=Json())
    wait(lambda: sorted(seen) == [*range(10)], timeout_s=30)
    after = service(
        kafka, kafka_group, topic, seen, retry_topics=RetryTopics(delays_s=(1,)), **{"group.protocol": "consumer"}
    )
    started(shell, after, wait)
    kafka.produce(topic, range(10, 20), value=Json())
    wait(lambda: sorted(set(seen)) == [*range(20)], timeout_s=30)
    shell.stop(before)
    kafka.produce(topic, range(20, 30), value=Json())
    wait(lambda: sorted(set(seen)) == [*range(30)], timeout_s=30)
    wait(lambda: after.health().is_ready, timeout_s=30)


@pytest.mark.complete
@pytest.mark.parametrize("shell", ["asyncio"], indirect=True)
def test_on_asyncio_the_assignor_changes_in_two_rolling_deploys(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Callable[..., None]
) -> None:
    seen: list[int] = []
    both = {"partition.assignment.strategy": "range,roundrobin"}
    first = service(kafka, kafka_group, kafka_topic, seen)
    started(shell, first, wait)
    second = service(kafka, kafka_group, kafka_topic, seen, **both)
    shell.start(second)
    wait(lambda: second._runner is not None and second.runner.members, timeout_s=30)
    shell.stop(first)
    wait(lambda: second.health().partitions, timeout_s=30)
    third = service(kafka, kafka_group, kafka_topic, seen, retry_topics=RetryTopics(delays_s=(1,)))
    started(shell, third, wait)
    shell.stop(second)
    kafka.produce(kafka_topic, range(5), value=Json())
    wait(lambda: sorted(set(seen)) == [*range(5)], timeout_s=30)
