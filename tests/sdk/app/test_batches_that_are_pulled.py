"""`ottla.columnar.consume`: batches by iterating or polling, and what their caller may say of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from ottla import Avro, CommitPolicy, ConfigError, Dead, Json, LifecycleError, Outcomes, RetryPolicy, TopicPartition
from ottla.columnar import ColumnConsumer, consume
from ottla.testing.waiting import wait_until

OFTEN = CommitPolicy(every_s=0.05)
QUICK = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)


@dataclass
class Order:
    id: int
    customer: str


@pytest.fixture
def pull(kafka: Any, kafka_group: str) -> Iterator[Callable[..., ColumnConsumer]]:
    made: list[ColumnConsumer] = []

    def make(*topics: str, **options: Any) -> ColumnConsumer:
        settings = {"heartbeat.interval.ms": 200}
        common = {"commit": OFTEN, "retry": QUICK, "settings": settings}
        consumer = consume(*topics, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers, **common, **options)
        made.append(consumer)
        return consumer

    yield make
    for consumer in made:
        consumer.close()


def values(consumer: ColumnConsumer, count: int) -> list[int]:
    """Iterate until so many rows have come. The last batch is left open."""
    found: list[int] = []
    for batch in consumer:
        found += batch.data.column("value").to_pylist()
        if len(found) >= count:
            return found
    raise AssertionError("it ended")


def test_a_batch_is_done_when_the_next_one_is_asked_for(
    pull: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any
) -> None:
    kafka.produce(kafka_topic, range(30), value=Json())
    consumer = pull(kafka_topic, value=Json(int), max_batch=10)
    assert values(consumer, 30) == list(range(30))
    consumer.close()
    assert committed(kafka_group, kafka_topic) == 20, "the last batch was left"
    assert values(pull(kafka_topic, value=Json(int)), 10) == list(range(20, 30))


def test_what_was_acknowledged_is_committed_by_close(
    pull: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any
) -> None:
    import polars as pl

    kafka.produce(kafka_topic, [Order(n, "c") for n in range(5)], value=Avro(Order))
    with pull(kafka_topic, value=Avro(Order), columns=["offset"]) as consumer:
        seen = 0
        while seen < 5:
            batch = consumer.poll(timeout_s=60)
            assert pl.DataFrame(batch).columns == ["id", "customer", "offset"]
            assert pa.table(batch).num_rows == len(batch)
            assert batch.topic_partition == TopicPartition(kafka_topic, 0)
            assert batch.attempt == 1
            seen += len(batch)
            batch.ack()
            batch.ack()
    assert committed(kafka_group, kafka_topic) == 5


def test_rows_may_be_named_and_those_that_do_not_decode_are_not_seen(
    pull: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any
) -> None:
    topic, dead = make_topic("orders"), make_topic("dead")
    kafka.produce(topic, [b"1", b"x", b"2", b"3"])
    consumer = pull(topic, value=Json(int), dead_letter_topic=dead, linger_ms=100)
    seen: list[int] = []

    def is_done() -> bool:
        batch = consumer.poll(timeout_s=0.1)
        if batch is not None:
            own = batch.data.column("value").to_pylist()
            seen.extend(own)
            batch.ack(Outcomes(([value == 2 for value in own], Dead("two"))))
        return bool(committed(kafka_group, topic) == 4)

    wait_until(is_done, timeout_s=60)
    assert seen == [1, 2, 3]
    assert sorted(letter.raw_value for letter in kafka.consume_all(dead, at_least=2)) == [b"2", b"x"]


def test_a_batch_that_failed_comes_again_and_is_halved(
    pull: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any
) -> None:
    topic, dead = make_topic("orders"), make_topic("dead")
    kafka.produce(topic, range(8), value=Json())
    consumer = pull(topic, value=Json(int), dead_letter_topic=dead, linger_ms=100)
    done: list[int] = []

    def is_done() -> bool:
        batch = consumer.poll(timeout_s=0.1)
        if batch is not None:
            own = batch.data.column("value").to_pylist()
            if 5 in own:
                batch.failed(RuntimeError("five"))
            else:
                done.extend(own)
                batch.ack()
        return bool(committed(kafka_group, topic) == 8)

    wait_until(is_done, timeout_s=60)
    assert done == [0, 1, 2, 3, 4, 6, 7]
    assert [letter.raw_value for letter in kafka.consume_all(dead, at_least=1)] == [b"5"]


def test_two_share_the_partitions_and_hand_over_without_loss(
    pull: Any, kafka: Any, make_topic: Any, kafka_group: str
) -> None:
    topic = make_topic("orders", partitions=4)
    first, second = pull(topic, value=Json(int)), pull(topic, value=Json(int))
    seen: list[int] = []

    def turn() -> None:
        for consumer in (first, second):
            batch = consumer.poll(timeout_s=0.05)
            if batch is not None:
                seen.extend(batch.data.column("value").to_pylist())
                batch.ack()

    def shared() -> bool:
        turn()
        return len(first.assignment()) == len(second.assignment()) == 2

    wait_until(shared, timeout_s=60)
    kafka.produce(topic, range(100), value=Json(), keys=map(str, range(100)), key=str)

    def has_all(count: int) -> Callable[[], bool]:
        def look() -> bool:
            turn()
            return set(range(count)) <= set(seen)

        return look

    wait_until(has_all(100), timeout_s=60)
    second.close()
    kafka.produce(topic, range(100, 200), value=Json(), keys=map(str, range(100)), key=str)
    second = first
    wait_until(has_all(200), timeout_s=60)
    assert sorted(seen) == list(range(200)), "an orderly hand-over repeats nothing"


def test_pause_and_seek(pull: Any, kafka: Any, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, range(3), value=Json())
    consumer = pull(kafka_topic, value=Json(int))
    assert values(consumer, 3) == [0, 1, 2]
    place = TopicPartition(kafka_topic, 0)
    consumer.pause(place)
    consumer.seek(place, 1)
    assert consumer.poll(timeout_s=0.2) is None
    consumer.resume(place)
    assert values(consumer, 2) == [1, 2]


def test_what_cannot_work_is_refused() -> None:
    for topics, options, says in (
        ((), {}, "at least one topic"),
        (("t",), {"columns": "key"}, "wanted a list"),
        (("t",), {"columns": ["colour"]}, "colour"),
        (("t",), {"dead_letter_topic": "t"}, "come back for ever"),
    ):
        with pytest.raises(ConfigError, match=says):
            consume(*topics, group="g", bootstrap_servers="localhost:1", **options)
    consumer = consume("t", group="g", bootstrap_servers="localhost:1")
    consumer.close()
    with pytest.raises(LifecycleError):
        consumer.poll()
