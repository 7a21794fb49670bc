"""No handler gets a record that has expired: offline with a clock of our own, and through the real clients."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla import (
    App,
    CommitPolicy,
    Context,
    Dead,
    InTransactions,
    Json,
    Producer,
    Record,
    Retry,
    RetryPolicy,
    RetryTopics,
    Skip,
)
from ottla.failures.expiry import EXPIRES_HEADER
from ottla.telemetry.metrics.hooks import Counters
from ottla.testing import consumer_for
from ottla.testing.offline import _call_now
from tests.kit.both_shells import CONSUMERS, PRODUCERS

OFTEN = CommitPolicy(every_s=0.05)


def expiring(consumer: Any, in_ms: int) -> list[tuple[str, bytes | None]]:
    return [(EXPIRES_HEADER, b"%d" % (consumer.clock.now_ms() + in_ms))]


def test_an_expired_record_is_passed_over_and_the_next_one_is_handled() -> None:
    def handle(value: bytes) -> None: ...

    consumer = consumer_for(handle)
    assert consumer.deliver(b"old", headers=expiring(consumer, 0)).outcome == "expired"
    assert consumer.deliver(b"new", headers=expiring(consumer, 1)).outcome == "done"
    assert consumer.deliver(b"other", headers=[(EXPIRES_HEADER, b"soon")]).outcome == "done"
    assert [call.subject.value for call in consumer.calls] == [b"new", b"other"]
    assert consumer.position() == 3


def test_what_expires_while_those_before_it_are_handled_is_passed_over() -> None:
    def handle(value: bytes) -> None:
        consumer.clock.advance(400)

    consumer = consumer_for(handle, ttl_s=1.0)
    found = consumer.deliver_all([b"%d" % number for number in range(5)])
    assert [delivery.outcome for delivery in found] == ["done", "done", "done", "expired", "expired"]


def test_a_handler_can_ask_how_much_time_is_left() -> None:
    left: list[float | None] = []

    def handle(record: Record[bytes], context: Context) -> None:
        left.append(context.time_left_s())
        consumer.clock.advance(250)
        left.append(context.time_left_s())
        consumer.clock.advance(10_000)
        left.append(context.time_left_s())

    consumer = consumer_for(handle)
    consumer.deliver(b"a", headers=expiring(consumer, 1_000))
    consumer.deliver(b"b")
    assert left == [1.0, 0.75, 0.0, None, None, None]


def test_rows_of_columns_expire_in_a_retry_topic_by_the_time_of_their_first_delivery() -> None:
    def handle(batch: Any) -> Retry:
        return Retry()

    topics = RetryTopics(delays_s=(0.6, 0.6, 0.6))
    consumer = consumer_for(handle, value=Json(int), columns=True, ttl_s=1.0, retry_topics=topics)
    assert consumer.deliver(1).outcome == "expired"
    assert len(consumer.calls) == 2


def test_a_retry_in_place_checks_again() -> None:
    def handle(value: bytes) -> Retry:
        return Retry(after_s=2)

    consumer = consumer_for(handle, dead_letter_topic="dead", on_expired=Dead("too old"))
    (found,) = consumer.deliver_all([b"a"], headers=expiring(consumer, 3_000))
    assert (found.outcome, len(consumer.calls)) == ("dead", 2)
    assert found.dead_letter is not None
    assert (found.dead_letter.kind, found.waited_s) == ("expired", 2.0)


@pytest.mark.parametrize("outcome", [Skip(), Dead("too old")])
def test_a_batch_has_only_what_is_sound(outcome: Skip | Dead) -> None:
    batches: list[list[bytes]] = []

    def handle(values: list[bytes], context: Context) -> list[Any]:
        batches.append(values)
        return [Dead("bad") if value == b"2" else None for value in values]

    consumer = consumer_for(handle, batch=True, ttl_s=60, dead_letter_topic="dead", on_expired=outcome)
    old, now = consumer.clock.now_ms() - 60_000, consumer.clock.now_ms()
    route, records = consumer._records([b"%d" % n for n in range(5)], None, None, 0, (), None, None)
    for record in records:
        record.timestamp_ms = old if record.offset in (0, 3) else now
    work = consumer._deliver(route, records)
    invoker, run = next(work)
    with pytest.raises(StopIteration):
        work.send(invoker.deliver(run))
    found = [delivery.outcome for delivery in consumer._deliveries(route, records)]
    assert batches == [[b"1", b"2", b"4"]]
    late = "expired" if isinstance(outcome, Skip) else "dead"
    assert found == [late, "done", "dead", late, "done"]
    assert consumer.position() == 5


@given(data=st.data())
def test_whatever_happens_nobody_gets_a_record_too_late_and_a_key_keeps_its_order(data: st.DataObject) -> None:
    ordering = data.draw(st.sampled_from(["partition", "key"]))
    outcome = data.draw(st.sampled_from([Skip(), Dead("late")]))
    retry_topics = data.draw(st.sampled_from([None, RetryTopics(delays_s=(1.0, 3.0))]))
    ttl_s = data.draw(st.sampled_from([None, 2.0, 20.0]))
    is_async = data.draw(st.booleans())
    count = data.draw(st.integers(1, 12))
    takes_ms = data.draw(st.lists(st.integers(0, 900), min_size=count, max_size=count))
    fails = data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count))
    lives = data.draw(st.lists(st.none() | st.integers(0, 15_000), min_size=count, max_size=count))
    keys = data.draw(st.lists(st.sampled_from([b"a", b"b", None]), min_size=count, max_size=count))
    calls: list[int] = []
    too_late: list[int] = []
    failed: dict[int, int] = defaultdict(int)

    def handle(record: Record[bytes], context: Context) -> None:
        now_ms = consumer.clock.now_ms()
        number = int(record.value)
        header = record.header(EXPIRES_HEADER)
        if header is not None and now_ms >= int(header):
            too_late.append(number)
        if ttl_s is not None and now_ms >= record.timestamp_ms + ttl_s * 1_000:
            too_late.append(number)
        calls.append(number)
        consumer.clock.advance(takes_ms[number])
        if failed[number] < fails[number]:
            failed[number] += 1
            raise RuntimeError("flaky")

    async def handle_async(record: Record[bytes], context: Context) -> None:
        handle(record, context)

    consumer = consumer_for(
        handle_async if is_async else handle,
        ordering=ordering,
        concurrency=1 if ordering == "partition" else 3,
        retry=RetryPolicy(max_attempts=2, initial_s=0.5),
        retry_topics=retry_topics,
        dead_letter_topic="dead",
        ttl_s=ttl_s,
        on_expired=outcome,
    )
    route, records = consumer._records([b"%d" % n for n in range(count)], keys, None, 0, (), None, None)
    start_ms = consumer.clock.now_ms()
    for record in records:
        life = lives[record.offset]
        if life is not None:
            record.headers.append((EXPIRES_HEADER, b"%d" % (start_ms + life)))
    work = consumer._deliver(route, records)
    try:
        invoker, run = next(work)
        while True:
            invoker, run = work.send(_call_now(invoker, run))
    except StopIteration:
        pass
    outcomes = [delivery.outcome for delivery in consumer._deliveries(route, records)]
    assert too_late == []
    assert set(outcomes) <= {"done", "expired", "dead"}
    for number, found in enumerate(outcomes):
        if found == "expired":
            assert lives[number] is not None or ttl_s is not None
    assert consumer.position() == count
    for key in {*keys} - {None}:
        own = [number for number in calls if keys[number] == key]
        assert own == sorted(own), "a later record of a key never comes before an earlier one is settled"


# Through the clients


def test_expired_records_do_not_reach_a_handler_and_are_dead_letters_on_request(
    shell: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, make_topic: Any, wait: Any
) -> None:
    dead = make_topic("dead")
    handled: list[int] = []
    hooks = Counters()
    app = App(kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=OFTEN, dead_letter_topic=dead, hooks=hooks)

    @app.handler(kafka_topic, value=Json(), on_expired=Dead("too old"), retry_topics=RetryTopics(delays_s=(0.5,)))
    def handle(value: int, context: Context) -> None:
        if value == 5 and context.attempt == 1:
            raise RuntimeError("not yet")
        handled.append(value)

    with Producer(kafka.bootstrap_servers, value=Json()) as producer:
        producer.send(kafka_topic, 1, expires_after=0)
        producer.send(kafka_topic, 2, expires_after=60)
        producer.send(kafka_topic, 3, expires_at=datetime.now(UTC) - timedelta(seconds=1))
        producer.send(kafka_topic, 4)
        producer.send(kafka_topic, 5, expires_after=3_600)
    shell.start(app)
    wait(lambda: sorted(handled) == [2, 4, 5], timeout_s=40)
    wait(lambda: committed(kafka_group, kafka_topic) == 5, timeout_s=30)
    letters = kafka.consume_all(dead, timeout_s=30)
    assert [letter.header_text("ottla-dlq-kind") for letter in letters] == ["expired", "expired"]
    assert [letter.header_text("ottla-dlq-attempts") for letter in letters] == ["0", "0"]
    assert hooks["expired"] == 2
    assert hooks["records_expired"] == 1


@pytest.mark.parametrize("shell_name", ["threads", "asyncio"])
async def test_a_pulled_consumer_is_not_given_what_has_expired(
    shell_name: str, kafka: Any, kafka_topic: str, kafka_group: str, make_topic: Callable[..., str]
) -> None:
    dead = make_topic("dead")
    async with PRODUCERS[shell_name](kafka.bootstrap_servers) as producer:
        for number in range(6):
            await producer.send(kafka_topic, b"%d" % number, expires_after=0 if number in (0, 2, 3, 5) else 600)
    taken: list[Any] = []
    async with CONSUMERS[shell_name](
        kafka_topic,
        group=kafka_group,
        bootstrap_servers=kafka.bootstrap_servers,
        dead_letter_topic=dead,
        on_expired=Dead("too old"),
    ) as consumer:
        while len(taken) < 2:
            for record in await consumer.poll(1):
                taken.append(record.value)
                consumer.ack(record)
    assert taken == [b"1", b"4"]
    kinds = {letter.header_text("ottla-dlq-kind") for letter in kafka.consume_all(dead)}
    assert kinds == {"expired"}


@pytest.mark.parametrize("shell_name", ["threads", "asyncio"])
async def test_records_that_expired_do_not_hold_a_transaction(
    shell_name: str, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any, make_topic: Callable[..., str]
) -> None:
    target = make_topic("target")
    async with PRODUCERS[shell_name](kafka.bootstrap_servers) as producer:
        for number in range(6):
            await producer.send(kafka_topic, b"%d" % number, expires_after=0 if number in (0, 2, 5) else 600)
    passed: list[bytes] = []
    async with (
        CONSUMERS[shell_name](
            kafka_topic, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers, commit=InTransactions()
        ) as consumer,
        PRODUCERS[shell_name](
            kafka.bootstrap_servers, settings={"transactional.id": f"{kafka_group}-{shell_name}"}
        ) as producer,
    ):
        while len(passed) < 3:
            records = await consumer.poll(1, max_records=2)
            async with producer.transaction() as transaction:
                for record in records:
                    producer.send(target, record.value)
                    passed.append(record.value)
                if records:
                    await transaction.send_offsets(records, consumer)
    assert passed == [b"1", b"3", b"4"]
    assert committed(kafka_group, kafka_topic) == 5
