"""Handlers whose results, dead letters and offsets are one Kafka transaction, in all shells, through real clients."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from os import urandom
from typing import Any

import pytest
from confluent_kafka import KafkaException
from span_trees import recorded_spans

from ottla import (
    App,
    AtMostOnce,
    BindingError,
    CommitPolicy,
    ConfigError,
    Context,
    Dead,
    ExactlyOnce,
    FencedError,
    Inbox,
    Json,
    LifecycleError,
    Out,
    Producer,
    Record,
    RetryPolicy,
    RetryTopics,
    Skip,
    Str,
)
from ottla.stores import Memory
from ottla.testing import consumer_for

SHELLS = ["threads", "asyncio", "columns"]
OFTEN = CommitPolicy(every_s=0.05)
BRISK = {"heartbeat.interval.ms": 200}
QUICK = RetryPolicy(max_attempts=2, initial_s=0.01)


def values(records: list[Any]) -> list[Any]:
    return [Json().deserialize(record.value, None) for record in records]  # type: ignore[arg-type]


@pytest.fixture
def committed(committed: Callable[..., int]) -> Callable[..., int]:
    """As the other tests have it. While a transaction decides on the offsets, there are none to be told."""

    def read(*place: Any) -> int:
        try:
            return committed(*place)
        except KafkaException:
            return -1

    return read


@pytest.fixture
def app(kafka: Any, kafka_group: str, make_topic: Any) -> App:
    return App(
        kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        commit=OFTEN,
        dead_letter_topic=make_topic("dead"),
        retry=QUICK,
    )


@pytest.mark.parametrize("is_async", [False, True], ids=["def", "async def"])
def test_results_dead_letters_and_offsets_are_seen_once_and_in_order(
    is_async: bool, app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")
    seen: list[int] = []

    def work(value: int, out: Out) -> None:
        seen.append(value)
        out.send(target, {"n": value}, key=str(value), headers=[("of", b"%d" % value)])
        if value in (3, 9):
            raise RuntimeError("poison")

    if is_async:

        @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json(), key=Str()))
        async def handle_async(value: int, out: Out) -> None:
            await asyncio.sleep(0)
            work(value, out)

    else:

        @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json(), key=Str()))
        def handle(value: int, out: Out) -> None:
            work(value, out)

    kafka.produce(source, range(10), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 10, timeout_s=30)
    shell.stop(app)
    written = kafka.consume_all(target, at_least=8)
    assert values(written) == [{"n": n} for n in range(10) if n not in (3, 9)]
    assert [record.key for record in written] == [str(n).encode() for n in range(10) if n not in (3, 9)]
    assert [record.value for record in kafka.consume_all(app.dead_letter_topic, at_least=2)] == [b"3", b"9"]
    assert seen == [0, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9], "only the record that failed was handled again"


def test_many_partitions_share_transactions_and_keep_their_order(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source", partitions=6), make_topic("target", partitions=6)

    @app.handler(source, value=Json(), concurrency=3, exactly_once=ExactlyOnce(value=Json(), max_records=50))
    def copy(record: Record[int], out: Out) -> None:
        out.send(target, record.value, partition=record.partition)

    kafka.produce(source, range(3_000), value=Json(), keys=map(str, range(3_000)), key=str)
    shell.start(app)
    wait(lambda: sum(max(0, committed(kafka_group, source, n)) for n in range(6)) == 3_000, timeout_s=60)
    shell.stop(app)
    by_partition: dict[int, list[int]] = {}
    for record in kafka.consume_all(target, at_least=3_000):
        by_partition.setdefault(record.partition, []).append(int(record.value))
    assert sorted(n for found in by_partition.values() for n in found) == list(range(3_000))
    assert all(found == sorted(found) for found in by_partition.values())


def test_what_is_passed_over_moves_the_offset_too(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(), on_error={KeyError: Skip("not ours")}, exactly_once=ExactlyOnce(value=Json()))
    def handle(value: int, out: Out) -> Skip | None:
        out.send(target, value)
        if value == 1:
            raise KeyError(value)
        return None

    kafka.produce(source, [1, 1, 1], value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 3, timeout_s=30)
    kafka.produce(source, [2], value=Json())
    wait(lambda: committed(kafka_group, source) == 4, timeout_s=30)
    shell.stop(app)


def test_a_batch_with_a_bad_record_writes_the_results_of_the_others(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(), batch=True, max_batch=5, exactly_once=ExactlyOnce(value=Json()))
    def handle(values: list[int], out: Out) -> list[Any]:
        for value in values:
            out.send(target, value)
        return [Dead("three") if value == 3 else None for value in values]

    kafka.produce(source, range(12), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 12, timeout_s=30)
    shell.stop(app)
    assert values(kafka.consume_all(target, at_least=11)) == [n for n in range(12) if n != 3]
    assert [record.value for record in kafka.consume_all(app.dead_letter_topic, at_least=1)] == [b"3"]


def test_a_batch_that_raises_is_isolated_record_by_record(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(), batch=True, max_batch=5, exactly_once=ExactlyOnce(value=Json()))
    def handle(values: list[int], out: Out) -> None:
        for value in values:
            out.send(target, value)
        if 3 in values:
            raise RuntimeError("three")

    kafka.produce(source, range(12), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 12, timeout_s=30)
    shell.stop(app)
    assert sorted(values(kafka.consume_all(target, at_least=11))) == [n for n in range(12) if n != 3]
    assert [record.value for record in kafka.consume_all(app.dead_letter_topic, at_least=1)] == [b"3"]


def test_a_result_that_a_broker_refuses_fails_its_record_alone(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target", config={"max.message.bytes": "2000"})
    app.producer_settings["batch.size"] = 1_500
    handled: list[int] = []

    @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json()))
    def handle(value: int, out: Out) -> None:
        handled.append(value)
        out.send(target, value if value != 4 else urandom(5_000).hex())

    kafka.produce(source, range(8), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 8, timeout_s=120)
    shell.stop(app)
    assert values(kafka.consume_all(target, at_least=7)) == [n for n in range(8) if n != 4]
    (dead,) = kafka.consume_all(app.dead_letter_topic, at_least=1)
    assert dead.value == b"4"
    assert handled.count(4) == 2
    assert handled[:4] == [0, 1, 2, 3]


def test_what_cannot_be_encoded_fails_its_record(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(), exactly_once=ExactlyOnce())
    def handle(value: int, out: Out) -> None:
        out.send(target, b"%d" % value)
        if value == 2:
            out.send(target, {"not": "bytes"})

    kafka.produce(source, range(5), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 5, timeout_s=30)
    shell.stop(app)
    assert [record.value for record in kafka.consume_all(target, at_least=4)] == [b"0", b"1", b"3", b"4"]
    (dead,) = kafka.consume_all(app.dead_letter_topic, at_least=1)
    assert dead.value == b"2"


def test_retry_topics_get_their_records_in_the_transaction_of_the_offset(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")
    tries: list[int] = []

    @app.handler(
        source,
        value=Json(),
        retry_topics=RetryTopics(delays_s=(0.05, 0.05), keep_key_order=False),
        exactly_once=ExactlyOnce(value=Json()),
    )
    def handle(value: int, out: Out) -> None:
        out.send(target, value)
        if value in (2, 4):
            tries.append(value)
            if value == 4 or tries.count(value) < 3:
                raise RuntimeError("later")

    kafka.produce(source, range(6), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 6, timeout_s=30)
    dead = kafka.consume_all(app.dead_letter_topic, at_least=1)
    found = values(kafka.consume_all(target, at_least=5))
    shell.stop(app)
    assert [n for n in found if n != 2] == [0, 1, 3, 5]
    assert found.count(2) == 1
    assert [record.value for record in dead] == [b"4"]


@pytest.mark.representative("asyncio")
def test_a_rebalance_in_the_middle_writes_nothing_twice(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source", partitions=4), make_topic("target", partitions=4)
    total = 4_000
    kafka.produce(source, range(total), value=Json(), keys=map(str, range(total)), key=str)

    def made() -> App:
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, settings=BRISK)

        @app.handler(source, value=Json(), concurrency=2, exactly_once=ExactlyOnce(value=Json(), max_records=20))
        def copy(record: Record[int], out: Out) -> None:
            out.send(target, record.value, partition=record.partition)

        return app

    def done() -> int:
        return sum(max(0, committed(kafka_group, source, n)) for n in range(4))

    first = shell.start(made())
    wait(lambda: done() > 200, timeout_s=60)
    second = shell.start(made())
    wait(lambda: second.health().partitions or done() == total, timeout_s=60)
    third = shell.start(made())
    wait(lambda: third.health().partitions or done() == total, timeout_s=60)
    shell.stop(first)
    wait(lambda: done() == total, timeout_s=90)
    by_partition: dict[int, list[int]] = {}
    for record in kafka.consume_all(target, at_least=total):
        by_partition.setdefault(record.partition, []).append(int(record.value))
    assert sorted(n for found in by_partition.values() for n in found) == list(range(total))
    assert all(found == sorted(found) for found in by_partition.values())


def test_a_second_process_with_the_same_instance_fences_the_first(
    shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    def made() -> App:
        # Nothing can be committed any more by the one that is fenced: it must not wait for it.
        app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, drain_s=300)

        @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json(), instance="pod-0"))
        def copy(value: int, out: Out) -> None:
            out.send(target, value)

        return app

    kafka.produce(source, range(5), value=Json())
    first = shell.start(made())
    wait(lambda: committed(kafka_group, source) == 5, timeout_s=30)
    settings = {"transactional.id": f"{kafka_group}.pod-0.results"}
    with Producer(kafka.bootstrap_servers, settings=settings) as newer, newer.transaction():
        newer.send(target, b"100")
    kafka.produce(source, range(5, 10), value=Json())
    assert isinstance(shell.error_of(first, timeout_s=30), FencedError)
    second = shell.start(made())
    wait(lambda: committed(kafka_group, source) == 10, timeout_s=30)
    shell.stop(second)
    assert [n for n in values(kafka.consume_all(target, at_least=11)) if n != 100] == list(range(10))


@pytest.mark.representative("columns")
def test_a_handler_that_is_slower_than_the_transaction_timeout_is_not_fenced(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")
    go_on = threading.Event()

    @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json(), transaction_timeout_s=2))
    def handle(value: int, out: Out) -> None:
        out.send(target, value)
        if value == 1:
            go_on.wait(2.5)  # longer than the timeout; no transaction is open meanwhile

    kafka.produce(source, range(3), value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 3, timeout_s=30)
    shell.stop(app)
    assert values(kafka.consume_all(target, at_least=3)) == [0, 1, 2]


def test_results_go_on_in_the_trace_of_their_record(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    """They are written later, in a transaction with those of other records."""
    source, target = make_topic("source"), make_topic("target")

    @app.handler(source, value=Json(), name="copy", exactly_once=ExactlyOnce(value=Json()))
    def copy(value: int, out: Out) -> None:
        out.send(target, value, headers=[("own", b"header")])

    with recorded_spans() as recorder:
        kafka.produce(source, range(3), value=Json())
        shell.start(app)
        wait(lambda: committed(kafka_group, source) == 3, timeout_s=30)
        shell.stop(app)
        spans = recorder.named("process")
    results = kafka.consume_all(target, at_least=3)
    ids = [dict(record.headers)["traceparent"].decode().split("-")[1] for record in results]
    assert ids == [f"{span.context.trace_id:032x}" for span in spans]
    assert len(set(ids)) == 3
    assert [dict(record.headers)["own"] for record in results] == [b"header"] * 3


def test_sending_after_the_handler_returned_is_refused(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source = make_topic("source")
    kept: list[Out] = []

    @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json()))
    def handle(value: int, out: Out) -> None:
        kept.append(out)

    kafka.produce(source, [1], value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 1, timeout_s=30)
    shell.stop(app)
    with pytest.raises(LifecycleError, match="after the handler had returned"):
        kept[0].send(source, 1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"ordering": "key"}, "ordering='partition'"),
        ({"inbox": Inbox(Memory())}, "no transaction has both"),
        ({"retry_topics": RetryTopics(delays_s=(1,))}, "keep_key_order=False"),
        ({"exactly_once": True}, "wanted ExactlyOnce"),
    ],
)
def test_what_cannot_be_exactly_once_is_refused_where_it_is_declared(options: Any, says: str) -> None:
    app = App("group", bootstrap_servers="localhost:1")
    with pytest.raises(ConfigError, match=says):
        app.handler("orders", **{"exactly_once": ExactlyOnce(), **options})(lambda value: None)


def test_other_refusals() -> None:
    with pytest.raises(BindingError, match="parameter named out"):
        App("group").handler("orders")(lambda value, out: None)
    with pytest.raises(ConfigError, match="AtMostOnce"):
        App("group", commit=AtMostOnce()).handler("orders", exactly_once=ExactlyOnce())(lambda value, out: None)
    for wrong in ({"instance": ""}, {"max_records": 0}, {"transaction_timeout_s": 0.1}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            ExactlyOnce(**wrong)  # type: ignore[arg-type]
    app = App("group", bootstrap_servers="localhost:1", settings={"isolation.level": "read_uncommitted"})
    app.handler("orders", exactly_once=ExactlyOnce())(lambda value, out: None)
    with pytest.raises(ConfigError, match=r"isolation\.level"):
        app.run()
    app = App("group", bootstrap_servers="localhost:1")
    app.handler("orders", name="one", exactly_once=ExactlyOnce())(lambda value, out: None)
    app.handler("others", name="two", exactly_once=ExactlyOnce(instance="a"))(lambda value, out: None)
    with pytest.raises(ConfigError, match="the same instance"):
        app.run()


def test_middlewares_and_the_context_have_it_too(
    app: App, shell: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    source, target = make_topic("source"), make_topic("target")

    @app.middleware
    def audit(record: Any, context: Context, call_next: Callable[..., Any]) -> Any:
        context.out.send(target, "audited")
        return call_next(record)

    @app.handler(source, value=Json(), exactly_once=ExactlyOnce(value=Json()))
    def handle(value: int, context: Context) -> None:
        context.out.send(target, value)

    kafka.produce(source, [1], value=Json())
    shell.start(app)
    wait(lambda: committed(kafka_group, source) == 1, timeout_s=30)
    shell.stop(app)
    assert values(kafka.consume_all(target, at_least=2)) == ["audited", 1]


def test_consumer_for_shows_what_a_handler_sent_and_keeps_nothing_of_a_record_that_failed() -> None:
    def handle(value: int, out: Out) -> None:
        out.send("target", value)
        if value == 2:
            raise RuntimeError("poison")

    consumer = consumer_for(
        handle, value=Json(), exactly_once=ExactlyOnce(value=Json()), dead_letter_topic="dead", retry=QUICK
    )
    outcomes = [delivery.outcome for delivery in consumer.deliver_all([1, 2, 3])]
    assert outcomes == ["done", "dead", "done"]
    assert [(record.topic, record.raw_value) for record in consumer.sent] == [("target", b"1"), ("target", b"3")]
