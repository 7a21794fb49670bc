"""What cannot be sent is refused by `send`, in both shells, with what was found and what was wanted."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest

from ottla import AsyncProducer, Producer
from ottla.errors import InputError, SerializationError
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


@pytest.mark.parametrize("arguments", [{"partition": "1"}, {"timestamp_ms": 1.5}, {"partition": 2**40}])
def test_what_the_client_would_not_take_is_named(kafka: Kafka, kafka_topic: str, arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with Producer(kafka.bootstrap_servers) as producer:
        with pytest.raises(InputError, match=re.escape(f"{name}={value!r}")):
            producer.send(kafka_topic, b"v", **arguments)
        record = (b"v", None, None, arguments.get("partition"), arguments.get("timestamp_ms"))
        with pytest.raises(InputError, match=re.escape(f"{name}={value!r}")):
            producer.send_many(kafka_topic, [record])


def test_a_topic_that_cannot_exist_is_refused_and_limits_are_looked_up_all_the_same(
    kafka: Kafka, kafka_topic: str
) -> None:
    with Producer(kafka.bootstrap_servers) as producer:
        for topic in NO_TOPICS:
            with pytest.raises(InputError, match=r"topic: found .*, wanted a name of 1 to 249"):
                producer.send(topic, b"v")  # type: ignore[arg-type]
        producer.send(kafka_topic, b"v").result(60)
        wait_until(lambda: producer.sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


async def test_a_topic_that_cannot_exist_is_refused_and_limits_are_looked_up_all_the_same_on_asyncio(
    kafka: Kafka, kafka_topic: str
) -> None:
    async with AsyncProducer(kafka.bootstrap_servers) as producer:
        for topic in NO_TOPICS:
            with pytest.raises(InputError, match=r"topic: found .*, wanted a name of 1 to 249"):
                producer.send(topic, b"v")  # type: ignore[arg-type]
        await producer.send(kafka_topic, b"v")
        await wait_until_async(lambda: producer.sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")


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
        wait_until(lambda: producer.sizes.limits.topic_limit(kafka_topic), 60, what="the topic's limit")
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
