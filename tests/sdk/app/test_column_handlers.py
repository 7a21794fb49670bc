"""Handlers of columns on the embedded broker: what they get, what they may say, and what becomes of rows that fail."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from ottla import (
    App,
    Avro,
    CommitPolicy,
    Dead,
    FlowLimits,
    Json,
    Outcomes,
    Producer,
    Retry,
    RetryPolicy,
    RetryTopics,
    Skip,
    Str,
)
from ottla.columnar.serving.group_member import ColumnGroupMember
from ottla.failures import describe_dead_letter
from ottla.testing.waiting import wait_until

MIB = 1024 * 1024
QUICK = RetryPolicy(max_attempts=2, initial_s=0.01, max_s=0.02)


@dataclass
class Order:
    id: int
    amount: float
    customer: str


def orders(count: int) -> list[Order]:
    return [Order(number, number / 2, f"c{number % 7}") for number in range(count)]


@pytest.fixture
def app(kafka: Any, kafka_group: str) -> App:
    return App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        retry=QUICK,
        commit=CommitPolicy(every_s=0.05),
        drain_s=5,
    )


class TestWhatAHandlerGets:
    def test_the_columns_of_decoded_values_in_offset_order(
        self, app: App, kafka: Any, kafka_topic: str, run: Any, committed: Any
    ) -> None:
        batches: list[pa.RecordBatch] = []

        @app.handler(kafka_topic, value=Avro(Order), columns=True, max_batch=400)
        def take(orders: pa.RecordBatch) -> None:
            batches.append(orders)

        kafka.produce(kafka_topic, orders(1_000), value=Avro(Order))
        run(app)
        wait_until(lambda: committed(app.group, kafka_topic) == 1_000, timeout_s=60)

        table = pa.Table.from_batches(batches)
        assert table.schema.names == ["id", "amount", "customer"]
        assert table.column("id").to_pylist() == list(range(1_000))
        assert max(batch.num_rows for batch in batches) <= 400

    def test_key_offset_and_headers_where_they_are_asked_for(
        self, app: App, kafka: Any, kafka_topic: str, run: Any, committed: Any
    ) -> None:
        found: list[tuple[Any, ...]] = []

        @app.handler(kafka_topic, value=Json(Order), key=Str(), columns=["key", "partition", "offset"])
        def take(batch: pa.RecordBatch, keys: pa.Array, offsets: pa.Array, headers: pa.Array, context: Any) -> None:
            found.append((batch.to_pylist(), keys.to_pylist(), offsets.to_pylist(), headers.to_pylist()))
            assert context.attempt == 1

        kafka.produce(kafka_topic, orders(2), value=Json(), key=Str(), keys=["a", None], headers=[("h", b"1")])
        run(app)
        wait_until(lambda: committed(app.group, kafka_topic) == 2, timeout_s=60)

        rows = [row for batch, *_ in found for row in batch]
        assert [(row["id"], row["key"], row["partition"], row["offset"]) for row in rows] == [
            (0, "a", 0, 0),
            (1, None, 0, 1),
        ]
        assert [key for _, keys, *_ in found for key in keys] == ["a", None]
        assert found[0][3][0] == [{"key": "h", "value": b"1"}]

    def test_a_middleware_sees_the_batch_and_may_answer_for_it(
        self, app: App, kafka: Any, kafka_topic: str, run: Any, committed: Any
    ) -> None:
        seen: list[tuple[list[int], list[int], int]] = []
        handled: list[int] = []

        @app.middleware
        def only_the_first(batch: Any, context: Any, call_next: Any) -> Any:
            seen.append((batch.data.column("id").to_pylist(), batch.offsets.to_pylist(), len(batch)))
            return call_next(batch) if batch.offsets[0].as_py() == 0 else Skip()

        @app.handler(kafka_topic, value=Json(Order), columns=True, max_batch=1)
        def take(batch: pa.RecordBatch) -> None:
            handled.extend(batch.column("id").to_pylist())

        kafka.produce(kafka_topic, orders(2), value=Json())
        run(app)
        wait_until(lambda: committed(app.group, kafka_topic) == 2, timeout_s=60)
        assert seen == [([0], [0], 1), ([1], [1], 1)]
        assert handled == [0]


class TestRowsThatFail:
    def test_rows_that_do_not_decode_are_dead_letters_with_their_bytes(
        self, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        ids: list[int] = []

        @app.handler(topic, value=Avro(Order), columns=True, dead_letter_topic=dead_topic)
        def take(orders: pa.RecordBatch) -> None:
            ids.extend(orders.column("id").to_pylist())

        serde = Avro(Order)
        good = [serde.serialize(order, None) for order in orders(4)]  # type: ignore[arg-type]
        kafka.produce(topic, [good[0], b"\xff\xff", good[1], b"", good[2], good[3]])
        run(app)
        wait_until(lambda: committed(app.group, topic) == 6, timeout_s=60)

        assert ids == [0, 1, 2, 3]
        letters = kafka.consume_all(dead_topic, at_least=2)
        assert [letter.raw_value for letter in letters] == [b"\xff\xff", b""]
        told = [describe_dead_letter(letter.headers) for letter in letters]
        assert [(letter.kind, letter.offset) for letter in told] == [("malformed", 1), ("malformed", 3)]

    def test_a_row_that_cannot_be_handled_is_found_and_the_others_are_done(
        self, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        done: list[int] = []
        calls: list[int] = []

        @app.handler(topic, value=Json(Order), columns=True, dead_letter_topic=dead_topic, linger_ms=200)
        def take(orders: pa.RecordBatch) -> None:
            ids = orders.column("id").to_pylist()
            calls.append(len(ids))
            if 37 in ids:
                raise RuntimeError("never 37")
            done.extend(ids)

        kafka.produce(topic, orders(100), value=Json())
        run(app)
        wait_until(lambda: committed(app.group, topic) == 100, timeout_s=60)

        assert done == [number for number in range(100) if number != 37]
        (letter,) = kafka.consume_all(dead_topic, at_least=1)
        assert describe_dead_letter(letter.headers).offset == 37
        assert len(calls) <= 2 + 2 * 8, "two deliveries of a batch, then two for each halving"

    def test_outcomes_name_rows_by_mask_and_by_number(
        self, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
    ) -> None:
        topic, dead_topic = make_topic("orders"), make_topic("dead")
        seen: list[list[int]] = []

        @app.handler(topic, value=Json(Order), columns=True, dead_letter_topic=dead_topic)
        def take(orders: pa.RecordBatch, context: Any) -> Outcomes | None:
            ids = orders.column("id").to_pylist()
            seen.append(ids)
            if context.attempt > 1:
                return None
            mask = [number == 3 for number in ids]
            again = [row for row, number in enumerate(ids) if number == 5]
            return Outcomes((mask, Dead("negative amount")), (again, Retry(after_s=0.01)))

        kafka.produce(topic, orders(8), value=Json())
        run(app)
        wait_until(lambda: committed(app.group, topic) == 8, timeout_s=60)

        assert [5] in seen
        (letter,) = kafka.consume_all(dead_topic, at_least=1)
        assert describe_dead_letter(letter.headers).offset == 3
        assert describe_dead_letter(letter.headers).message == "negative amount"

    def test_rows_out_of_a_retry_topic_are_what_they_were_in_their_own(
        self, app: App, kafka: Any, make_topic: Any, run: Any, committed: Any
    ) -> None:
        """Whoever remembers rows by partition and offset must find them again."""
        topic = make_topic("orders")
        came_back: list[tuple[int, int, list[Any], int]] = []
        first: list[tuple[int, int, list[Any], int]] = []

        @app.handler(topic, value=Json(Order), columns=True, retry_topics=RetryTopics(delays_s=(0.1,)))
        def take(
            orders: pa.RecordBatch, offsets: pa.Array, headers: pa.Array, timestamps: pa.Array, context: Any
        ) -> Outcomes:
            columns = (orders.column("id"), offsets, headers, timestamps.cast(pa.int64()))
            rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
            (first if context.attempt == 1 else came_back).extend(rows)
            assert context.topic_partition.topic == topic
            again = [context.attempt == 1 and number in (2, 5) for number, *_ in rows]
            return Outcomes((again, Retry()))

        kafka.produce(topic, orders(8), value=Json(), headers=[("h", b"1")])
        run(app)
        wait_until(lambda: len(came_back) == 2, timeout_s=60)

        assert came_back == [row for row in first if row[0] in (2, 5)]
        assert [offset for _, offset, *_ in came_back] == [2, 5]


def test_a_slow_handler_of_a_hundred_partitions_buffers_what_its_limits_say(
    kafka: Any, make_topic: Any, kafka_group: str, run: Any
) -> None:
    topic, may_end, seen = make_topic("orders", partitions=100), threading.Event(), Counter[int]()
    limit = 4 * MIB
    slow = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, flow=FlowLimits(total_bytes=limit), drain_s=5)

    @slow.handler(topic, columns=["partition"], max_batch=10)
    def take(batch: pa.RecordBatch) -> None:
        may_end.wait(60)
        seen.update(batch.column("partition").to_pylist())

    value = bytes(10_000)
    for partition in range(100):
        kafka.produce(topic, [value] * 20, partition=partition)
    run(slow)
    buffered = buffered_when_full(slow)
    may_end.set()
    assert limit // 2 <= buffered <= limit, "of 20 MB that are there"
    wait_until(lambda: len(seen) == 100 and set(seen.values()) == {20}, timeout_s=60)


def test_what_inflates_to_more_than_there_is_room_for_is_read_again_later(
    kafka: Any, kafka_topic: str, kafka_group: str, run: Any
) -> None:
    limit, may_go_on, seen = 4 * MIB, threading.Event(), list[int]()
    slow = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, flow=FlowLimits(total_bytes=limit), drain_s=5)

    @slow.handler(kafka_topic, columns=True, max_batch=3)
    def take(batch: pa.RecordBatch, offsets: pa.Array) -> None:
        may_go_on.wait(60)
        seen.extend(offsets.to_pylist())

    with Producer(
        kafka.bootstrap_servers, settings={"compression.type": "gzip", "batch.num.messages": 4, "linger.ms": 5}
    ) as producer:
        for _ in range(200):
            producer.send(kafka_topic, bytes(100_000))  # 20 MB, in 20 kB
    run(slow)
    buffered = buffered_when_full(slow)
    may_go_on.set()
    wait_until(lambda: len(seen) == 200, timeout_s=60)
    assert (limit // 2 <= buffered <= limit, seen) == (True, list(range(200))), buffered


def buffered_when_full(app: App) -> int:
    """The bytes that the app's only member has buffered when it asks for nothing any more."""
    wait_until(lambda: app._runner is not None and bool(app.health().partitions), timeout_s=60)
    (member,) = app._runner.members.values()  # type: ignore[union-attr]
    assert isinstance(member, ColumnGroupMember)
    found: list[int] = []

    def is_full() -> bool:
        with member._lock:
            is_over = member._fetching._has_no_room or not (member._fetching.plan.wanted() or member._fetching._flights)
            if member._session.is_throttled and is_over:
                found.append(member._session._flow.buffered[1])
        return bool(found)

    wait_until(is_full, timeout_s=60)
    return found[0]
