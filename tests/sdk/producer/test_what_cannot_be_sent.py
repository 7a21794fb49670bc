"""What cannot be sent is refused by `send`, in both shells, with what was found and what was wanted."""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import subprocess
import sys
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from ottla import AppProducer, AsyncAppProducer, AsyncProducer, BulkOptions, Priorities, Producer, SendOptions
from ottla.errors import ConfigError, InputError, SerializationError
from ottla.producer.signature import RareOptions
from ottla.showing import shown
from ottla.testing.topics import create_topic
from ottla.testing.waiting import wait_until, wait_until_async

if TYPE_CHECKING:
    from ottla.testing.kafka import Kafka

NOT_HEADERS = pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"trace": b"1"}, "headers: expected (name, value) pairs, got {'trace': b'1'}; write list(headers.items())"),
        ([("trace", b"1", 2)], "headers: expected (name, value) pairs, got [('trace', b'1', 2)]"),
        ([7], "headers: expected (name, value) pairs, got [7]"),
        ([("trace", "1")], "header trace: expected bytes or None, got str"),
        ([(b"trace", b"1")], "header b'trace': expected a name of type str, got bytes"),
    ],
    ids=["a mapping", "triples", "numbers", "text", "a name in bytes"],
)
NO_PLACES = pytest.mark.parametrize(
    "arguments",
    [
        *({"partition": value} for value in ("1", 1.0, math.nan, True, -1, 2**31, 10**400, b"")),
        *({"timestamp_ms": value} for value in ("1", 1.5, math.nan, math.inf, True, -1, 0, 2**63, 10**400)),
    ],
    ids=lambda given: str(given)[:40],
)
NO_TOPICS = ["", "a b", "x" * 250, "..", None, 7]


@NOT_HEADERS
def test_what_is_not_headers_is_said(kafka: Kafka, kafka_topic: str, headers: Any, problem: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        for _ in ("a topic nobody wrote to", "one that is known"):
            with pytest.raises(SerializationError, match=re.escape(problem)):
                producer.send(kafka_topic, b"v", headers=headers)
            with pytest.raises(SerializationError, match=re.escape(problem)):
                producer.send_many(kafka_topic, [(b"v", b"k", headers)])
            producer.send(kafka_topic, b"v").result(60)


@NOT_HEADERS
async def test_what_is_not_headers_is_said_on_asyncio(
    kafka: Kafka, kafka_topic: str, headers: Any, problem: str
) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        for _ in ("a topic nobody wrote to", "one that is known"):
            with pytest.raises(SerializationError, match=re.escape(problem)):
                producer.send(kafka_topic, b"v", headers=headers)
            with pytest.raises(SerializationError, match=re.escape(problem)):
                await producer.send_many(kafka_topic, [(b"v", b"k", headers)])
            await producer.send(kafka_topic, b"v")


@pytest.mark.parametrize("name", ["\ud800", "caf\udce9", "nul\0behind"])
def test_a_header_name_that_no_client_can_write_is_refused_and_the_process_lives(name: str) -> None:
    """confluent-kafka ends the process at one of them, so each is tried in a process of its own."""
    program = f"""
from ottla import Producer, Str
from ottla.errors import InputError
from ottla.testing.kafka import running_kafka

NAME = {name!r}
with running_kafka("embedded") as kafka:
    kafka.create_topic("orders")
    kafka.create_topic("ottla.schedule.default", partitions=128)
    with Producer(kafka.bootstrap_servers) as producer:
        producer.send("orders", b"good").result(60)
        sends = [
            lambda: producer.send("orders", b"v", headers=[(NAME, b"x")]),
            lambda: producer.send("orders", b"v", headers=[("fine", b""), (NAME, None)], deliver_after=60),
            lambda: producer.send_many("orders", [(b"v", None, [(NAME, b"x")])]),
            lambda: producer.send_many("orders", [(b"v", None, [(NAME, b"x")])], deliver_after=60),
        ]
        for send in sends:
            try:
                send()
            except InputError as error:
                assert "header" in str(error), error
            else:
                raise AssertionError("it was sent")
        producer.send("orders", b"last").result(60)
    assert [record.raw_value for record in kafka.consume_all("orders")] == [b"good", b"last"]
print("alive")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "alive", (ended.returncode, ended.stderr)


@NO_PLACES
def test_a_place_or_time_that_is_none_is_refused_at_once(kafka: Kafka, kafka_topic: str, arguments: Any) -> None:
    ((name, value),) = arguments.items()
    record = (b"v", None, None, arguments.get("partition"), arguments.get("timestamp_ms"))
    with Producer(kafka.bootstrap_servers) as producer:
        for _ in ("a topic nobody wrote to", "one that is known"):
            with pytest.raises(
                InputError, match=re.escape(f"{kafka_topic}: {name}: found {shown(value, 100)}, wanted")
            ):
                producer.send(kafka_topic, b"v", **arguments)
            with pytest.raises(InputError, match=re.escape(f"{name}: found {shown(value, 100)}, wanted")):
                producer.send_many(kafka_topic, [record])
            producer.send(kafka_topic, b"v", partition=0).result(60)
        producer.flush(60)
        assert not len(producer)


def test_a_time_or_a_partition_that_is_too_large_is_refused_with_the_bound(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(InputError, match="wanted a whole number up to 9223372036854775807"):
            producer.send(kafka_topic, b"v", timestamp_ms=10**30)
        with pytest.raises(InputError, match="wanted a whole number up to 2147483647"):
            producer.send(kafka_topic, b"v", partition=2**31)


@NO_PLACES
async def test_a_place_or_time_that_is_none_is_refused_at_once_on_asyncio(
    kafka: Kafka, kafka_topic: str, arguments: Any
) -> None:
    ((name, value),) = arguments.items()
    record = (b"v", None, None, arguments.get("partition"), arguments.get("timestamp_ms"))
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        for _ in ("a topic nobody wrote to", "one that is known"):
            with pytest.raises(
                InputError, match=re.escape(f"{kafka_topic}: {name}: found {shown(value, 100)}, wanted")
            ):
                producer.send(kafka_topic, b"v", **arguments)
            with pytest.raises(InputError, match=re.escape(f"{name}: found {shown(value, 100)}, wanted")):
                await producer.send_many(kafka_topic, [record])
            await producer.send(kafka_topic, b"v", partition=0)
        await producer.flush(60)
        assert not len(producer)


async def test_both_shells_write_the_time_that_they_are_given(kafka: Kafka, kafka_topic: str) -> None:
    times = [1, 1_700_000_000_123]
    with Producer(kafka.bootstrap_servers) as threads:
        for at_ms in times:
            threads.send(kafka_topic, b"v", timestamp_ms=at_ms)
    async with AsyncProducer(kafka.bootstrap_servers) as tasks:
        for at_ms in times:
            tasks.send(kafka_topic, b"v", timestamp_ms=at_ms)
    found = await asyncio.to_thread(kafka.consume_all, kafka_topic)
    assert [record.timestamp_ms for record in found] == times * 2


@pytest.mark.parametrize("id", ["\ud800", "", None, 7, "x" * 201])
async def test_an_id_of_a_schedule_that_is_none_is_refused(kafka: Kafka, kafka_topic: str, id: Any) -> None:
    wanted = {} if id is None else {"schedule_id": id}
    with Producer(kafka.bootstrap_servers) as threads:
        with pytest.raises(InputError, match="schedule_id: found"):
            threads.cancel(id)
        if wanted:
            with pytest.raises(InputError, match="schedule_id: found"):
                threads.send(kafka_topic, b"v", deliver_after=60, **wanted)
    async with AsyncProducer(kafka.bootstrap_servers) as tasks:
        with pytest.raises(InputError, match="schedule_id: found"):
            tasks.cancel(id)


def test_a_topic_that_cannot_exist_is_refused_and_limits_are_looked_up_all_the_same(
    kafka: Kafka, kafka_topic: str
) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        for topic in NO_TOPICS:
            with pytest.raises(InputError, match=r"topic: found .*, wanted a name of 1 to 249"):
                producer.send(topic, b"v")  # type: ignore[arg-type]
        producer.send(kafka_topic, b"v").result(60)
        wait_until(lambda: producer._sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


async def test_a_topic_that_cannot_exist_is_refused_and_limits_are_looked_up_all_the_same_on_asyncio(
    kafka: Kafka, kafka_topic: str
) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        for topic in NO_TOPICS:
            with pytest.raises(InputError, match=r"topic: found .*, wanted a name of 1 to 249"):
                producer.send(topic, b"v")  # type: ignore[arg-type]
        await producer.send(kafka_topic, b"v")
        await wait_until_async(lambda: producer._sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


def test_a_question_that_fails_does_not_end_the_thread_that_asks(
    kafka: Kafka, kafka_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Producer(kafka.bootstrap_servers, settings={"metadata.max.age.ms": 100}) as producer:
        describe, failed = producer._watch._describe_configs, []

        def fails_once(*arguments: Any) -> Any:
            if failed:
                return describe(*arguments)
            failed.append(True)
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(producer._watch, "_describe_configs", fails_once)
        producer.send(kafka_topic, b"v").result(60)
        wait_until(lambda: producer._sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")
        assert failed


@pytest.mark.parametrize("third", [b"k", None])
def test_a_third_argument_has_to_be_named(kafka: Kafka, kafka_topic: str, third: Any) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(TypeError):
            producer.send(kafka_topic, b"v", third, [("a", b"1")])  # type: ignore[call-overload]
        producer.flush()
        assert producer.send(kafka_topic, b"v", key=b"k").result(60).offset == 0


async def test_a_third_argument_has_to_be_named_on_asyncio(kafka: Kafka, kafka_topic: str) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(TypeError):
            producer.send(kafka_topic, b"v", b"k")  # type: ignore[misc]
        assert (await producer.send(kafka_topic, b"v", key=b"k")).offset == 0


WRONG_FOR_MANY = pytest.mark.parametrize("name", ["expire_after", "message_id", "schedule_id", "event_id", "headers"])
PLACED_BY = pytest.mark.parametrize("partitioner", [None, "round_robin"])  # with the latter threads send one by one


def test_an_option_that_send_does_not_have_is_refused_by_name(kafka: Kafka, kafka_topic: str) -> None:
    wrong: Any = {"expire_after": 1}
    with (
        Producer(kafka.bootstrap_servers) as producer,
        pytest.raises(TypeError, match=r"^Producer\.send\(\) got an unexpected keyword argument 'expire_after'"),
    ):
        producer.send(kafka_topic, b"v", **wrong)
    assert len(producer) == 0


async def test_an_option_that_send_does_not_have_is_refused_by_name_on_asyncio(kafka: Kafka, kafka_topic: str) -> None:
    wrong: Any = {"expire_after": 1}
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        with pytest.raises(
            TypeError, match=r"^AsyncProducer\.send\(\) got an unexpected keyword argument 'expire_after'"
        ):
            producer.send(kafka_topic, b"v", **wrong)
        assert len(producer) == 0


@PLACED_BY
@WRONG_FOR_MANY
def test_an_option_that_send_many_does_not_have_is_refused_by_name(
    kafka: Kafka, kafka_topic: str, partitioner: Any, name: str
) -> None:
    wrong: Any = {name: "a"}
    problem = rf"^Producer\.send_many\(\) got an unexpected keyword argument '{name}'"
    with Producer(kafka.bootstrap_servers, partitioner=partitioner) as producer:
        with pytest.raises(TypeError, match=problem):
            producer.send_many(kafka_topic, [(b"v",), (b"w",)], **wrong)
        with pytest.raises(TypeError, match=problem):
            producer.send_many(kafka_topic, [], **wrong)
        assert len(producer) == 0


@PLACED_BY
@WRONG_FOR_MANY
async def test_an_option_that_send_many_does_not_have_is_refused_by_name_on_asyncio(
    kafka: Kafka, kafka_topic: str, partitioner: Any, name: str
) -> None:
    wrong: Any = {name: "a"}
    problem = rf"^AsyncProducer\.send_many\(\) got an unexpected keyword argument '{name}'"
    async with AsyncProducer(kafka.bootstrap_servers, partitioner=partitioner) as producer:
        with pytest.raises(TypeError, match=problem):
            await producer.send_many(kafka_topic, [(b"v",), (b"w",)], **wrong)
        with pytest.raises(TypeError, match=problem):
            await producer.send_many(kafka_topic, [], **wrong)
        assert len(producer) == 0


@pytest.mark.parametrize("producer", [Producer, AsyncProducer])
def test_each_option_of_a_send_is_read(producer: Any) -> None:
    applied = inspect.signature(producer._apply_send_options).parameters.keys()

    assert applied - {"self", "topic", "headers", "unknown"} == RareOptions.__optional_keys__
    assert SendOptions.__optional_keys__ - applied == {"partition", "timestamp_ms", "detached"}


@pytest.mark.parametrize("producer", [Producer, AsyncProducer, AppProducer, AsyncAppProducer])
def test_signatures_of_sends_list_their_options(producer: Any) -> None:
    one, many = inspect.signature(producer.send).parameters, inspect.signature(producer.send_many).parameters

    assert one.keys() == {"self", "topic", "value", "key", "on_delivery"} | SendOptions.__optional_keys__
    assert many.keys() == {"self", "topic", "records"} | BulkOptions.__optional_keys__
    assert (one["headers"].default, one["detached"].default, one["partition"].default) == ((), False, None)


@pytest.mark.parametrize(
    ("producer", "example"),
    [(Producer, " with producer.transaction()"), (AsyncProducer, " async with producer.transaction()")],
)
def test_help_of_a_transaction_shows_an_example_for_its_producer(producer: Any, example: str) -> None:
    words = inspect.getdoc(producer.transaction)

    assert words is not None
    assert example in words
    assert ("await transaction.send_offsets" in words) == example.startswith(" async")


def test_both_producers_show_the_same_arguments_of_send() -> None:
    threads, loop = inspect.signature(Producer.send).parameters, inspect.signature(AsyncProducer.send).parameters

    assert [(each.name, each.kind, each.default) for each in threads.values()] == [
        (each.name, each.kind, each.default) for each in loop.values()
    ]


NO_RECORDS = pytest.mark.parametrize(
    ("records", "problem"),
    [
        ([("a",), "ab"], "record 1 of send_many: expected a tuple of 1 to 5 (value, key, headers, partition"),
        (
            "ab",
            "record 0 of send_many: expected a tuple of 1 to 5 (value, key, headers, partition, timestamp_ms), found s",
        ),
        ([b"ab"], "found bytes"),
        ([{"value": "a", "key": "b"}], "found dict"),
        ([None], "found NoneType"),
        ([()], "found tuple of 0"),
        ([("a", "k", (), None, 0, 6)], "found tuple of 6"),
    ],
    ids=["text among tuples", "text", "bytes", "a mapping", "nothing", "an empty tuple", "six"],
)


@NO_RECORDS
def test_what_is_no_record_of_a_bulk_is_said_and_not_taken_apart(
    kafka: Kafka, kafka_topic: str, records: Any, problem: str
) -> None:
    with Producer(kafka.bootstrap_servers, value=str, key=str) as producer, pytest.raises(InputError) as raised:
        producer.send_many(kafka_topic, records)
    assert problem in str(raised.value)


@NO_RECORDS
async def test_what_is_no_record_of_a_bulk_is_said_on_asyncio(
    kafka: Kafka, kafka_topic: str, records: Any, problem: str
) -> None:
    async with AsyncProducer(kafka.bootstrap_servers, value=str, key=str) as producer:
        with pytest.raises(InputError) as raised:
            await producer.send_many(kafka_topic, records)
    assert problem in str(raised.value)


def test_a_topic_that_is_text_of_another_class_has_its_limit_like_any_other(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        for topic in (Priorities(kafka_topic, ("urgent", "normal")), Enum("Named", {"A": kafka_topic}, type=str)["A"]):
            delivery = producer.send(topic, b"v")
            producer.send_many(topic, [(b"v",)]).result(60)
            delivery.result(60)
            assert (delivery.topic, type(delivery.topic)) == (kafka_topic, str)
        wait_until(lambda: producer._sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


async def test_a_topic_that_is_text_of_another_class_has_its_limit_like_any_other_on_asyncio(
    kafka: Kafka, kafka_topic: str
) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        for topic in (Priorities(kafka_topic, ("urgent", "normal")), Enum("Named", {"A": kafka_topic}, type=str)["A"]):
            delivery = producer.send(topic, b"v")
            await (await producer.send_many(topic, [(b"v",)]))
            await delivery
            assert (delivery.topic, type(delivery.topic)) == (kafka_topic, str)
        await wait_until_async(lambda: producer._sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


def test_the_topics_of_a_producer_may_be_priorities(kafka: Kafka, kafka_topic: str) -> None:
    kafka.create_topic(f"{kafka_topic}.urgent", config={"max.message.bytes": 100_000})
    topics = Priorities(kafka_topic, ("urgent", "normal"))
    too_much = {"batch.size": 900_000}
    with (
        pytest.raises(ConfigError, match=rf"batch.size: found 900000 .* topic {kafka_topic}.urgent"),
        Producer(kafka.bootstrap_servers, settings=too_much, topics=topics),
    ):
        pass


def test_a_question_about_a_topic_that_cannot_be_asked_spoils_no_other(kafka: Kafka, kafka_topic: str) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        producer._watch.watch(_Unaskable("unaskable"), partitions=False)
        producer._watch.watch(kafka_topic, partitions=False)
        wait_until(lambda: producer._sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


class _Unaskable(str):
    """confluent-kafka takes topics of no class but `str`."""


class Name(str, Enum):  # noqa: UP042 -- what `str()` makes of it is not its value
    TRACE = "trace"


async def test_both_shells_take_header_names_that_are_enums_and_refuse_pairs_that_are_lists(
    kafka: Kafka, kafka_topic: str
) -> None:
    lists: Any = [["trace", b"1"]]
    with Producer(kafka.bootstrap_servers) as threads:
        for _ in ("a topic nobody wrote to", "one that is known"):
            threads.send(kafka_topic, b"v", headers=[(Name.TRACE, b"1")]).result(60)
            with pytest.raises(SerializationError, match="pairs as tuples, got"):
                threads.send(kafka_topic, b"v", headers=lists)
    async with AsyncProducer(kafka.bootstrap_servers) as tasks:
        for _ in ("a topic nobody wrote to", "one that is known"):
            await tasks.send(kafka_topic, b"v", headers=[(Name.TRACE, b"1")])
            with pytest.raises(SerializationError, match="pairs as tuples, got"):
                await tasks.send(kafka_topic, b"v", headers=lists)
        await tasks.flush(60)
    found = await asyncio.to_thread(kafka.consume_all, kafka_topic)
    assert [record.headers for record in found] == [[("trace", b"1")]] * 4


async def test_both_shells_say_that_a_compacted_topic_wants_a_key(kafka: Kafka, kafka_topic: str) -> None:
    topic = f"{kafka_topic}-compacted"
    create_topic(kafka.bootstrap_servers, topic, config={"cleanup.policy": "compact"})
    wanted = "refused the record .INVALID_RECORD.; a topic with cleanup.policy=compact takes only records with a key"
    with Producer(kafka.bootstrap_servers) as threads, pytest.raises(InputError, match=wanted):
        threads.send(topic, b"v").result(60)
    async with AsyncProducer(kafka.bootstrap_servers) as tasks:
        with pytest.raises(InputError, match=wanted):
            await tasks.send(topic, b"v")


async def test_both_shells_say_that_a_broker_does_not_take_a_time(kafka: Kafka, kafka_topic: str) -> None:
    far, wanted = 2**62, f"{kafka_topic}: .*(?i:timestamp)"
    with Producer(kafka.bootstrap_servers) as threads, pytest.raises(InputError, match=wanted):
        threads.send(kafka_topic, b"v", timestamp_ms=far).result(60)
    async with AsyncProducer(kafka.bootstrap_servers) as tasks:
        with pytest.raises(InputError, match=wanted):
            await tasks.send(kafka_topic, b"v", timestamp_ms=far)
