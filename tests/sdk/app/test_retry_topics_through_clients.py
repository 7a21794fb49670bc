"""Non-blocking retries through the real clients, in both shells."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import pytest

from ottla import App, CommitPolicy, ConfigError, Context, Dead, Json, Record, RetryTopics, TopicPartition

SHELLS = ["threads", "asyncio", "columns"]

OFTEN = CommitPolicy(every_s=0.05)
SOON = RetryTopics(delays_s=(0.2, 0.4))


def values(records: Any) -> list[Any]:
    return [record.value for record in records]


@pytest.mark.representative("asyncio")
def test_a_failing_record_comes_back_without_holding_its_partition(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    handled: list[tuple[int, int]] = []
    seen: list[Record[int]] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(kafka_topic, value=Json(), retry_topics=SOON)
    def handle(record: Record[int], context: Context) -> None:
        if record.value == 0 and context.attempt < 3:
            raise RuntimeError("not yet")
        seen.append(record)
        handled.append((record.value, context.attempt))

    shell.start(app)
    kafka.produce(kafka_topic, range(5), value=Json(), keys=map(str, range(5)), key=str)
    wait(lambda: len(handled) == 5, timeout_s=40)
    wait(lambda: committed(kafka_group, kafka_topic) == 5, timeout_s=30)

    assert dict(handled) == {0: 3, 1: 1, 2: 1, 3: 1, 4: 1}
    assert handled[-1] == (0, 3), "the others did not wait"
    (came_back,) = [record for record in seen if record.value == 0]
    assert came_back.position == f"{kafka_topic}-0@0"
    assert came_back.headers == []
    for number in (1, 2):
        wait(lambda n=number: committed(kafka_group, f"{kafka_topic}.{kafka_group}.retry.{n}") == 1, timeout_s=30)


@pytest.mark.representative("threads")
def test_after_the_last_retry_topic_it_is_a_dead_letter_with_its_whole_story(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, make_topic: Any, wait: Any
) -> None:
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead)
    attempts: list[int] = []

    @app.handler(kafka_topic, value=Json(), retry_topics=SOON)
    def handle(value: int, context: Context) -> None:
        attempts.append(context.attempt)
        raise RuntimeError("never")

    shell.start(app)
    kafka.produce(kafka_topic, [1], value=Json())
    wait(lambda: committed(kafka_group, f"{kafka_topic}.{kafka_group}.retry.2") == 1, timeout_s=40)

    (letter,) = kafka.consume_all(dead, timeout_s=30)
    assert attempts == [1, 2, 3]
    assert letter.header_text("ottla-dlq-topic") == kafka_topic
    assert letter.header_text("ottla-dlq-attempts") == "3"
    assert letter.header_text("ottla-dlq-error-message") == "never"
    assert not [name for name, _ in letter.headers if name.startswith("ottla-retry-")]


@pytest.mark.representative("columns")
def test_the_order_of_every_key_is_kept_while_records_fail_at_random(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    topic = make_topic("orders", partitions=2)
    done: dict[str, list[int]] = defaultdict(list)
    failing = {(partition, number): number % 3 for partition in (0, 1) for number in range(0, 60, 7)}
    lock = threading.Lock()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(topic, value=Json(), key=str, ordering="key", concurrency=3, retry_topics=SOON)
    def handle(record: Record[int], key: str, context: Context) -> None:
        if context.attempt <= failing.get((record.partition, record.value), 0):
            raise RuntimeError("flaky")
        with lock:
            done[key].append(record.value)

    shell.start(app)
    sent: dict[str, list[int]] = defaultdict(list)
    for partition in (0, 1):
        keys = [f"{partition}-{number % 5}" for number in range(60)]
        kafka.produce(topic, range(60), value=Json(), keys=keys, key=str, partition=partition)
        for number, key in enumerate(keys):
            sent[key].append(number)
    wait(lambda: sum(map(len, done.values())) == 120, timeout_s=60)

    assert done == sent


@pytest.mark.representative("threads")
def test_the_bad_records_of_one_key_do_not_hold_the_other_keys_of_a_retry_topic(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, make_topic: Any, wait: Any
) -> None:
    """Each of the bad records has two rounds of its own in the last retry topic, one after the other."""
    handled: list[str] = []
    given_up: list[int] = []
    app = App(
        kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=make_topic("dead")
    )

    @app.handler(kafka_topic, value=Json(), retry_topics=SOON)
    def handle(record: Record[str], context: Context) -> None:
        if record.value == "bad" and context.attempt == 3:
            given_up.append(record.offset)
        if record.value == "bad" or context.attempt < 3:
            raise RuntimeError("not yet")
        handled.append(record.value)

    bad, good = ["bad"] * 8, [f"good-{number}" for number in range(10)]
    shell.start(app)
    kafka.produce(kafka_topic, bad, value=Json(), keys=bad, key=str)
    wait(lambda: len(given_up) == 1, timeout_s=30)
    kafka.produce(kafka_topic, good, value=Json(), keys=good, key=str)
    wait(lambda: len(handled) == len(good), timeout_s=30)

    assert sorted(handled) == good
    assert len(given_up) <= 4, "the others were not through when most of the bad ones were still waiting"
    wait(lambda: len(given_up) == len(bad), timeout_s=30)
    assert given_up == sorted(given_up)


@pytest.mark.representative("threads")
def test_a_new_owner_finds_who_waits_in_the_retry_topics(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    slow = RetryTopics(delays_s=(2.0,))
    done: list[int] = []

    def make(fails: bool) -> App:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

        @app.handler(kafka_topic, value=Json(), key=str, retry_topics=slow)
        def handle(value: int, key: str) -> None:
            if fails and value == 0:
                raise RuntimeError("not yet")
            done.append(value)

        return app

    first = shell.start(make(fails=True))
    kafka.produce(kafka_topic, [0], value=Json(), keys=["a"], key=str)
    wait(lambda: committed(kafka_group, kafka_topic) == 1, timeout_s=30)
    shell.stop(first)
    kafka.produce(kafka_topic, [1, 2, 3], value=Json(), keys=["a", "b", "a"], key=str)
    shell.start(make(fails=False))
    wait(lambda: len(done) == 4, timeout_s=40)

    assert [value for value in done if value != 2] == [0, 1, 3], "key a stays in order across owners"


@pytest.mark.representative("threads")
def test_released_keys_do_not_wait_for_the_failed_record(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, wait: Any
) -> None:
    done: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(kafka_topic, value=Json(), key=str, retry_topics=RetryTopics(delays_s=(1.0,), keep_key_order=False))
    def handle(value: int, context: Context) -> None:
        if value == 0 and context.attempt == 1:
            raise RuntimeError("not yet")
        done.append(value)

    shell.start(app)
    kafka.produce(kafka_topic, [0, 1, 2], value=Json(), keys=["a", "a", "a"], key=str)
    wait(lambda: len(done) == 3, timeout_s=40)

    assert done == [1, 2, 0]


def test_a_batch_handler_has_retry_topics_too(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, wait: Any
) -> None:
    done: list[int] = []
    tries: list[int] = []
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN)

    @app.handler(kafka_topic, value=Json(), batch=True, retry_topics=SOON)
    def handle(values: list[int], context: Context) -> None:
        if 2 in values and context.attempt == 1:
            tries.append(len(values))
            raise RuntimeError("one of them")
        done.extend(values)

    shell.start(app)
    kafka.produce(kafka_topic, range(4), value=Json(), keys=map(str, range(4)), key=str)
    wait(lambda: sorted(done) == [0, 1, 2, 3], timeout_s=40)

    assert tries[-1] == 1, "in the end the bad one was tried alone"


@pytest.mark.representative("asyncio")
def test_a_record_that_is_dead_at_once_never_sees_a_retry_topic(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, make_topic: Any, wait: Any
) -> None:
    dead = make_topic("dead")
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead)

    @app.handler(kafka_topic, value=Json(), retry_topics=SOON)
    def handle(value: int) -> Dead:
        return Dead("no use")

    shell.start(app)
    kafka.produce(kafka_topic, [1], value=Json())
    wait(lambda: committed(kafka_group, kafka_topic) == 1, timeout_s=30)

    assert kafka.consume_all(f"{kafka_topic}.{kafka_group}.retry.1") == []
    assert len(kafka.consume_all(dead, timeout_s=30)) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"auto.offset.reset": "latest"}, "need auto.offset.reset=earliest"),
        ({"partition.assignment.strategy": "roundrobin"}, "needs partition.assignment.strategy=range"),
    ],
)
def test_settings_that_would_lose_or_mix_retries_are_refused_at_start(
    shell: Any, kafka: Any, settings: dict[str, str], message: str
) -> None:
    app = App("billing", bootstrap_servers=kafka.bootstrap_servers, settings=settings)
    app.handler("orders", value=Json(), retry_topics=SOON)(lambda value: None)
    shell.start(app)

    error = shell.error_of(app)
    assert isinstance(error, ConfigError)
    assert message in str(error)


@pytest.mark.representative("asyncio")
def test_two_members_share_the_lines_and_keep_each_together(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    topic = make_topic("orders", partitions=4)
    done: list[tuple[int, int]] = []
    lock = threading.Lock()

    def make() -> App:
        app = App(
            kafka_group,
            bootstrap_servers=kafka.bootstrap_servers,
            commit=OFTEN,
            settings={"heartbeat.interval.ms": 200},
        )

        @app.handler(topic, value=Json(), key=str, retry_topics=SOON)
        def handle(record: Record[int], context: Context) -> None:
            if record.value % 10 == 0 and context.attempt == 1:
                raise RuntimeError("flaky")
            with lock:
                done.append((record.partition, record.value))

        return app

    apps = [shell.start(make()), shell.start(make())]
    wait(lambda: all(len(app.health().partitions) == 6 for app in apps), timeout_s=60)
    for app in apps:
        lines = {name.partition for name in (part.topic_partition for part in app.health().partitions)}
        assert {TopicPartition(topic, number) for number in lines} <= {
            part.topic_partition for part in app.health().partitions
        }
        assert len(lines) == 2
    for partition in range(4):
        kafka.produce(topic, range(30), value=Json(), keys=["k"] * 30, key=str, partition=partition)
    wait(lambda: len(done) >= 120, timeout_s=60)

    for partition in range(4):
        in_order = list(dict.fromkeys(value for owner, value in done if owner == partition))
        assert in_order == list(range(30))
