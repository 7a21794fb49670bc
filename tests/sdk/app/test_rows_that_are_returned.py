"""Rows that handlers of columns return: written before their offsets are committed, or in one transaction with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import KafkaException

from ottla import App, Avro, CommitPolicy, ConfigError, Dead, ExactlyOnce, Json, Outcomes, RetryPolicy, UnknownTopic
from ottla.testing import consumer_for
from ottla.testing.topics import create_topic
from ottla.testing.waiting import wait_until

QUICK = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)
ONCE = {"exactly_once": ExactlyOnce()}
BOTH = pytest.mark.parametrize("options", [{}, ONCE], ids=["at least once", "exactly once"])


@dataclass
class Order:
    id: int
    customer: str


@pytest.fixture
def app(kafka: Any, kafka_group: str, make_topic: Any) -> App:
    return App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        retry=QUICK,
        commit=CommitPolicy(every_s=0.05),
        drain_s=5,
        dead_letter_topic=make_topic("dead"),
    )


@pytest.fixture
def committed(committed: Callable[..., int]) -> Callable[..., int]:
    """As the other tests have it. While a transaction decides on the offsets, there are none to be told."""

    def read(*place: Any) -> int:
        try:
            return committed(*place)
        except KafkaException:
            return -1

    return read


def orders(count: int) -> list[Order]:
    return [Order(number, f"c{number % 7}") for number in range(count)]


def texts(values: pa.Array) -> pa.Array:
    return pc.cast(values, pa.string())


def numbers(records: list[Any]) -> list[int]:
    return [int(record.value) for record in records]


@BOTH
def test_rows_are_written_with_keys_headers_and_timestamps(
    options: Any, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Avro(Order), columns=True, to=target, **options)
    def copy(batch: pa.RecordBatch, timestamps: pa.Array, headers: pa.Array) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "key": batch.column("customer"),
                "value": texts(batch.column("id")),
                "timestamp": timestamps,
                "headers": headers,
            }
        )

    kafka.produce(source, orders(1_000), value=Avro(Order), headers=[("of", b"x")])
    run(app)
    wait_until(lambda: committed(app.group, source) == 1_000, timeout_s=60)
    written = kafka.consume_all(target, at_least=1_000)
    read = kafka.consume_all(source, at_least=1_000)
    assert numbers(written) == list(range(1_000))
    assert {record.key for record in written} == {f"c{n}".encode() for n in range(7)}
    assert [record.timestamp_ms for record in written] == [record.timestamp_ms for record in read]
    assert all(list(record.headers) == [("of", b"x")] for record in written)


@BOTH
@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_a_frame_of_another_library_is_written_as_well(
    is_async: bool, options: Any, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    def counted(batch: pl.DataFrame) -> pl.DataFrame:
        return batch.select(pl.struct(pl.all()).struct.json_encode().alias("value"), pl.col("customer").alias("key"))

    if is_async:

        @app.handler(source, value=Json(Order), columns=True, to=target, **options)
        async def count_async(batch: pl.DataFrame) -> pl.DataFrame:
            return counted(batch)

    else:

        @app.handler(source, value=Json(Order), columns=True, to=target, **options)
        def count(batch: pl.DataFrame) -> pl.DataFrame:
            return counted(batch)

    kafka.produce(source, orders(50), value=Json())
    run(app)
    wait_until(lambda: committed(app.group, source) == 50, timeout_s=60)
    written = kafka.consume_all(target, at_least=50, value=Json())
    assert [record.value["id"] for record in written] == list(range(50))


def test_a_duckdb_relation_works_on_the_batch_and_is_written(
    app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(Order), columns=True, to=target)
    def even(batch: pa.RecordBatch) -> duckdb.DuckDBPyRelation:
        return duckdb.connect().sql("select id::varchar as value from batch where id % 2 = 0 order by id")

    kafka.produce(source, orders(50), value=Json())
    run(app)
    wait_until(lambda: committed(app.group, source) == 50, timeout_s=60)
    written = kafka.consume_all(target, at_least=25, value=Json())
    assert [record.value for record in written] == list(range(0, 50, 2))


@BOTH
def test_what_is_yielded_is_written_and_what_is_returned_is_the_outcome(
    options: Any, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(int), columns=True, to=target, linger_ms=100, **options)
    def twice(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        values = batch.column("value")
        bad = pc.equal(pc.bit_wise_and(values, 3), 3)
        good = values.filter(pc.invert(bad))
        yield pa.record_batch({"value": texts(good)})
        yield pa.record_batch({"value": texts(pc.multiply(good, 100))})
        return Outcomes((bad, Dead("three of four")))

    kafka.produce(source, range(20), value=Json())
    run(app)
    wait_until(lambda: committed(app.group, source) == 20, timeout_s=60)
    good = [n for n in range(20) if n % 4 != 3]
    written = numbers(kafka.consume_all(target, at_least=2 * len(good)))
    assert sorted(written) == sorted([*good, *(100 * n for n in good)])
    letters = kafka.consume_all(app.dead_letter_topic, at_least=5)
    assert numbers(letters) == [n for n in range(20) if n % 4 == 3]


@BOTH
def test_rows_that_do_not_decode_or_fail_are_dead_letters_and_the_others_are_written(
    options: Any, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(int), columns=True, to=target, linger_ms=100, **options)
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        if 7 in batch.column("value").to_pylist():
            raise RuntimeError("poison")
        return pa.record_batch({"value": texts(batch.column("value"))})

    kafka.produce(source, [b"x" if n in (0, 5) else b"%d" % n for n in range(12)])
    run(app)
    wait_until(lambda: committed(app.group, source) == 12, timeout_s=60)
    written = numbers(kafka.consume_all(target, at_least=9))
    assert sorted(written) == [n for n in range(12) if n not in (0, 5, 7)], "each once"
    assert [record.value for record in kafka.consume_all(app.dead_letter_topic, at_least=3)] == [b"x", b"x", b"7"]


@BOTH
def test_a_row_that_the_broker_does_not_take_is_found(
    options: Any, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target", config={"max.message.bytes": "2000"})

    @app.handler(source, value=Json(int), columns=True, to=target, linger_ms=100, **options)
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value").to_pylist()
        return pa.record_batch({"value": [str(n) if n != 3 else "x" * 3_000 for n in values]})

    kafka.produce(source, range(8), value=Json())
    run(app)
    wait_until(lambda: committed(app.group, source) == 8, timeout_s=60)
    assert sorted(numbers(kafka.consume_all(target, at_least=7))) == [0, 1, 2, 4, 5, 6, 7]
    assert numbers(kafka.consume_all(app.dead_letter_topic, at_least=1)) == [3]


def test_what_is_no_row_of_a_topic_is_a_dead_letter_that_says_so(
    app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(int), columns=True, to=target)
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("colour", batch.column("value"))

    kafka.produce(source, [1], value=Json())
    run(app)
    wait_until(lambda: committed(app.group, source) == 1, timeout_s=60)
    letter = kafka.consume_all(app.dead_letter_topic, at_least=1)[0]
    assert any(b"no such column in a topic: colour" in (value or b"") for _, value in letter.headers)


def test_rows_without_a_topic_to_go_to_are_not_passed_over(
    app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source = make_topic("source")

    @app.handler(source, value=Json(int), columns=True)
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    kafka.produce(source, [1], value=Json())
    run(app)
    wait_until(lambda: committed(app.group, source) == 1, timeout_s=60)
    letter = kafka.consume_all(app.dead_letter_topic, at_least=1)[0]
    assert any(b"to= does not say where they go" in (value or b"") for _, value in letter.headers)


@BOTH
def test_many_partitions_keep_their_order(
    options: Any, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
) -> None:
    source, target = make_topic("source", partitions=6), make_topic("target", partitions=6)

    @app.handler(source, value=Json(int), columns=["partition"], to=target, concurrency=3, max_batch=50, **options)
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"value": texts(batch.column("value")), "partition": batch.column("partition")})

    kafka.produce(source, range(3_000), value=Json(), keys=map(str, range(3_000)), key=str)
    run(app)
    wait_until(lambda: sum(max(0, committed(app.group, source, n)) for n in range(6)) == 3_000, timeout_s=60)
    by_partition: dict[int, list[int]] = {}
    for record in kafka.consume_all(target, at_least=3_000):
        by_partition.setdefault(record.partition, []).append(int(record.value))
    assert sorted(n for found in by_partition.values() for n in found) == list(range(3_000))
    assert all(found == sorted(found) for found in by_partition.values())


def test_a_topic_for_results_that_does_not_exist_is_said_at_the_start(
    make_cluster: Any,
) -> None:
    servers = make_cluster(brokers=1, config={"auto.create.topics.enable": "false"}).bootstrap_servers
    create_topic(servers, "orders")
    app = App("g", bootstrap_servers=servers, topics_timeout_s=0)

    @app.handler("orders", value=Json(int), columns=True, to="nowhere")
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    with pytest.raises(UnknownTopic, match="no result could be written"):
        app.run(handle_signals=False)


def test_what_cannot_work_is_refused_where_it_is_declared() -> None:
    app = App("g", bootstrap_servers="localhost:1")
    for options, says in (
        ({"to": "x"}, "found to= without columns="),
        ({"columns": True, "to": "t"}, "come back for ever"),
        ({"columns": True, "to": "a b"}, "to: "),
        ({"columns": True, "exactly_once": ExactlyOnce(value=Json())}, "values are bytes or text"),
    ):
        with pytest.raises(ConfigError, match=says):

            @app.handler("t", value=Json(int), **options)
            def handle(batch: Any) -> None: ...

    with pytest.raises(ConfigError, match="yield"):

        @app.handler("t", value=Json(int), columns=True)
        def give(batch: Any) -> Any:
            yield batch


def test_consumer_for_shows_what_was_returned() -> None:
    def copy(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = batch.column("value")
        return pa.record_batch({"key": texts(values), "value": texts(pc.multiply(values, 2))})

    for options in ({}, ONCE):
        consumer = consumer_for(copy, value=Json(int), columns=True, to="doubled", **options)  # type: ignore[arg-type]
        assert [delivery.outcome for delivery in consumer.deliver_all([1, 2])] == ["done", "done"]
        assert [(record.topic, record.key, record.value) for record in consumer.sent] == [
            ("doubled", b"1", b"2"),
            ("doubled", b"2", b"4"),
        ]
