"""`Consumer` and `AsyncConsumer`: the same tests, written once for both through a small adapter."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import (
    AsyncConsumer,
    CommitPolicy,
    ConfigError,
    Consumer,
    InputError,
    Json,
    LifecycleError,
    Malformed,
    RetryPolicy,
    TopicPartition,
    columnar,
)
from ottla.failures import describe_dead_letter
from ottla.testing.waiting import wait_until


class Adapter:
    """Calls a consumer of either kind as if it were synchronous."""

    def __init__(self, consumer: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self._consumer = consumer
        self._loop = loop

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._loop is None:
                return getattr(self._consumer, name)(*arguments, **options)

            async def on_loop() -> Any:
                result = getattr(self._consumer, name)(*arguments, **options)
                return await result if inspect.isawaitable(result) else result

            return self._loop.run_until_complete(on_loop())

        return call

    def iterate(self) -> Iterator[Any]:
        if self._loop is None:
            yield from self._consumer
            return
        iterator = aiter(self._consumer)
        while True:
            yield self._loop.run_until_complete(anext(iterator))


@pytest.fixture(params=["threads", "asyncio"])
def make(request: pytest.FixtureRequest, kafka: Any, kafka_group: str) -> Iterator[Callable[..., Any]]:
    loop = asyncio.new_event_loop() if request.param == "asyncio" else None
    made: list[Adapter] = []

    def make(*topics: str, **options: Any) -> Adapter:
        options = {"group": kafka_group, "bootstrap_servers": kafka.bootstrap_servers, "value": Json(), **options}

        async def make_async() -> Any:
            return AsyncConsumer(*topics, **options)

        adapter = Adapter(Consumer(*topics, **options) if loop is None else loop.run_until_complete(make_async()), loop)
        made.append(adapter)
        return adapter

    yield make
    for adapter in made:
        adapter.close()
    if loop is not None:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def take(consumer: Adapter, count: int) -> list[Any]:
    records: list[Any] = []
    for _ in range(200):
        if len(records) >= count:
            break
        records += consumer.poll(0.1, max_records=count - len(records))
    return records


def test_what_is_acknowledged_is_committed_on_close(
    make: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any
) -> None:
    kafka.produce(kafka_topic, range(5), value=Json())
    consumer = make(kafka_topic)
    records = take(consumer, 5)
    assert [record.value for record in records] == [0, 1, 2, 3, 4]

    consumer.ack(*records[:3])
    consumer.close()
    assert committed(kafka_group, kafka_topic) == 3


def test_a_gap_holds_the_commit_back(make: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any) -> None:
    kafka.produce(kafka_topic, range(5), value=Json())
    consumer = make(kafka_topic)
    records = take(consumer, 5)
    consumer.ack(records[0], records[2], records[4])
    consumer.commit()

    assert committed(kafka_group, kafka_topic) == 1
    assert consumer.position(TopicPartition(kafka_topic, 0)) == 1


def test_iterating_acknowledges_the_record_before(
    make: Any, kafka: Any, kafka_topic: str, kafka_group: str, committed: Any
) -> None:
    kafka.produce(kafka_topic, range(5), value=Json())
    consumer = make(kafka_topic)
    for record in consumer.iterate():
        if record.value == 3:
            break
    consumer.close()

    assert committed(kafka_group, kafka_topic) == 3


def test_the_next_member_goes_on_where_the_last_one_stopped(make: Any, kafka: Any, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, range(4), value=Json())
    first = make(kafka_topic)
    records = take(first, 4)
    first.ack(*records[:2])
    first.close()

    assert [record.value for record in take(make(kafka_topic), 2)] == [2, 3]


def test_a_retried_record_comes_again_before_what_follows_it(make: Any, kafka: Any, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, range(4), value=Json())
    consumer = make(kafka_topic)
    seen: list[int] = []
    for record in consumer.iterate():
        seen.append(record.value)
        if record.value == 1 and seen.count(1) == 1:
            consumer.retry(record, after_s=0.01)
        if len(seen) == 5:
            break

    assert seen == [0, 1, 1, 2, 3]


def test_what_fails_too_often_is_a_dead_letter(
    make: Any, kafka: Any, make_topic: Any, kafka_group: str, committed: Any, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    kafka.produce(topic, [1], value=Json())
    consumer = make(
        topic,
        dead_letter_topic=dead_topic,
        retry=RetryPolicy(max_attempts=2, initial_s=0.01),
        commit=CommitPolicy(every_s=0.05),
    )
    for _ in range(2):
        (record,) = take(consumer, 1)
        consumer.failed(record, RuntimeError("no"))

    def is_committed() -> bool:
        consumer.poll(0.02)
        return bool(committed(kafka_group, topic) == 1)

    wait(is_committed)
    view = describe_dead_letter(kafka.consume_all(dead_topic)[0].headers)
    assert view is not None
    assert (view.error_type, view.attempts) == ("RuntimeError", 2)


def test_malformed_records_go_to_the_dead_letter_topic_unseen(
    make: Any, kafka: Any, make_topic: Any, kafka_group: str, wait: Any
) -> None:
    topic, dead_topic = make_topic("orders"), make_topic("dead")
    kafka.produce(topic, [b"1", b"{", b"2"], value=bytes)
    consumer = make(topic, dead_letter_topic=dead_topic)

    records = take(consumer, 2)
    assert [record.value for record in records] == [1, 2]
    consumer.ack(*records)
    (letter,) = wait(lambda: consumer.poll(0.02) or kafka.consume_all(dead_topic))
    assert letter.raw_value == b"{"


def test_without_a_dead_letter_topic_malformed_records_are_given_out_as_evidence(
    make: Any, kafka: Any, kafka_topic: str
) -> None:
    kafka.produce(kafka_topic, [b"{"], value=bytes)
    (record,) = take(make(kafka_topic), 1)

    assert isinstance(record.value, Malformed)
    assert record.raw_value == b"{"


@pytest.mark.representative("threads")
def test_seeking_by_offset_and_by_time(make: Any, kafka: Any, kafka_topic: str) -> None:
    for number in range(4):
        kafka.produce(kafka_topic, [number], value=Json(), timestamp_ms=1_700_000_000_000 + number * 1_000)
    consumer = make(kafka_topic)
    consumer.ack(*take(consumer, 4))
    partition = TopicPartition(kafka_topic, 0)

    consumer.seek(partition, 1)
    assert [record.value for record in take(consumer, 3)] == [1, 2, 3]
    assert consumer.seek_to_time(partition, 1_700_000_001_500) == 2
    assert [record.value for record in take(consumer, 2)] == [2, 3]


def test_pausing_and_resuming(make: Any, kafka: Any, kafka_topic: str) -> None:
    consumer = make(kafka_topic)
    kafka.produce(kafka_topic, [1], value=Json())
    consumer.ack(*take(consumer, 1))
    consumer.pause()
    kafka.produce(kafka_topic, [2], value=Json())
    assert consumer.poll(0.3) == []

    consumer.resume()
    assert [record.value for record in take(consumer, 1)] == [2]


def test_a_closed_consumer_stays_closed(make: Any, kafka_topic: str) -> None:
    consumer = make(kafka_topic)
    consumer.start()
    consumer.close()
    consumer.close()

    with pytest.raises(LifecycleError, match="make a new one"):
        consumer.poll(0.1)
    assert not consumer.health().is_alive


@pytest.mark.parametrize("begin", [Consumer, columnar.consume])
def test_a_closed_consumer_is_not_alive_although_its_thread_has_not_ended_yet(
    begin: Any, kafka: Any, kafka_topic: str, kafka_group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with begin(kafka_topic, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers) as consumer:
        assert consumer.health().is_alive
    monkeypatch.setattr(threading.Thread, "is_alive", lambda thread: True)
    assert not consumer.health().is_alive


def test_verbs_refuse_what_is_not_assigned_and_what_is_no_offset(make: Any, kafka: Any, kafka_topic: str) -> None:
    kafka.produce(kafka_topic, range(3), value=Json())
    consumer = make(kafka_topic)
    take(consumer, 3)
    own, foreign = TopicPartition(kafka_topic, 0), TopicPartition(kafka_topic, 7)

    for offset in (-5, -1, 2**63, True, "3", 1.5):
        with pytest.raises(InputError, match=r"seek: found .*, wanted an offset: a whole number, 0 or more"):
            consumer.seek(own, offset)
    with pytest.raises(InputError, match="seek_to_time: found -1, wanted milliseconds since the epoch"):
        consumer.seek_to_time(own, -1)
    for verb, arguments in (("seek", (0,)), ("seek_to_time", (0,)), ("pause", ()), ("resume", ())):
        with pytest.raises(InputError, match=f"{verb}: {kafka_topic}-7 is not assigned to this member of group"):
            getattr(consumer, verb)(foreign, *arguments)


def test_a_poll_that_gets_nothing_because_nothing_was_settled_says_so(
    make: Any, kafka: Any, kafka_topic: str, capsys: Any
) -> None:
    kafka.produce(kafka_topic, range(10), value=Json(), partition=0)
    consumer = make(kafka_topic, max_records_per_turn=4)
    records = take(consumer, 4)
    assert consumer.poll(0.2) == []
    assert "nothing more comes of" in capsys.readouterr().err

    consumer.ack(*records)
    assert take(consumer, 1)[0].value == 4


def test_a_poll_gives_max_poll_records_unless_it_is_asked_for_another_number(
    make: Any, kafka: Any, kafka_topic: str
) -> None:
    kafka.produce(kafka_topic, range(20), value=Json(), partition=0)
    consumer = make(kafka_topic, settings={"max.poll.records": 3})
    sizes: list[int] = []
    while sum(sizes) < 9:
        records = consumer.poll(1)
        sizes.append(len(records))
        consumer.ack(*records)
    assert max(sizes) <= 3
    assert len(consumer.poll(1, max_records=1)) == 1


@pytest.mark.parametrize("topics", [(), (["orders"],)])
def test_topics_that_are_no_names_are_refused_where_the_consumer_is_made(make: Any, topics: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match=r"Consumer: .*wanted"):
        make(*topics)


@pytest.mark.parametrize("begin", [Consumer, columnar.consume])
def test_a_poll_ends_when_another_thread_closes_the_consumer(
    begin: Any, kafka: Any, kafka_topic: str, kafka_group: str
) -> None:
    consumer = begin(kafka_topic, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers).start()
    found: list[Any] = []
    polling = threading.Thread(target=lambda: found.append(consumer.poll(60)))
    polling.start()
    wait_until(lambda: consumer.assignment(), timeout_s=30)
    consumer.close()
    polling.join(10)

    assert not polling.is_alive()
    assert found in ([[]], [None])


def test_a_poll_ends_when_another_task_closes_the_consumer(kafka: Any, kafka_topic: str, kafka_group: str) -> None:
    async def main() -> list[Any]:
        consumer = AsyncConsumer(kafka_topic, group=kafka_group, bootstrap_servers=kafka.bootstrap_servers)
        await consumer.start()
        while not consumer.assignment():
            await consumer.poll(0.05)
        polling = asyncio.create_task(consumer.poll(60))
        await asyncio.sleep(0)
        await consumer.close()
        return await asyncio.wait_for(polling, 10)

    assert asyncio.run(main()) == []
